"""One-way ANOVA and Tukey's HSD: by hand, against printed quantiles, and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tether.analysis.group_means import one_way_anova, tukey_hsd, tukey_p

BY_HAND = {"a": [1, 2, 3], "b": [2, 3, 4], "c": [5, 6, 7]}
"""Means 2, 3, 6; grand mean 11/3. Between: 3 (25 + 4 + 49) / 9 = 26 with 2 df. Within: 3 * 2 = 6
with 6 df. F = 13 / 1."""


def test_f_by_hand() -> None:
    found = one_way_anova(BY_HAND)
    assert found.f == pytest.approx(13)
    assert (found.df_between, found.df_within) == (2, 6)
    assert found.mean_square_within == pytest.approx(1)
    # with 2 numerator df the F tail has a closed form: (1 + 2 F / d)^(-d / 2)
    assert found.p == pytest.approx((1 + 2 * 13 / 6) ** -3)


def test_tukey_by_hand() -> None:
    """q(.05; 3, 6) = 4.339 in printed tables; the standard error is sqrt(1 / 3)."""
    found = {(t.a, t.b): t for t in tukey_hsd(BY_HAND)}
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    pair = found["a", "c"]
    assert pair.difference == pytest.approx(-4)
    assert pair.high - pair.difference == pytest.approx(4.339 * math.sqrt(1 / 3), abs=1e-3)
    assert tukey_p(4.339 * math.sqrt(1 / 3), 1.0, (3, 3), 3, 6) == pytest.approx(0.05, abs=1e-4)


def test_of_two_groups_tukey_is_the_t_test() -> None:
    x, y = [1.0, 2.5, 3.0, 4.0], [2.0, 4.5, 5.0]
    (pair,) = tukey_hsd({"x": x, "y": y})
    assert pair.p == pytest.approx(stats.ttest_ind(x, y).pvalue, rel=1e-6)


@pytest.mark.parametrize("sizes", [(20, 20, 20, 20), (5, 12, 30)])
def test_equal_to_scipy(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(sizes))
    groups = {f"g{i}": rng.integers(1, 6, n) + 0.4 * i for i, n in enumerate(sizes)}
    f, p = stats.f_oneway(*groups.values())
    found = one_way_anova(groups)
    assert found.f == pytest.approx(f, rel=1e-12) and found.p == pytest.approx(p, rel=1e-10)
    theirs = stats.tukey_hsd(*groups.values())
    limits = theirs.confidence_interval(0.95)
    names = list(groups)
    for pair in tukey_hsd(groups):
        i, j = names.index(pair.a), names.index(pair.b)
        assert pair.difference == pytest.approx(theirs.statistic[i, j], rel=1e-12)
        assert pair.p == pytest.approx(theirs.pvalue[i, j], abs=1e-10)
        assert pair.low == pytest.approx(limits.low[i, j], abs=1e-8)
        assert pair.high == pytest.approx(limits.high[i, j], abs=1e-8)


def test_what_cannot_be_tested() -> None:
    with pytest.raises(ValueError, match="at least 2 groups"):
        one_way_anova({"a": [1, 2]})
    with pytest.raises(ValueError, match="group 'b' has no value"):
        one_way_anova({"a": [1, 2], "b": []})
    with pytest.raises(ValueError, match="a group with at least 2 values"):
        one_way_anova({"a": [1], "b": [2]})
    flat = one_way_anova({"a": [1, 1], "b": [2, 2]})
    assert flat.f is None and flat.p is None
    assert [t.p for t in tukey_hsd({"a": [1, 1], "b": [1, 1], "c": [2, 2]})] == [1.0, 0.0, 0.0]
