"""Means and intervals over seeds, by hand."""

from __future__ import annotations

import math

import pytest

from tether.analysis.intervals import (
    bootstrap_t_interval,
    mean_curve,
    paired_interval,
    summarise,
    t_interval,
)


def test_t_interval_by_hand() -> None:
    # 1..5: mean 3, s = sqrt(2.5), t(.975, 4) = 2.776445 -> half-width 1.963243
    low, high = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (low, high) == (pytest.approx(3 - 1.963243, abs=1e-6), pytest.approx(4.963243, abs=1e-6))
    with pytest.raises(ValueError, match="at least 2"):
        t_interval([1.0])


def test_no_interval_below_five_seeds() -> None:
    four = summarise([1.0, 2.0, 3.0, 4.0])
    assert (four.mean, four.low, four.high) == (2.5, None, None)
    assert four.values == (1.0, 2.0, 3.0, 4.0)
    five = summarise([1.0, 2.0, 3.0, 4.0, 5.0])
    assert five.low is not None and five.low == pytest.approx(1.036757, abs=1e-6)


def test_what_cannot_be_summarised() -> None:
    with pytest.raises(ValueError, match="no seed"):
        summarise([])
    with pytest.raises(ValueError, match="not finite"):
        summarise([1.0, math.nan])


def test_paired_interval_is_that_of_the_differences() -> None:
    a, b = [0.7, 0.8, 0.9], [0.6, 0.8, 0.7]
    assert paired_interval(a, b) == pytest.approx(t_interval([0.1, 0.0, 0.2]))
    with pytest.raises(ValueError, match="same seeds"):
        paired_interval(a, b[:2])


def test_curves_use_the_updates_that_every_seed_has() -> None:
    curve = mean_curve([{0: 1.0, 5: 2.0, 7: 9.0}, {0: 3.0, 5: 6.0}])
    assert [(u, s.mean, s.values) for u, s in curve] == [
        (0, 2.0, (1.0, 3.0)),
        (5, 4.0, (2.0, 6.0)),
    ]
    assert mean_curve([]) == []


def test_bootstrap_t_of_equal_values_is_the_value() -> None:
    assert bootstrap_t_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
    with pytest.raises(ValueError, match="at least 3"):
        bootstrap_t_interval([1.0, 2.0])


def test_bootstrap_t_leans_to_the_long_tail() -> None:
    """The mean of right-skewed data is underestimated more often: its upper side is wider."""
    skewed = [0.0, 0.1, 0.2, 0.4, 0.9, 2.5, 0.05, 0.3]
    mean = sum(skewed) / len(skewed)
    low, high = bootstrap_t_interval(skewed)
    assert high - mean > mean - low > 0
    assert (low, high) == bootstrap_t_interval(skewed)  # seeded
