"""Scores from hidden states, piece by piece, next to the plain way and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tether.core.kl import kl_exact
from tether.core.logprobs import entropy, log_softmax, pick
from tether.models import token_scores as module
from tether.models.fused import padded
from tether.models.token_scores import Other, token_scores


def inputs(
    n: int = 13, h: int = 5, v: int = 11, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    rng = torch.Generator().manual_seed(0)
    states, other = (torch.randn(n, h, generator=rng).to(dtype) for _ in range(2))
    weight, theirs = (torch.randn(v, h, generator=rng).to(dtype) for _ in range(2))
    ids = torch.randint(v, (n,), generator=rng)
    return [states, weight, ids, other, theirs]


def plainly(
    states: Tensor, weight: Tensor, ids: Tensor, other: Tensor, theirs: Tensor
) -> list[Tensor]:
    logp, logq = log_softmax(states @ weight.t()), log_softmax(other @ theirs.t())
    return [pick(logp, ids), entropy(logp), kl_exact(logp, logq), pick(logq, ids)]


@pytest.fixture(params=[1 << 26, 44, 11])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """All tokens at once, four at a time with a rest of one, one at a time."""
    monkeypatch.setattr(module, "PIECE", request.param)
    return int(request.param)


def test_two_tokens_by_hand() -> None:
    """Logits 0 and log 3: p = 1/4, 3/4; against a fair coin."""
    one = token_scores(
        torch.ones(1, 1), torch.tensor([[0.0], [math.log(3)]]), torch.tensor([1]),
        [Other(torch.zeros(1, 1), torch.zeros(2, 1))],
    )  # fmt: skip
    assert one.logprobs.item() == pytest.approx(math.log(0.75))
    assert one.entropy.item() == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    assert one.kl[0].item() == pytest.approx(math.log(2) - one.entropy.item())
    assert one.theirs[0].item() == pytest.approx(math.log(0.5))


def test_values_are_those_of_the_plain_way(piece: int) -> None:
    states, weight, ids, other, theirs = inputs()
    got = token_scores(states, weight, ids, [Other(other, theirs)])
    want = plainly(states, weight, ids, other, theirs)
    for mine, plain in zip([got.logprobs, got.entropy, *got.kl, *got.theirs], want, strict=True):
        torch.testing.assert_close(mine, plain, atol=2e-6, rtol=1e-5)


def test_gradients_are_those_of_autograd(piece: int) -> None:
    states, weight, ids, other, theirs = inputs()
    rng = torch.Generator().manual_seed(1)
    coefs = [torch.randn(len(ids), generator=rng) for _ in range(3)]
    grads = []
    for fused in (True, False):
        h, w = states.clone().requires_grad_(), weight.clone().requires_grad_()
        if fused:
            s = token_scores(h, w, ids, [Other(other, theirs)])
            parts = [s.logprobs, s.entropy, s.kl[0]]
        else:
            parts = plainly(h, w, ids, other, theirs)[:3]
        sum((c * x).sum() for c, x in zip(coefs, parts, strict=True)).backward()  # type: ignore[union-attr]
        grads.append((h.grad, w.grad))
    for mine, plain in zip(*grads, strict=True):
        assert mine is not None and plain is not None
        torch.testing.assert_close(mine, plain, atol=1e-5, rtol=1e-4)


def test_the_other_model_and_a_frozen_head_get_no_gradient() -> None:
    states, weight, ids, other, theirs = inputs()
    h, o = states.requires_grad_(), other.requires_grad_()
    s = token_scores(h, weight, ids, [Other(o, theirs)])
    assert not s.theirs[0].requires_grad
    (s.logprobs + s.kl[0]).sum().backward()
    assert h.grad is not None and o.grad is None and weight.grad is None


def test_nothing_of_tokens_times_vocabulary_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What autograd saves is linear in tokens and in the vocabulary, not in their product."""
    monkeypatch.setattr(module, "PIECE", 4096)
    n, v, h = 512, 1024, 8
    saved: list[int] = []

    def pack(t: Tensor) -> Tensor:
        saved.append(t.numel())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        states = torch.randn(n, h, requires_grad=True)
        token_scores(states, torch.randn(v, h), torch.zeros(n, dtype=torch.long))
    assert sum(saved) < n * v / 10


def test_rows_behind_a_vocabulary_of_odd_size_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPT-2's 50,257 words stand in a block of 50,304 rows: what is behind them is no word."""
    monkeypatch.setattr(module, "PIECE", 4096)
    g = torch.Generator().manual_seed(3)
    states, plain = torch.randn(70, 8, generator=g), torch.randn(101, 8, generator=g)
    ids = torch.randint(101, (70,), generator=g)
    block = torch.zeros(128, 8)
    block[:101] = plain
    filled = torch.nn.Parameter(block[:101])
    assert padded(filled) is not None and padded(plain) is None
    found = []
    for weight in (plain.requires_grad_(), filled):
        x = states.clone().requires_grad_()
        out = token_scores(x, weight, ids)
        (out.logprobs * torch.arange(70.0) + out.entropy).sum().backward()
        found.append((out.logprobs, out.entropy, x.grad, weight.grad))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
