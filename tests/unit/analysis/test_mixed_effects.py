"""The mixed model equals the classical tests where these are exact, and statsmodels elsewhere."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from scipy import stats

from tether.analysis.group_means import one_way_anova
from tether.analysis.mixed_effects import MixedEffects, mixed_effects


def crossed(y: np.ndarray, **factors: bool) -> MixedEffects:
    """y [items, methods, raters], complete."""
    items, methods, raters = y.shape
    index = [(i, m, r) for i in range(items) for m in range(methods) for r in range(raters)]
    levels = {
        "rater": [r for _, _, r in index],
        "prompt": [i for i, _, _ in index],
        "text": [(i, m) for i, m, _ in index],
    }
    return mixed_effects(
        [float(y[k]) for k in index],
        [f"m{m}" for _, m, _ in index],
        {k: v for k, v in levels.items() if factors.get(k)},
    )


def data(items: int, methods: int, raters: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(items, methods, raters))
        + 1.2 * rng.normal(size=(items, 1, 1))
        + 0.9 * rng.normal(size=(1, 1, raters))
        + 0.8 * rng.normal(size=(items, methods, 1))
        + 0.5 * np.arange(methods)[None, :, None]
    )


def test_two_methods_by_hand() -> None:
    """a = 1 3 5 7, b = 2 5 6 9 on the same prompts: differences 1 2 1 2 with mean 1.5 and s.d.
    sqrt(1/3), so t = 1.5 / (sqrt(1/3) / 2) = 3 sqrt(3) with 3 degrees of freedom, F = 27."""
    y = np.array([[1, 2], [3, 5], [5, 6], [7, 9]], dtype=float)[:, :, None]
    found = crossed(y, prompt=True)
    assert found.f == pytest.approx(27, rel=1e-6)
    assert found.df == (1, pytest.approx(3, rel=1e-4))
    (pair,) = found.differences
    assert pair.difference == pytest.approx(-1.5)
    half = 3.182446 * math.sqrt(1 / 3) / 2  # t(.975, 3) of printed tables
    assert pair.high - pair.low == pytest.approx(2 * half, rel=1e-4)
    assert pair.p == pytest.approx(stats.ttest_rel(y[:, 0, 0], y[:, 1, 0]).pvalue, rel=1e-4)
    # MS within prompts = 1/6; MS of prompts = 2 var(1.5, 4, 5.5, 8) = 89/6; half the rest
    assert found.variances["residual"] == pytest.approx(1 / 6, rel=1e-5)
    assert found.variances["prompt"] == pytest.approx((89 / 6 - 1 / 6) / 2, rel=1e-5)


def test_complete_design_equals_the_analysis_of_variance() -> None:
    """Texts (prompt x method) are random, so methods are tested against texts, not ratings."""
    items, methods, raters = 9, 4, 3
    y = data(items, methods, raters, seed=1)
    found = crossed(y, rater=True, prompt=True, text=True)
    grand = y.mean()
    ms_method = items * raters * ((y.mean((0, 2)) - grand) ** 2).sum() / (methods - 1)
    ms_item = methods * raters * ((y.mean((1, 2)) - grand) ** 2).sum() / (items - 1)
    ms_rater = items * methods * ((y.mean((0, 1)) - grand) ** 2).sum() / (raters - 1)
    text = (
        y.mean(2) - y.mean((1, 2))[:, None] - y.mean((0, 2))[None, :] + grand
    )  # interaction of prompt and method
    df_text = (items - 1) * (methods - 1)
    ms_text = raters * (text**2).sum() / df_text
    error = y - y.mean(2)[:, :, None] - y.mean((0, 1))[None, None, :] + grand
    df_error = (items * methods - 1) * (raters - 1)
    ms_error = (error**2).sum() / df_error
    assert ms_text > ms_error and ms_item > ms_text and ms_rater > ms_error  # inside the boundary
    assert found.f == pytest.approx(ms_method / ms_text, rel=1e-5)
    assert found.df == (methods - 1, pytest.approx(df_text, rel=1e-3))
    assert found.p == pytest.approx(stats.f.sf(found.f, methods - 1, df_text), rel=1e-3)
    assert found.variances == pytest.approx(
        {
            "rater": (ms_rater - ms_error) / (items * methods),
            "prompt": (ms_item - ms_text) / (methods * raters),
            "text": (ms_text - ms_error) / raters,
            "residual": ms_error,
        },
        rel=1e-4,
    )
    for d in found.differences:
        se = math.sqrt(2 * ms_text / (items * raters))
        half = stats.t.ppf(0.975, df_text) * se
        assert d.high - d.low == pytest.approx(2 * half, rel=1e-3)


def test_more_ratings_of_the_same_texts_are_no_more_texts() -> None:
    """Ten raters who all say the same: one-way ANOVA takes them for ten times the evidence."""
    y = np.repeat(data(8, 3, 1, seed=4), 10, axis=2)
    y = y + 1e-2 * np.random.default_rng(0).normal(size=y.shape)
    found = crossed(y, rater=True, prompt=True, text=True)
    alone = crossed(y.mean(2, keepdims=True), prompt=True)
    assert found.f == pytest.approx(alone.f, rel=1e-3)
    assert found.df[1] == pytest.approx(alone.df[1], rel=1e-2)
    naive = one_way_anova({f"m{m}": y[:, m].ravel() for m in range(3)})
    assert naive.p < alone.p / 10


def test_a_factor_without_variance_is_at_the_boundary() -> None:
    """Prompt means are equal, so the least-deviance variance is 0: the plain F test remains."""
    y = np.array([[1, 4], [3, 2], [2, 3]], dtype=float)[:, :, None]
    found = crossed(y, prompt=True)
    plain = one_way_anova({"m0": [1, 3, 2], "m1": [4, 2, 3]})
    assert found.variances["prompt"] == 0
    assert found.f == pytest.approx(plain.f) and found.df[1] == pytest.approx(4, rel=1e-3)
    assert found.p == pytest.approx(plain.p, rel=1e-3)


def test_factors_that_cannot_be_told_apart_are_left_out() -> None:
    y = data(6, 2, 1, seed=2)
    found = crossed(y, rater=True, prompt=True, text=True)
    assert found.left_out == ("rater", "text")  # one rater; one rating for each text
    assert set(found.variances) == {"prompt", "residual"}
    for wrong, methods, said in (
        ([1.0, 2.0], ["a", "a"], "at least 2 methods"),
        ([1.0, 1.0, 2.0, 2.0], ["a", "a", "b", "b"], "do not vary within"),
        ([1.0, 2.0], ["a"], "methods differ in length"),
    ):
        with pytest.raises(ValueError, match=said):
            mixed_effects(wrong, methods, {})


def test_without_factors_it_is_the_plain_f_test() -> None:
    y, m = [1.0, 3.0, 2.0, 4.0, 2.0, 5.0], ["a", "a", "a", "b", "b", "b"]
    found = mixed_effects(y, m, {})
    plain = one_way_anova({"a": y[:3], "b": y[3:]})
    assert found.f == pytest.approx(plain.f) and found.df[1] == pytest.approx(4, rel=1e-3)
    assert found.variances == {"residual": pytest.approx(plain.mean_square_within)}


def incomplete() -> tuple[list[float], list[str], list[int], list[int], list[tuple[int, int]]]:
    """30 prompts x 4 methods, 2 to 3 of 11 raters each."""
    rng = np.random.default_rng(5)
    prompt, rater = rng.normal(size=30), 0.7 * rng.normal(size=11)
    text = 0.6 * rng.normal(size=(30, 4))
    y, m, r, i, t = [], [], [], [], []
    for a in range(30):
        for b in range(4):
            for c in rng.choice(11, rng.integers(2, 4), replace=False):
                value = 3 + 0.3 * b + prompt[a] + rater[c] + text[a, b] + rng.normal()
                y.append(float(value))
                m.append(f"m{b}")
                r.append(int(c))
                i.append(a)
                t.append((a, b))
    return y, m, r, i, t


def test_methods_are_named_in_order_and_shifts_change_nothing() -> None:
    y, m, r, i, t = incomplete()
    factors = {"rater": r, "prompt": i, "text": t}
    a = mixed_effects(y, m, factors)
    b = mixed_effects([10 * v + 1000 for v in y], m, factors)
    assert [x.method for x in a.means] == ["m0", "m1", "m2", "m3"]
    assert b.f == pytest.approx(a.f, rel=1e-4)
    assert b.variances["text"] == pytest.approx(100 * a.variances["text"], rel=1e-3)
    assert b.means[0].mean == pytest.approx(1000 + 10 * a.means[0].mean, rel=1e-6)


def test_golden_numbers() -> None:
    """statsmodels 0.15.0, MixedLM with three variance components and REML, on `incomplete()`."""
    y, m, r, i, t = incomplete()
    assert len(y) == 293 and sum(y) == pytest.approx(836.0140166843933)
    found = mixed_effects(y, m, {"rater": r, "prompt": i, "text": t})
    means = [2.333471, 2.632175, 2.934033, 3.575866]
    assert [x.mean for x in found.means] == pytest.approx(means, abs=1e-5)
    variances = {"rater": 0.32217, "prompt": 0.67984, "text": 0.33532, "residual": 0.85589}
    assert found.variances == pytest.approx(variances, rel=1e-4)
    # standard errors: generalised least squares with the whole covariance matrix
    v = variances["residual"] * np.eye(len(y))
    for name, levels in (("rater", r), ("prompt", i), ("text", t)):
        v += variances[name] * np.array([[float(a == b) for b in levels] for a in levels])
    x = np.array([[float(a == f"m{b}") for b in range(4)] for a in m])
    covariance = np.linalg.inv(x.T @ np.linalg.solve(v, x))
    for d in found.differences:
        a, b = int(d.a[1]), int(d.b[1])
        se = math.sqrt(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
        half = (d.high - d.low) / 2
        assert half == pytest.approx(stats.t.ppf(0.975, d.df) * se, rel=1e-4)


@pytest.mark.skipif(
    importlib.util.find_spec("statsmodels") is None, reason="statsmodels is not installed"
)
def test_parity_with_statsmodels() -> None:
    import pandas as pd
    import statsmodels.formula.api as smf

    y, m, r, i, t = incomplete()
    ours = mixed_effects(y, m, {"rater": r, "prompt": i, "text": t})
    frame = pd.DataFrame(
        {"y": y, "m": m, "r": r, "i": i, "t": [f"{a}-{b}" for a, b in t], "all": 1}
    )
    parts = {"rater": "0 + C(r)", "prompt": "0 + C(i)", "text": "0 + C(t)"}
    theirs = smf.mixedlm("y ~ 0 + m", frame, groups="all", vc_formula=parts).fit(reml=True)
    for mean in ours.means:
        assert mean.mean == pytest.approx(theirs.fe_params[f"m[{mean.method}]"], abs=2e-4)
    found = dict(zip(theirs.model.exog_vc.names, theirs.vcomp, strict=True))
    for name in parts:
        assert ours.variances[name] == pytest.approx(found[name], rel=5e-3)
    assert ours.variances["residual"] == pytest.approx(theirs.scale, rel=2e-3)
    covariance = theirs.cov_params().loc["m[m0]":"m[m3]", "m[m0]":"m[m3]"].to_numpy()
    for d in ours.differences:
        a, b = int(d.a[1]), int(d.b[1])
        se = math.sqrt(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
        half = stats.t.ppf(0.975, d.df) * se
        assert d.high - d.low == pytest.approx(2 * half, rel=2e-3)
