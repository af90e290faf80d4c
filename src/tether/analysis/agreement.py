"""Krippendorff's alpha: agreement beyond chance of any number of raters, with missing values.

Texts rated by fewer than two people carry no information about agreement and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Level = Literal["nominal", "ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Alpha at one level of measurement; None where every value is the same (0 / 0)."""

    level: Level
    alpha: float | None
    low: float | None
    high: float | None
    """95 % percentile interval over resampled clusters; None below 2 clusters."""
    units: int
    """Units with at least two values."""
    values: int
    """Values in these units."""


def krippendorff_alpha(
    ratings: Sequence[Sequence[float | None]],
    level: Level,
    *,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 2_000,
    seed: int = 0,
) -> Agreement:
    """Alpha with a bootstrap interval.

        alpha = 1 - D_o / D_e
        D_o = sum_ck o_ck d(c, k) / n,   D_e = sum_ck n_c n_k d(c, k) / (n (n - 1))
        o_ck = sum_u (pairs c-k in u) / (m_u - 1)

    d is 1 for c != k (nominal), the squared sum of the n_g between c and k less half of both ends
    (ordinal), (c - k)^2 (interval).

    The interval resamples whole clusters of units: ratings of texts that share a prompt are not
    independent. Resamples in which all values are equal have no alpha and are left out.

    Source: Krippendorff, Computing Krippendorff's Alpha-Reliability (2011); resampling of units:
    Zapf et al., BMC Medical Research Methodology 16 (2016).

    Args:
        ratings: a row for each unit, a value for each rating; None or NaN = missing. Rows may have
            different lengths: which rater gave a value does not matter.
        clusters: what each unit belongs to (its prompt); default: every unit is its own.
    Raises:
        ValueError: no unit has two values, or `clusters` has another length than `ratings`.
    """
    if clusters is not None and len(clusters) != len(ratings):
        raise ValueError(f"{len(ratings)} units have {len(clusters)} clusters")
    rows = [[float(v) for v in row if v is not None and not math.isnan(v)] for row in ratings]
    kept = [u for u, row in enumerate(rows) if len(row) >= 2]
    if not kept:
        raise ValueError("agreement needs a text that two people have rated")
    labels, counts = _counts([rows[u] for u in kept])
    groups = kept if clusters is None else [clusters[u] for u in kept]
    pairs = _coincidences(counts)  # [U, K, K]
    found = _alpha(pairs.sum(0)[None], labels, level)[0]
    low, high = _interval(pairs, groups, labels, level, resamples, seed)
    return Agreement(
        level=level,
        alpha=None if math.isnan(found) else float(found),
        low=low,
        high=high,
        units=len(kept),
        values=int(counts.sum()),
    )


def _counts(rows: Sequence[Sequence[float]]) -> tuple[Array, Array]:
    """Labels [K] upwards, and how often each stands in each unit [U, K]."""
    labels = np.unique(np.concatenate([np.asarray(r, dtype=np.float64) for r in rows]))
    counts = np.zeros((len(rows), len(labels)))
    for u, row in enumerate(rows):
        np.add.at(counts[u], np.searchsorted(labels, row), 1.0)
    return labels, counts


def _coincidences(counts: Array) -> Array:
    """[U, K, K] each unit's share of the coincidence matrix."""
    pairs = counts[:, :, None] * counts[:, None, :]
    k = np.arange(counts.shape[1])
    pairs[:, k, k] -= counts
    out: Array = pairs / (counts.sum(1) - 1)[:, None, None]
    return out


def _alpha(coincidences: Array, labels: Array, level: Level) -> Array:
    """[R] alpha of R coincidence matrices [R, K, K]; NaN where no disagreement is expected."""
    totals = coincidences.sum(2)  # [R, K]
    n = totals.sum(1)
    distance = _distances(totals, labels, level)
    observed = (coincidences * distance).sum((1, 2)) / n
    expected = np.einsum("rc,rk,rck->r", totals, totals, distance) / (n * (n - 1))
    out = np.full(len(n), np.nan)
    np.divide(observed, expected, out=out, where=expected > 0)
    return np.asarray(1 - out)


def _distances(totals: Array, labels: Array, level: Level) -> Array:
    """[R, K, K] squared differences."""
    if level == "nominal":
        one = 1.0 - np.eye(len(labels))
    elif level == "interval":
        one = (labels[:, None] - labels[None, :]) ** 2
    else:
        middle = np.cumsum(totals, axis=1) - totals / 2  # rank of a label, up to a constant
        squared: Array = (middle[:, :, None] - middle[:, None, :]) ** 2
        return squared
    return np.broadcast_to(one, (len(totals), *one.shape))


def _interval(
    pairs: Array,
    groups: Sequence[Hashable],
    labels: Array,
    level: Level,
    resamples: int,
    seed: int,
) -> tuple[float | None, float | None]:
    index = {g: i for i, g in enumerate(dict.fromkeys(groups))}
    if len(index) < 2:
        return None, None
    summed = np.zeros((len(index), *pairs.shape[1:]))
    np.add.at(summed, [index[g] for g in groups], pairs)
    draw = np.random.default_rng(seed).multinomial(
        len(index), np.full(len(index), 1 / len(index)), size=resamples
    )
    drawn = _alpha(np.tensordot(draw.astype(np.float64), summed, axes=1), labels, level)
    drawn = drawn[~np.isnan(drawn)]
    if not len(drawn):
        return None, None
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
