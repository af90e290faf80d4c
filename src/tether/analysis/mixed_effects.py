"""Ratings as a linear mixed model: a fixed mean for each method, random raters, prompts and texts.

    y = mean(method) + rater + prompt + text + noise

A text rated by three people is one text, not three. The model is fitted by restricted maximum
likelihood with crossed random intercepts, in the profiled form of lme4; degrees of freedom are
Satterthwaite's, so with complete balanced data the tests are the classical ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, stats

from tether.analysis.comparisons import holm

Array = NDArray[np.float64]
_STARTS = (-2.0, 2.0)
"""Log variance ratios from which the search begins."""
_RANGE = (-16.0, 20.0)
_SAME = 1e-6
"""Deviances closer than this are equal."""
_STEP = 1e-3
"""Of the log variances, in the finite differences of the likelihood."""


@dataclass(frozen=True)
class MethodMean:
    method: str
    mean: float
    low: float
    high: float
    """95 %."""
    df: float


@dataclass(frozen=True)
class MeanDifference:
    """a - b, with its own 95 % interval."""

    a: str
    b: str
    difference: float
    low: float
    high: float
    df: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class MixedEffects:
    means: tuple[MethodMean, ...]
    differences: tuple[MeanDifference, ...]
    f: float
    """All means equal."""
    df: tuple[float, float]
    p: float
    variances: dict[str, float]
    """Variance of each random factor, and of `residual`."""
    left_out: tuple[str, ...]
    """Factors that the data cannot tell from another or from the residual."""
    ratings: int


def mixed_effects(
    ratings: Sequence[float], methods: Sequence[str], factors: Mapping[str, Sequence[Hashable]]
) -> MixedEffects:
    """Fit and test.

        REML deviance = log|V / s2| + log|X' V^-1 X s2| + (n - p) log s2 + r' V^-1 r

    profiled over the residual variance s2 and the means; V = s2 (I + sum_k ratio_k Z_k Z_k').
    The F test of all means has Fai and Cornelius' denominator degrees of freedom.

    Source: Bates et al., Journal of Statistical Software 67 (2015), eqs. 30-42; Kuznetsova et al.,
    the same 82 (2017), for the degrees of freedom.

    Args:
        ratings: [n]
        methods: [n] of which every one is a fixed mean.
        factors: name -> [n] level of each rating, e.g. rater, prompt, text. A factor with one
            level, with a level for each rating, or with the same grouping as an earlier one or as
            the methods, is left out.
    Raises:
        ValueError: unequal lengths, fewer than 2 methods, or ratings that do not vary within them.
    """
    wrong = next((k for k, v in factors.items() if len(v) != len(ratings)), None)
    if wrong is not None or len(methods) != len(ratings):
        raise ValueError(f"ratings and {wrong or 'methods'} differ in length")
    names = list(dict.fromkeys(methods))
    if len(names) < 2:
        raise ValueError("a comparison needs ratings of at least 2 methods")
    kept, left_out = _usable(methods, factors)
    model = _Model(np.asarray(ratings, dtype=np.float64), _codes(methods), list(kept.values()))
    if model.least_residual() <= 1e-12:
        raise ValueError("ratings do not vary within the methods")
    fit = _Fit.of(model)
    means, differences = _compare(fit, names)
    f, df2, p = _f_test(fit)
    variances = {k: float(r * fit.s2) for k, r in zip(kept, fit.ratios, strict=True)}
    return MixedEffects(
        means=means,
        differences=differences,
        f=f,
        df=(len(names) - 1, df2),
        p=p,
        variances={**variances, "residual": fit.s2},
        left_out=left_out,
        ratings=len(ratings),
    )


def _codes(levels: Sequence[Hashable]) -> NDArray[np.int64]:
    index = {v: i for i, v in enumerate(dict.fromkeys(levels))}
    return np.array([index[v] for v in levels], dtype=np.int64)


def _usable(
    methods: Sequence[str], factors: Mapping[str, Sequence[Hashable]]
) -> tuple[dict[str, NDArray[np.int64]], tuple[str, ...]]:
    kept: dict[str, NDArray[np.int64]] = {}
    seen = {_codes(methods).tobytes()}
    for name, levels in factors.items():
        codes = _codes(levels)
        count = int(codes.max()) + 1
        if 1 < count < len(codes) and codes.tobytes() not in seen:
            seen.add(codes.tobytes())
            kept[name] = codes
    return kept, tuple(n for n in factors if n not in kept)


class _Model:
    """Cross-products of the design; everything after them is small.

    The factor with the most levels has a diagonal block and is eliminated first, so the cost is
    that of the other factors: with 3 ratings of 900 texts by 50 people, matrices of 150.
    """

    def __init__(
        self, y: Array, method: NDArray[np.int64], factors: list[NDArray[np.int64]]
    ) -> None:
        self.n, self.p, self.factors = len(y), int(method.max()) + 1, len(factors)
        x = np.eye(self.p)[method]
        w = np.column_stack([x, y - y.mean()])  # centred: smaller numbers, same differences
        self.centre = float(y.mean())
        self.ww = w.T @ w
        sizes = [int(f.max()) + 1 for f in factors]
        self.order = sorted(range(len(factors)), key=lambda k: -sizes[k])
        z = [_indicator(factors[k], sizes[k]) for k in self.order]
        self.owner = np.repeat(self.order[1:], [sizes[k] for k in self.order[1:]]).astype(np.int64)
        if z:
            rest = np.column_stack(z[1:]) if len(z) > 1 else np.zeros((self.n, 0))
            self.first = z[0].sum(0)
            self.first_w, self.rest_w = z[0].T @ w, rest.T @ w
            self.cross, self.rest = rest.T @ z[0], rest.T @ rest

    def least_residual(self) -> float:
        """Mean square within methods."""
        return float(self.residual(self.ww)) / self.n

    def reduced(self, ratios: Array) -> tuple[float, Array]:
        """log|I + sum ratio Z Z'| and [X y]' (I + sum ratio Z Z')^-1 [X y]."""
        if not self.factors:
            return 0.0, self.ww
        root = np.sqrt(ratios)
        one = float(root[self.order[0]])
        other = root[self.owner]
        d = 1 + one**2 * self.first
        b1 = one * self.first_w
        br = other[:, None] * self.rest_w
        cross = other[:, None] * self.cross * one
        s = np.eye(len(other)) + np.outer(other, other) * self.rest - (cross / d) @ cross.T
        br = br - (cross / d) @ b1
        lower = linalg.cholesky(s, lower=True) if len(other) else np.zeros((0, 0))
        half = linalg.solve_triangular(lower, br, lower=True) if len(other) else br
        logdet = float(np.log(d).sum() + 2 * np.log(np.diag(lower)).sum())
        return logdet, self.ww - b1.T @ (b1 / d[:, None]) - half.T @ half

    def residual(self, a: Array) -> float:
        xx, xy = a[: self.p, : self.p], a[: self.p, self.p]
        return float(a[self.p, self.p] - xy @ np.linalg.solve(xx, xy))

    def deviance(self, ratios: Array, s2: float | None = None) -> float:
        """-2 log restricted likelihood but for a constant; profiled over s2 where it is None."""
        logdet, a = self.reduced(ratios)
        free = self.n - self.p
        r2 = self.residual(a)
        logdet += float(np.linalg.slogdet(a[: self.p, : self.p])[1])
        if s2 is None:
            return logdet + free * (1 + math.log(max(r2, 1e-300) / free))
        return logdet + free * math.log(s2) + r2 / s2


def _indicator(codes: NDArray[np.int64], size: int) -> Array:
    out = np.zeros((len(codes), size))
    out[np.arange(len(codes)), codes] = 1.0
    return out


@dataclass(frozen=True)
class _Fit:
    model: _Model
    ratios: Array
    s2: float
    means: Array
    covariance: Array
    """Of the means [p, p]."""
    parameters: Array
    """log s2, and log variance of each factor that is not at 0."""
    inverse: Array
    """Asymptotic covariance of `parameters`."""

    @staticmethod
    def of(model: _Model) -> _Fit:
        ratios = _best_ratios(model)
        _, a = model.reduced(ratios)
        s2 = model.residual(a) / (model.n - model.p)
        xx = _inverse(a[: model.p, : model.p])
        means: Array = xx @ a[: model.p, model.p] + model.centre
        inside = np.flatnonzero(ratios > 0)
        parameters = np.log(np.concatenate([[s2], ratios[inside] * s2]))
        hessian = _hessian(lambda q: model.deviance(*_unpack(q, inside, len(ratios))), parameters)
        # factors that can hardly be told apart leave a direction without curvature: not inverted
        spread = np.asarray(np.linalg.pinv(hessian, hermitian=True), dtype=np.float64)
        return _Fit(model, ratios, s2, means, xx * s2, parameters, 2 * spread)

    def covariance_at(self, parameters: Array) -> Array:
        """[p, p] covariance of the means for other variances."""
        ratios, s2 = _unpack(parameters, np.flatnonzero(self.ratios > 0), len(self.ratios))
        _, a = self.model.reduced(ratios)
        p = self.model.p
        return _inverse(a[:p, :p]) * s2

    def df(self, contrast: Array) -> float:
        """Satterthwaite: 2 v^2 / (g' A g), v = variance of the contrast, g = its gradient."""
        v = float(contrast @ self.covariance @ contrast)
        gradient = np.zeros(len(self.parameters))
        for k in range(len(self.parameters)):
            step = np.zeros(len(self.parameters))
            step[k] = _STEP
            up = contrast @ self.covariance_at(self.parameters + step) @ contrast
            down = contrast @ self.covariance_at(self.parameters - step) @ contrast
            gradient[k] = (up - down) / (2 * _STEP)
        return max(1.0, float(2 * v**2 / (gradient @ self.inverse @ gradient)))


def _inverse(a: Array) -> Array:
    return np.asarray(np.linalg.inv(a), dtype=np.float64)


def _unpack(parameters: Array, inside: NDArray[np.int64], factors: int) -> tuple[Array, float]:
    s2 = math.exp(parameters[0])
    ratios = np.zeros(factors)
    ratios[inside] = np.exp(parameters[1:]) / s2
    return ratios, s2


def _best_ratios(model: _Model) -> Array:
    """Variance ratios of least deviance, found in their logarithms from several starts. One that is
    as good at 0 is 0."""
    best, value = np.zeros(model.factors), model.deviance(np.zeros(model.factors))
    for start in _STARTS if model.factors else ():
        found = optimize.minimize(
            lambda x: model.deviance(np.exp(x)),
            np.full(model.factors, start),
            jac="3-point",
            bounds=[_RANGE] * model.factors,
            method="L-BFGS-B",
            options={"ftol": 1e-14, "gtol": 1e-7, "maxiter": 500},
        )
        if found.fun < value - 1e-9:
            best, value = np.exp(found.x), float(found.fun)
    for k in range(model.factors):
        without = np.where(np.arange(model.factors) == k, 0.0, best)
        if model.deviance(without) <= value + _SAME:
            best = without
    return best


def _hessian(function: Callable[[Array], float], at: Array) -> Array:
    k = len(at)
    out = np.zeros((k, k))
    steps = np.eye(k) * _STEP
    for i in range(k):
        for j in range(i, k):
            a, b = steps[i], steps[j]
            value = (
                function(at + a + b) - function(at + a - b)
                - function(at - a + b) + function(at - a - b)
            )  # fmt: skip
            out[i, j] = out[j, i] = value / (4 * _STEP**2)
    return out


def _compare(
    fit: _Fit, names: Sequence[str]
) -> tuple[tuple[MethodMean, ...], tuple[MeanDifference, ...]]:
    unit = np.eye(len(names))
    means = []
    for i, name in enumerate(names):
        df, half = _half_width(fit, unit[i])
        mean = float(fit.means[i])
        means.append(MethodMean(name, mean, mean - half, mean + half, df))
    rows = []
    for i, j in combinations(range(len(names)), 2):
        contrast = unit[i] - unit[j]
        df, half = _half_width(fit, contrast)
        difference = float(contrast @ fit.means)
        se = math.sqrt(float(contrast @ fit.covariance @ contrast))
        p = float(2 * stats.t.sf(abs(difference) / se, df))
        rows.append((names[i], names[j], difference, difference - half, difference + half, df, p))
    adjusted = holm([r[-1] for r in rows])
    return tuple(means), tuple(
        MeanDifference(*row, p_holm) for row, p_holm in zip(rows, adjusted, strict=True)
    )


def _half_width(fit: _Fit, contrast: Array) -> tuple[float, float]:
    """Degrees of freedom, and half of the 95 % interval."""
    df = fit.df(contrast)
    se = math.sqrt(float(contrast @ fit.covariance @ contrast))
    return df, float(stats.t.ppf(0.975, df)) * se


def _f_test(fit: _Fit) -> tuple[float, float, float]:
    """Wald F of equal means, its denominator degrees of freedom (Fai and Cornelius), p."""
    p = fit.model.p
    contrasts = np.eye(p)[:-1] - np.eye(p)[1:]
    covariance = contrasts @ fit.covariance @ contrasts.T
    q = p - 1
    f = float((contrasts @ fit.means) @ np.linalg.solve(covariance, contrasts @ fit.means)) / q
    _, vectors = np.linalg.eigh(covariance)
    dfs = [fit.df(v @ contrasts) for v in vectors.T]
    if q == 1:
        df2 = dfs[0]
    else:
        e = sum(v / (v - 2) for v in dfs if v > 2)
        df2 = 2 * e / (e - q) if e > q else 1.0
    return f, df2, float(stats.f.sf(f, q, df2))
