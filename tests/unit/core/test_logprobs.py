"""Log-probabilities under an allowed set (temperature and precision: faults B06, B08)."""

import math

import pytest
import torch

from tether.core.kl import kl_exact
from tether.core.logprobs import NEVER, entropy, log_softmax, pick

LOGITS = torch.tensor([[0.0, math.log(2.0), math.log(5.0)]])


def test_pick_and_entropy_by_hand() -> None:
    logp = log_softmax(LOGITS)
    assert pick(logp, torch.tensor([1])).tolist() == pytest.approx([math.log(0.25)], abs=1e-6)
    p = [1 / 8, 2 / 8, 5 / 8]
    expected = -sum(x * math.log(x) for x in p)
    assert float(entropy(logp)) == pytest.approx(expected, abs=1e-6)


def test_an_allowed_set_is_renormalised() -> None:
    allowed = torch.tensor([[True, True, False]])
    logp = log_softmax(LOGITS, 1.0, allowed)
    assert logp.exp()[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0.0], abs=1e-6)
    assert float(logp[0, 2]) == NEVER


def test_forbidden_tokens_give_no_nan_in_entropy_kl_and_gradients() -> None:
    """-inf would: 0 * -inf is NaN."""
    logits = LOGITS.clone().requires_grad_()
    allowed = torch.tensor([[True, True, False]])
    logp = log_softmax(logits, 0.7, allowed)
    other = log_softmax(torch.zeros(1, 3), 1.0, allowed)
    out = entropy(logp) + kl_exact(logp, other) + kl_exact(logp, log_softmax(torch.zeros(1, 3)))
    out.sum().backward()
    assert torch.isfinite(out).all() and logits.grad is not None
    assert torch.isfinite(logits.grad).all() and float(logits.grad[0, 2]) == 0
