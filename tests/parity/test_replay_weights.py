"""Replay by hand: truncated weights (V-trace's, arXiv 1802.01561), advantages and effective sample
size of two completions whose probabilities are simple fractions.

| | pi / mu of its tokens | score | score above the mean / deviation |
|---|---|---|---|
| first | 1/2, 3, 1 | 5 | (5 - 3) / 2 = 1 |
| second | 1/4 | 1 | (1 - 3) / 2 = -1 |
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.contracts.examples import experience
from tether.core.masking import local, token_weights
from tether.tethers.replay import Replay
from tether.types import Clock, Measured, OwnText, Scores

MASK = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)
MU = torch.tensor([[1 / 2, 1 / 4, 1 / 8], [1 / 2, 0.0, 0.0]])
PI = torch.tensor([[1 / 4, 3 / 4, 1 / 8], [1 / 8, 0.0, 0.0]])
RATIO = torch.tensor([[1 / 2, 3.0, 1.0], [1 / 4, 0.0, 0.0]])


def logs(p: torch.Tensor) -> torch.Tensor:
    return torch.where(MASK, p.clamp(min=1e-30).log(), float("nan"))


def replayed(**settings: Any) -> tuple[Replay, OwnText]:
    """One update written, the next one under way."""
    e = experience(MASK)
    e = replace(
        e,
        old=Scores(logs(MU), logs(MU)),
        score=torch.tensor([5.0, 1.0]),
    )
    tether = Replay(share=1.0, **settings)
    tether.seen(e)
    tether.after("update", Clock(update=1), Measured())
    text = tether.own_text(Clock(update=1), None)
    assert text is not None
    first = text.extra["advantage"].argsort(descending=True)
    return tether, text.rows(first)


def loss_of(tether: Replay, text: OwnText) -> tuple[Any, dict[str, float], torch.Tensor]:
    now = logs(PI).requires_grad_()
    assert text.mask is not None and torch.equal(text.mask, MASK)
    weights = token_weights(text.mask, "tokens", local)
    out = tether.own_loss(text, weights, Scores(now, now))
    out.loss.backward()
    sums = {k: float(v) for k, v in out.metrics.items()}
    assert now.grad is not None
    return float(out.loss.detach()), dict(tether.summary(sums)), now.grad


def test_the_table_is_right() -> None:
    assert torch.equal(torch.where(MASK, PI / MU.clamp(min=1e-9), 0.0), RATIO)


def test_advantages() -> None:
    """Mean 3 and population deviation 2 of the update that wrote; whole groups, kept or not."""
    _, text = replayed()
    assert text.extra["advantage"].tolist() == pytest.approx([1.0, -1.0])
    e = replace(experience(), score=torch.tensor([0.0, 6.0, 3.0]))  # mean 3, variance 6
    tether = Replay(share=0.3)
    tether.seen(e)
    assert tether.kept["score"].tolist() == [6.0]
    assert tether.kept["advantage"].tolist() == pytest.approx([3 / math.sqrt(6)])


def test_one_weight_a_token() -> None:
    """Weights 1/2, min(1, 3) = 1, 1 and 1/4; each token counts a quarter.

    loss = - (1/2 log 1/4 + 1 log 3/4 + 1 log 1/8 - 1/4 log 1/8) / 4
    effective tokens = (11/4)^2 / (1/4 + 1 + 1 + 1/16) = 121/37
    """
    loss, metrics, gradient = loss_of(*replayed(coef=2.0))
    hand = -(0.5 * math.log(1 / 4) + math.log(3 / 4) + 0.75 * math.log(1 / 8)) / 4
    assert loss == pytest.approx(2 * hand, rel=1e-6)
    wanted = torch.tensor([[-0.125, -0.25, -0.25], [0.0625, 0.0, 0.0]])
    torch.testing.assert_close(gradient, 2 * wanted)
    assert metrics == pytest.approx(
        {
            "loss": hand,
            "weight.mean": 11 / 16,
            "truncated_share": 1 / 4,
            "effective_tokens": 121 / 37,
            "effective_share": 121 / 148,
        },
        rel=1e-6,
    )


def test_another_bound() -> None:
    """c = 2: weights 1/2, 2, 1 and 1/4."""
    _, metrics, gradient = loss_of(*replayed(coef=1.0, truncate=2.0))
    torch.testing.assert_close(gradient[0], -torch.tensor([0.5, 2.0, 1.0]) / 4)
    assert metrics["effective_tokens"] == pytest.approx(3.75**2 / 5.3125, rel=1e-6)


def test_one_weight_a_sequence() -> None:
    """Products 3/2 -> 1 and 1/4; effective sequences = (5/4)^2 / (17/16) = 25/17."""
    _, metrics, gradient = loss_of(*replayed(coef=1.0, weights="sequence"))
    torch.testing.assert_close(gradient, torch.tensor([[-0.25] * 3, [0.0625, 0.0, 0.0]]))
    assert metrics == pytest.approx(
        {
            "loss": -(math.log(1 / 4) + math.log(3 / 4) + 0.75 * math.log(1 / 8)) / 4,
            "weight.mean": 5 / 8,
            "truncated_share": 1 / 2,
            "effective_sequences": 25 / 17,
            "effective_share": 25 / 34,
        },
        rel=1e-6,
    )


def test_supervised_is_the_mean_nll_of_the_free_distribution() -> None:
    tether, text = replayed(coef=1.0, mode="supervised")
    loss, metrics, gradient = loss_of(tether, text)
    hand = -(math.log(1 / 4) + math.log(3 / 4) + 2 * math.log(1 / 8)) / 4
    assert (loss, metrics) == (pytest.approx(hand), {"nll": pytest.approx(hand)})
    torch.testing.assert_close(gradient, torch.where(MASK, -0.25, 0.0))
    free = logs(PI).requires_grad_()
    tether.own_loss(
        text, token_weights(MASK, "tokens", local), Scores(torch.full_like(free, 9.0), free)
    ).loss.backward()
    assert free.grad is not None and torch.equal(free.grad, gradient)
    assert "allowed" not in tether.kept


def test_an_impossible_token_is_cut_before_the_exponent() -> None:
    tether, text = replayed()
    now = torch.where(MASK, 200.0, 0.0).requires_grad_()
    out = tether.own_loss(text, token_weights(MASK, "tokens", local), Scores(now, now))
    assert all(bool(torch.isfinite(v)) for v in (out.loss, *out.metrics.values()))
    assert tether.summary({k: float(v) for k, v in out.metrics.items()})["effective_share"] == 1.0
