"""Clipped surrogate and value loss, one hand-made token per case."""

import math

import pytest
import torch

from tether.core.losses import clipped_policy_loss, value_loss


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 2.0, -2.4, True),
        (1.5, -2.0, 3.0, False),
        (0.5, 2.0, -1.0, False),
        (0.5, -2.0, 1.6, True),
    ],
)
def test_clip_by_hand(ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    new = torch.tensor([math.log(ratio)], requires_grad=True)
    old = torch.zeros(1)
    out, r, acts = clipped_policy_loss(new, old, torch.tensor([advantage]), 0.2)
    assert float(out.detach()) == pytest.approx(loss, abs=1e-6)
    assert float(r.detach()) == pytest.approx(ratio, abs=1e-6)
    assert bool(acts) == clipped
    out.backward()
    assert new.grad is not None
    assert float(new.grad) == pytest.approx(0 if clipped else -advantage * ratio, abs=1e-5)


def test_an_impossible_token_stays_finite() -> None:
    out, ratio, _ = clipped_policy_loss(
        torch.zeros(1), torch.tensor([-3e38]), torch.tensor([-1.0]), 0.2
    )
    assert torch.isfinite(out).all() and torch.isfinite(ratio).all()


def test_value_loss_by_hand() -> None:
    """V 1, R 0, V_old 0, c .2: free .5; clipped V .2 gives .02; the larger one counts."""
    v, r, old = torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([0.0])
    assert float(value_loss(v, r)) == 0.5
    assert float(value_loss(v, r, old, 0.2)) == 0.5
    away = torch.tensor([2.0])
    assert float(value_loss(v, away, old, 0.2)) == pytest.approx(1.62)
    with pytest.raises(ValueError, match="needs the values at the start"):
        value_loss(v, r, None, 0.2)
