"""Kendall's tau of a metric with people, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tether.analysis import rank_agreement as module
from tether.analysis.rank_agreement import Judged, rank_agreement


def texts(values: dict[str, list[tuple[float, float]]]) -> list[Judged]:
    """method -> (people, metric) of prompt 0, 1..."""
    return [Judged(m, i, p, x) for m, pairs in values.items() for i, (p, x) in enumerate(pairs)]


def test_over_methods_by_hand() -> None:
    """Means of people 1 2 3 4, of the metric 1 3 2 4: one of six pairs is discordant."""
    found = rank_agreement(texts({"a": [(1, 1)], "b": [(2, 3)], "c": [(3, 2)], "d": [(4, 4)]}))
    assert found.methods == 4 and found.tau_methods == pytest.approx(4 / 6)
    assert found.low is None  # one prompt: nothing to resample
    perfect = rank_agreement(texts({m: [(i, i)] for i, m in enumerate("abcd")}))
    assert perfect.tau_methods == 1 and perfect.p_methods == pytest.approx(2 / 24)


@pytest.mark.parametrize(
    ("people", "metric", "p"),
    [
        ([1, 2, 2], [1, 2, 2], 1 / 3),
        ([1, 2, 3, 3], [1, 2, 3, 4], 4 / 24),
        ([1, 2, 3, 3], [1, 2, 3, 3], 2 / 24),
        ([1, 1, 1, 1, 2], [1, 1, 1, 1, 2], 1 / 5),
        ([1, 2], [2, 1], 1.0),
    ],
)
def test_p_with_ties_by_hand(people: list[float], metric: list[float], p: float) -> None:
    """The share of orders of the metric with a tau as far from 0."""
    found = rank_agreement(
        texts({str(m): [pair] for m, pair in enumerate(zip(people, metric, strict=True))})
    )
    assert found.p_methods == pytest.approx(p)


@pytest.mark.parametrize("methods", range(2, 11))
def test_p_without_ties_is_scipys_exact_one(methods: int) -> None:
    rng = np.random.default_rng(methods)
    for _ in range(5):
        people, metric = rng.permutation(methods), rng.permutation(methods)
        found = rank_agreement(texts({str(m): [(people[m], metric[m])] for m in range(methods)}))
        exact = stats.kendalltau(people, metric, method="exact")
        assert found.tau_methods == pytest.approx(exact.statistic)
        assert found.p_methods == pytest.approx(exact.pvalue)


def test_p_of_many_methods_with_ties_is_scipys() -> None:
    people = [1, 2, 2, 3, 4, 5, 6, 7, 8]
    found = rank_agreement(texts({str(m): [(p, m)] for m, p in enumerate(people)}))
    assert found.p_methods == stats.kendalltau(people, range(9)).pvalue


def test_over_texts_with_ties_by_hand() -> None:
    """People 1 1 2 3, metric 1 2 2 3: of 6 pairs one tied in each, 4 concordant: 4 / 5."""
    found = rank_agreement(texts({"a": [(1, 1), (1, 2)], "b": [(2, 2), (3, 3)]}))
    assert found.texts == 4 and found.tau_texts == pytest.approx(4 / 5)
    assert found.low is not None and found.low - 1e-9 <= found.tau_texts <= found.high <= 1


def test_a_metric_may_be_right_on_methods_and_blind_within_them() -> None:
    """All 9 pairs between methods are concordant, all 6 within them discordant."""
    rows = {
        "a": [(p, 2 - p) for p in (0, 1, 2)],
        "b": [(10 + p, 12 - p) for p in (0, 1, 2)],
    }
    found = rank_agreement(texts(rows))
    assert found.tau_methods == 1
    assert found.tau_texts == pytest.approx((9 - 6) / 15)


def test_the_interval_is_that_of_scipy_on_resampled_prompts(monkeypatch) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 200)
    rng = np.random.default_rng(0)
    people, metric = rng.integers(1, 6, (2, 15, 3)).astype(float)
    metric += people
    rows = [Judged(f"m{j}", i, people[i, j], metric[i, j]) for i in range(15) for j in range(3)]
    found = rank_agreement(rows, seed=7)
    drawn = np.random.default_rng(7).multinomial(15, np.full(15, 1 / 15), 200)
    taus = []
    for w in drawn:
        index = np.repeat(np.arange(15), w)
        taus.append(stats.kendalltau(people[index].ravel(), metric[index].ravel()).statistic)
    low, high = np.quantile(taus, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=1e-9) and found.high == pytest.approx(high, abs=1e-9)


def test_a_constant_metric_has_no_rank() -> None:
    found = rank_agreement(texts({"a": [(1, 5), (2, 5)], "b": [(3, 5), (4, 5)]}))
    assert found.tau_methods is None and found.tau_texts is None and found.low is None
    with pytest.raises(ValueError, match="needs texts"):
        rank_agreement([])
