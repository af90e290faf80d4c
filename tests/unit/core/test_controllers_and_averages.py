"""Formulas with plain numbers (controllers: fault B12; kept fractions: parity)."""

import pytest

from tether.core.averages import half_life_decay, kept_fraction, trajectory_weight
from tether.core.controllers import ziegler


def test_kept_fraction_by_hand() -> None:
    """d .5, two averagings of displacements 1, 2: e = .5 (.5) + .5 (2) = 1.25 of 2."""
    assert kept_fraction(0.5, 2) == pytest.approx(1.25 / 2)
    assert trajectory_weight(0.5, 2) == 0.75
    assert kept_fraction(1.0, 5) == 0 and kept_fraction(0.0, 5) == 1


def test_half_life_by_hand() -> None:
    assert half_life_decay(10, 10) == 0.5
    assert half_life_decay(10, 0) == 1.0
    assert half_life_decay(10, 5) ** 2 == pytest.approx(0.5)


def test_ziegler_is_linear_inside_and_clipped_outside() -> None:
    assert ziegler(1.0, 6.0, 6, 100, 1000) == 1.0
    assert ziegler(1.0, 6.6, 6, 100, 1000) == pytest.approx(1.01)
    assert ziegler(1.0, 1e9, 6, 100, 1000) == pytest.approx(1.02)
