"""Krippendorff's alpha: his own tables, a calculation by hand, and what a bootstrap must do."""

from __future__ import annotations

import importlib.util
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.analysis.agreement import LEVELS, krippendorff_alpha

N = None
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
    [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
]
"""4 observers x 12 units, values missing: Krippendorff, Computing Krippendorff's Alpha-Reliability
(2011), example C."""
UNITS = [list(u) for u in zip(*OBSERVERS, strict=True)]


@pytest.mark.parametrize(
    ("level", "printed"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_the_published_table(level, printed: float) -> None:
    found = krippendorff_alpha(UNITS, level)
    assert found.alpha == pytest.approx(printed, abs=5e-4)
    assert (found.units, found.values) == (11, 40)  # the last unit has one value
    assert found.low is not None and found.low < found.alpha < found.high


def test_the_published_binary_table() -> None:
    """Example A of the same text: 2 observers, 10 units, alpha .095."""
    a, b = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    found = krippendorff_alpha(list(zip(a, b, strict=True)), "nominal")
    assert found.alpha == pytest.approx(0.095, abs=5e-4)


def test_by_hand() -> None:
    """Units 1-2, 1-1, 2-2: o_12 = o_21 = 1, o_11 = o_22 = 2; D_o = 2/6, D_e = 2 * 9 / 30."""
    for level in LEVELS[::2]:
        assert krippendorff_alpha([[1, 2], [1, 1], [2, 2]], level).alpha == pytest.approx(4 / 9)
    # ordinal: n_1 = n_2 = 3, d = (3 + 3 - 3)^2 = 9 in both sums, so the same
    assert krippendorff_alpha([[1, 2], [1, 1], [2, 2]], "ordinal").alpha == pytest.approx(4 / 9)


def test_perfect_and_undefined() -> None:
    assert krippendorff_alpha([[1, 1], [2, 2, 2]], "interval").alpha == 1.0
    same = krippendorff_alpha([[3, 3], [3, 3]], "nominal")
    assert same.alpha is None and same.low is None and same.high is None
    with pytest.raises(ValueError, match="two people have rated"):
        krippendorff_alpha([[1], [2, None]], "nominal")
    with pytest.raises(ValueError, match="2 units have 1 clusters"):
        krippendorff_alpha([[1, 1], [2, 2]], "nominal", clusters=["a"])


rows = st.lists(
    st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=2, max_size=4),
    min_size=2,
    max_size=8,
).filter(lambda u: any(sum(v is not None for v in row) > 1 for row in u))


@settings(max_examples=60, deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_order_of_units_and_raters_does_not_matter(units, rng: random.Random) -> None:
    mixed = [rng.sample(u, len(u)) for u in rng.sample(units, len(units))]
    for level in LEVELS:
        a = krippendorff_alpha(units, level, resamples=1).alpha
        b = krippendorff_alpha(mixed, level, resamples=1).alpha
        assert a == (None if b is None else pytest.approx(b, abs=1e-12))
        assert a is None or a <= 1


def test_random_ratings_agree_by_chance() -> None:
    rng = random.Random(0)
    units = [[rng.randint(1, 5) for _ in range(3)] for _ in range(400)]
    for level in LEVELS:
        found = krippendorff_alpha(units, level)
        assert found.low < 0 < found.high and found.high - found.low < 0.15


def test_clusters_widen_the_interval() -> None:
    """Five copies of each unit of one prompt tell no more than one."""
    rng = random.Random(1)
    units = []
    for i in range(40):
        row = [rng.randint(1, 5)] * 2 if rng.random() < 0.6 else [1, 5]
        units += [(i, row)] * 5
    one = krippendorff_alpha([u for _, u in units], "interval", seed=3)
    many = krippendorff_alpha(
        [u for _, u in units], "interval", seed=3, clusters=[i for i, _ in units]
    )
    assert one.alpha == many.alpha
    ratio = (many.high - many.low) / (one.high - one.low)
    assert 1.8 < ratio < 2.7  # sqrt(5) = 2.24
    assert many == krippendorff_alpha(
        [u for _, u in units], "interval", seed=3, clusters=[i for i, _ in units]
    )


@pytest.mark.skipif(
    importlib.util.find_spec("krippendorff") is None,
    reason="krippendorff (GPL, never a dependency) is not installed",
)
def test_parity_with_the_package_krippendorff() -> None:
    import krippendorff
    import numpy as np

    rng = np.random.default_rng(0)
    data = rng.integers(1, 6, size=(4, 30)).astype(float)
    data[rng.random(data.shape) < 0.3] = np.nan
    for level in LEVELS:
        theirs = krippendorff.alpha(data, level_of_measurement=level)
        assert krippendorff_alpha(data.T.tolist(), level).alpha == pytest.approx(theirs, abs=1e-12)
