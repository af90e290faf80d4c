"""Does a metric order texts and methods as people do? Kendall's tau-b."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np
from scipy import stats

RESAMPLES = 2_000
"""Of prompts."""
EXACT = 8
"""Methods up to which p is over all orders of them, 40,320 for 8."""


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

    p is two-sided: up to `EXACT` methods the share of all orders of one side whose tau is as far
    from 0, with or without ties; of more methods scipy's. With m methods the smallest is 2 / m!:
    .083 for 4, .017 for 5.
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
    of_people, of_metric = (np.array(side) for side in zip(*means, strict=True))
    tau_methods = _tau(of_people, of_metric)
    p = None if tau_methods is None else _p(of_people, of_metric)
    people = np.array([t.people for t in texts])
    metric = np.array([t.metric for t in texts])
    tau_texts = _tau(people, metric)
    low, high = _interval(people, metric, by_item, seed)
    return RankAgreement(
        len(means), tau_methods, p, len(texts), tau_texts, low, high, less_is_better
    )


def _tau(x: np.ndarray, y: np.ndarray) -> float | None:
    if len(set(map(float, x))) < 2 or len(set(map(float, y))) < 2:
        return None
    return float(stats.kendalltau(x, y).statistic)


def _p(x: np.ndarray, y: np.ndarray) -> float:
    """Orders share their ties, and so tau's denominator: concordant - discordant is compared, in
    whole numbers. scipy's p is asymptotic where there are ties, far too small for few methods."""
    if len(x) > EXACT:
        return float(stats.kendalltau(x, y).pvalue)
    orders = _orders(len(x))
    of_x, of_y = (np.sign(v[:, None] - v[None, :]).astype(np.int64) for v in (x, y))
    found = np.zeros(len(orders), np.int64)
    for i, j in combinations(range(len(x)), 2):
        found += of_x[i, j] * of_y[orders[:, i], orders[:, j]]
    return float(np.mean(np.abs(found) >= abs(found[0])))  # the first order is the observed one


@lru_cache(maxsize=EXACT)
def _orders(count: int) -> np.ndarray:
    return np.array(list(permutations(range(count))))


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
