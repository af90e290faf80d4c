"""Does a metric order texts and methods as people do? Kendall's tau-b."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

RESAMPLES = 2_000
"""Of prompts."""


@dataclass(frozen=True)
class Judged:
    """A text with the mean of its ratings and the metric's value."""

    method: str
    item: Hashable
    people: float
    metric: float


@dataclass(frozen=True)
class RankAgreement:
    """tau is None where one side has no two different values."""

    methods: int
    tau_methods: float | None
    """Between the means of methods."""
    p_methods: float | None
    texts: int
    tau_texts: float | None
    """Between single texts of all methods."""
    low: float | None
    high: float | None
    """95 % of `tau_texts`, over resampled prompts."""
    less_is_better: bool | None = None
    """True: the signs are turned, so that +1 is agreement; None: it is not known, and they are not.
    """


def rank_agreement(
    texts: Sequence[Judged], seed: int = 0, less_is_better: bool | None = None
) -> RankAgreement:
    """Kendall's tau-b of one metric with people, over methods and over texts.

        tau_b = (concordant - discordant) / sqrt((pairs - ties in x) (pairs - ties in y))

    With m methods the smallest two-sided p is 2 / m!: .083 for 4, .017 for 5.
    Source: Kendall, Biometrika 33 (1945).

    Args:
        less_is_better: of the metric.
    Raises:
        ValueError: no text.
    """
    if not texts:
        raise ValueError("rank agreement needs texts that have both ratings and the metric")
    if less_is_better:
        texts = [replace(t, metric=-t.metric) for t in texts]
    by_method: dict[str, list[Judged]] = {}
    by_item: dict[Hashable, list[int]] = {}
    for i, text in enumerate(texts):
        by_method.setdefault(text.method, []).append(text)
        by_item.setdefault(text.item, []).append(i)
    means = [
        (math.fsum(t.people for t in ts) / len(ts), math.fsum(t.metric for t in ts) / len(ts))
        for ts in by_method.values()
    ]
    tau_methods, p = _tau([m[0] for m in means], [m[1] for m in means])
    people = np.array([t.people for t in texts])
    metric = np.array([t.metric for t in texts])
    tau_texts, _ = _tau(people, metric)
    low, high = _interval(people, metric, by_item, seed)
    return RankAgreement(
        len(means), tau_methods, p, len(texts), tau_texts, low, high, less_is_better
    )


def _tau(
    x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray
) -> tuple[float | None, float | None]:
    if len(x) < 2 or len(set(map(float, x))) < 2 or len(set(map(float, y))) < 2:
        return None, None
    found = stats.kendalltau(x, y)
    return float(found.statistic), float(found.pvalue)


def _interval(
    people: np.ndarray, metric: np.ndarray, by_item: Mapping[Hashable, list[int]], seed: int
) -> tuple[float | None, float | None]:
    """Percentiles of tau-b over resampled prompts.

    tau-b is a ratio of sums over pairs of texts, so a resample that takes prompt i w_i times needs
    only the sums between prompts: w' S w / sqrt(w' X w  w' Y w).
    """
    if len(by_item) < 2:
        return None, None
    of = np.zeros((len(people), len(by_item)))
    for place, rows in enumerate(by_item.values()):
        of[rows, place] = 1.0
    x = np.sign(people[:, None] - people[None, :])
    y = np.sign(metric[:, None] - metric[None, :])
    size = len(by_item)
    drawn = np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), RESAMPLES)
    both, one, other = (
        np.einsum("ri,ij,rj->r", drawn, of.T @ pairs @ of, drawn, optimize=True)
        for pairs in (x * y, np.abs(x), np.abs(y))
    )
    varied = (one > 0) & (other > 0)
    if not varied.any():
        return None, None
    taus = both[varied] / np.sqrt(one[varied] * other[varied])
    low, high = np.quantile(taus, [0.025, 0.975])
    return float(low), float(high)
