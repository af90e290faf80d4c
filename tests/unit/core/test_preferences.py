"""Bradley-Terry by hand: loss, gradient, margin, and a rater's probability."""

from __future__ import annotations

import math

import pytest
import torch

from tether.core.preferences import bradley_terry_loss, preference_probability


def test_loss_by_hand() -> None:
    # differences 0, log 3, -log 3: sigmoid 1/2, 3/4, 1/4
    chosen = torch.tensor([1.0, math.log(3.0), 0.0])
    rejected = torch.tensor([1.0, 0.0, math.log(3.0)])
    want = torch.tensor([math.log(2), math.log(4 / 3), math.log(4)])
    torch.testing.assert_close(bradley_terry_loss(chosen, rejected), want)


def test_gradient_by_hand() -> None:
    # d loss / d chosen = -(1 - sigmoid(difference)): -1/2 at 0, -1/4 at log 3
    chosen = torch.tensor([0.0, math.log(3.0)], requires_grad=True)
    rejected = torch.zeros(2, requires_grad=True)
    bradley_terry_loss(chosen, rejected).sum().backward()
    torch.testing.assert_close(chosen.grad, torch.tensor([-0.5, -0.25]))
    torch.testing.assert_close(rejected.grad, torch.tensor([0.5, 0.25]))


def test_a_margin_asks_for_more() -> None:
    chosen, rejected = torch.tensor([math.log(3.0)]), torch.zeros(1)
    got = bradley_terry_loss(chosen, rejected, torch.tensor([math.log(3.0)]))
    torch.testing.assert_close(got, torch.tensor([math.log(2)]))


def test_gradient_with_a_margin_by_hand() -> None:
    # d loss / d chosen = -sigmoid(margin - difference), at margin - difference log 3, 0, -log 3
    chosen = torch.tensor([0.0, math.log(3.0), math.log(9.0)], requires_grad=True)
    rejected = torch.zeros(3, requires_grad=True)
    margin = torch.full((3,), math.log(3.0), requires_grad=True)
    bradley_terry_loss(chosen, rejected, margin).sum().backward()
    torch.testing.assert_close(chosen.grad, torch.tensor([-0.75, -0.5, -0.25]))
    torch.testing.assert_close(rejected.grad, torch.tensor([0.75, 0.5, 0.25]))
    torch.testing.assert_close(margin.grad, torch.tensor([0.75, 0.5, 0.25]))


def test_far_differences_stay_finite() -> None:
    got = bradley_terry_loss(torch.tensor([-1e4, 1e4]), torch.tensor([0.0, 0.0]))
    torch.testing.assert_close(got, torch.tensor([1e4, 0.0]))


def test_a_raters_probability() -> None:
    assert preference_probability(math.log(3), 0, 1) == pytest.approx(0.75)
    assert preference_probability(2 * math.log(3), 0, 2) == pytest.approx(0.75)
    assert preference_probability(0, math.log(3), 1) == pytest.approx(0.25)
    assert [preference_probability(a, 1, 0) for a in (0, 1, 2)] == [0, 0.5, 1]
    assert preference_probability(1e6, 0, 1e-6) == 1
    for bad in ((math.nan, 0, 1), (0, math.inf, 1), (0, 0, -1)):
        with pytest.raises(ValueError, match="give no preference"):
            preference_probability(*bad)
