"""The statistics of `tether.analysis` computed a second way: scipy, statistics tables, brute force.

Expected figures of the evaluation protocol: half-width of a 95 % t-interval at n = 10 is .72 s.d.;
smallest two-sided sign-flip p is .0625 at n = 5 and .002 at n = 10; the percentile bootstrap
covers too little at these n, the bootstrap-t does not.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tether.analysis.comparisons import compare_all, equivalent, sign_flip_p
from tether.analysis.intervals import bootstrap_t_interval, paired_interval, t_interval
from tether.analysis.power import detectable, power

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_t_interval_equals_scipy(n: int) -> None:
    x = RNG.normal(size=n)
    expected = stats.t.interval(0.9, n - 1, loc=x.mean(), scale=stats.sem(x))
    assert t_interval(list(x), 0.9) == pytest.approx(expected)


def test_paired_interval_equals_scipy() -> None:
    a, b = RNG.normal(size=8), RNG.normal(size=8)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert paired_interval(list(a), list(b)) == pytest.approx(tuple(expected))


def test_half_width_at_ten_seeds() -> None:
    x = RNG.normal(size=10)
    low, high = t_interval(list(x))
    assert (high - low) / 2 / x.std(ddof=1) == pytest.approx(0.715, abs=5e-4)


@pytest.mark.parametrize("n", [3, 6, 9])
def test_sign_flip_equals_scipy_and_brute_force(n: int) -> None:
    d = RNG.normal(0.4, 1.0, size=n)
    patterns = [
        abs(sum(s * v for s, v in zip(signs, d, strict=True))) >= abs(d.sum()) - 1e-12
        for signs in itertools.product((1, -1), repeat=n)
    ]
    assert sign_flip_p(list(d)) == pytest.approx(sum(patterns) / len(patterns))
    theirs = stats.permutation_test(
        (d,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flip_p(list(d)) == pytest.approx(theirs.pvalue)


def test_smallest_p() -> None:
    assert sign_flip_p([0.1, 0.2, 0.3, 0.4, 0.5]) == 0.0625
    assert sign_flip_p([0.1] * 10) == pytest.approx(0.002, abs=1e-4)


def test_equivalence_is_two_one_sided_tests() -> None:
    for _ in range(50):
        d = RNG.normal(0.0, 0.01, size=7)
        lower = stats.ttest_1samp(d, -0.008, alternative="greater").pvalue
        upper = stats.ttest_1samp(d, 0.008, alternative="less").pvalue
        assert equivalent(list(d), 0.008) == (max(lower, upper) < 0.05)


@pytest.mark.parametrize(("n", "declared"), [(6, 1), (7, 3), (8, 2), (8, 6), (10, 1)])
def test_power_is_the_share_of_studies_that_say_better(n: int, declared: int) -> None:
    """Whole studies, verdicts and all: one true difference, the others show nothing."""
    effect = detectable(2.0, n, declared)
    assert effect is not None
    assert power(effect / 2.0, n, declared) == pytest.approx(0.80, abs=1e-3)
    nothing = ([0.5, -0.5] * n)[:n], [0.0] * n
    said = 0
    for draws in RNG.normal(effect, 2.0, size=(1_500, n)):
        pairs = {"true": (list(draws), [0.0] * n)} | {str(i): nothing for i in range(declared - 1)}
        said += compare_all(pairs)["true"].verdict == "better"
    assert said / 1_500 == pytest.approx(0.80, abs=0.035)


def test_power_of_many_pairs_is_that_of_the_t_test() -> None:
    """From some ten pairs on the sign-flip test takes little; above 13 subsets are drawn."""
    for n in (12, 13, 14, 20):
        effect = 3.0 / n**0.5
        exact = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, 3.0)
        assert exact - 0.05 < power(effect, n) < exact + 0.015


def test_bootstrap_t_equals_enumeration_at_three() -> None:
    x = [0.2, 0.5, 1.1]
    mean, se = np.mean(x), np.std(x, ddof=1) / 3**0.5
    t = [
        (np.mean(y) - mean) / (np.std(y, ddof=1) / 3**0.5)
        for y in itertools.product(x, repeat=3)
        if len(set(y)) > 1
    ]
    low, high = np.quantile(t, [0.025, 0.975])
    assert bootstrap_t_interval(x) == pytest.approx((mean - high * se, mean - low * se))


def test_bootstrap_t_covers_where_the_percentile_bootstrap_does_not() -> None:
    n, truth, studies = 5, 0.0, 400
    hit = percentile = 0
    index = np.random.default_rng(0).integers(0, n, size=(500, n))
    for x in RNG.normal(truth, 1.0, size=(studies, n)):
        low, high = bootstrap_t_interval(list(x))
        hit += low <= truth <= high
        a, b = np.quantile(x[index].mean(1), [0.025, 0.975])
        percentile += a <= truth <= b
    assert hit / studies >= 0.93
    assert percentile / studies <= 0.92


def test_false_verdicts_are_rare_when_nothing_differs() -> None:
    """Family-wise error of six primary comparisons under the null stays near 5 %."""
    wrong = 0
    for _ in range(200):
        pairs = {str(i): (list(RNG.normal(size=8)), list(RNG.normal(size=8))) for i in range(6)}
        wrong += any(c.verdict in ("better", "worse") for c in compare_all(pairs).values())
    assert wrong / 200 <= 0.09
