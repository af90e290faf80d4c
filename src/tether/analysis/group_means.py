"""One-way analysis of variance and Tukey's HSD, as papers report ratings.

Both treat every rating as independent. Ratings by one person, or of one prompt, are not: see
`tether.analysis.mixed_effects`, which belongs beside every number from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Anova:
    """F = between / within mean square; None where the within mean square is 0."""

    f: float | None
    df_between: int
    df_within: int
    p: float | None
    mean_square_within: float


@dataclass(frozen=True)
class TukeyPair:
    """a - b. The interval is simultaneous over all pairs."""

    a: str
    b: str
    difference: float
    low: float
    high: float
    p: float


def one_way_anova(groups: Mapping[str, Sequence[float]]) -> Anova:
    """F test that all group means are equal.

        F = [sum_g n_g (mean_g - mean)^2 / (k - 1)] / [sum_g sum_i (x_gi - mean_g)^2 / (N - k)]

    Raises:
        ValueError: fewer than 2 groups, an empty group, or no group with 2 values.
    """
    arrays = [np.asarray(g, dtype=np.float64) for g in groups.values()]
    if len(arrays) < 2:
        raise ValueError(f"an analysis of variance needs at least 2 groups, not {len(arrays)}")
    empty = next((name for name, g in groups.items() if not len(g)), None)
    if empty is not None:
        raise ValueError(f"group '{empty}' has no value")
    k, total = len(arrays), sum(len(a) for a in arrays)
    if total == k:
        raise ValueError("an analysis of variance needs a group with at least 2 values")
    grand = float(np.concatenate(arrays).mean())
    between = sum(len(a) * (float(a.mean()) - grand) ** 2 for a in arrays) / (k - 1)
    within = sum(float(((a - a.mean()) ** 2).sum()) for a in arrays) / (total - k)
    f = between / within if within > 0 else None
    p = None if f is None else float(stats.f.sf(f, k - 1, total - k))
    return Anova(f, k - 1, total - k, p, within)


def tukey_p(
    difference: float, mean_square_within: float, n: tuple[int, int], groups: int, df: float
) -> float:
    """p of one pair among all pairs of `groups` groups (Tukey-Kramer for unequal n).

        q = |difference| / sqrt(MS_within / 2 (1 / n_a + 1 / n_b)),   p = P(Q(groups, df) > q)

    Source: Tukey (1949); Kramer, Biometrics 12 (1956).
    """
    se = _standard_error(mean_square_within, n)
    if se == 0:
        return 1.0 if difference == 0 else 0.0
    p = float(stats.studentized_range.sf(abs(difference) / se, groups, df))
    return min(1.0, max(0.0, p))


def tukey_hsd(groups: Mapping[str, Sequence[float]], level: float = 0.95) -> list[TukeyPair]:
    """Every pair of groups, in the order given. Raises ValueError as `one_way_anova`."""
    anova = one_way_anova(groups)
    within, df, k = anova.mean_square_within, anova.df_within, len(groups)
    critical = float(stats.studentized_range.ppf(level, k, df))
    out = []
    for (a, x), (b, y) in combinations(groups.items(), 2):
        difference = math.fsum(x) / len(x) - math.fsum(y) / len(y)
        sizes = (len(x), len(y))
        half = critical * _standard_error(within, sizes)
        p = tukey_p(difference, within, sizes, k, df)
        out.append(TukeyPair(a, b, difference, difference - half, difference + half, p))
    return out


def _standard_error(mean_square_within: float, n: tuple[int, int]) -> float:
    return math.sqrt(mean_square_within / 2 * (1 / n[0] + 1 / n[1]))
