"""B11: which divergence an estimator descends when it is differentiated. Exact averages over p."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tether.core.kl import ESTIMATORS, kl_exact
from tether.core.logprobs import log_softmax

LOGITS = [0.4, -0.2, 0.1]
Q = torch.tensor([0.2, 0.3, 0.5])
TRUE = [0.27714, -0.08891, -0.18823]


def gradient(loss: Callable[[Tensor], Tensor]) -> list[float]:
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss(log_softmax(logits)).backward()
    assert logits.grad is not None
    return logits.grad.tolist()  # type: ignore[no-any-return]


def averaged(name: str) -> list[float]:
    """sum_a p(a) d estimator(a) / d logits: p gives the samples and is not differentiated."""
    return gradient(lambda logp: (logp.exp().detach() * ESTIMATORS[name](logp - Q.log())).sum())


def test_exact_kl_has_the_true_gradient() -> None:
    assert gradient(lambda logp: kl_exact(logp, Q.log())) == pytest.approx(TRUE, abs=1e-5)


def test_k1_descends_nothing() -> None:
    assert averaged("k1") == pytest.approx([0, 0, 0], abs=1e-6)


def test_k2_descends_the_reverse_kl() -> None:
    assert averaged("k2") == pytest.approx(TRUE, abs=1e-5)


def test_k3_descends_another_divergence() -> None:
    assert averaged("k3") == pytest.approx([0.23675, -0.06031, -0.17645], abs=1e-5)
    p = torch.tensor(LOGITS).softmax(-1)
    assert averaged("k3") == pytest.approx((p - Q).tolist(), abs=1e-5), "that of KL(q || p)"


def test_a_kl_in_the_reward_follows_the_true_gradient_for_k1() -> None:
    """REINFORCE with reward -k1: sum_a p(a) k1(a) grad log p(a) = grad KL."""
    got = gradient(lambda logp: (logp.exp().detach() * (logp - Q.log()).detach() * logp).sum())
    assert got == pytest.approx(TRUE, abs=1e-5)
