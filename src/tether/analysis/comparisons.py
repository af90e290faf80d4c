"""Verdicts on paired seeds: exact tests, equivalence, and how little could have been seen.

The unit is the seed. A verdict is given only to comparisons that were declared beforehand, and
never from fewer than 6 seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tether.analysis.intervals import differences, t_interval
from tether.analysis.power import detectable

Verdict = Literal["better", "worse", "equivalent", "undecided"]
SEEDS_FOR_VERDICT = 6
"""With 5 seeds the smallest two-sided sign-flip p is .0625: nothing can be decided."""
PRIMARY_AT_MOST = 6
"""Primary comparisons of one study."""
REWARD_MARGIN = 0.01
"""Default equivalence margin, on the scale of a reward in [0, 1]."""
DRIFT_MARGIN = 0.1
"""Default equivalence margin of a drift, nats per completion."""
TESTED_AT_MOST = 20
"""Seeds up to which all 2 ** n sign patterns are enumerated."""


@dataclass(frozen=True)
class Comparison:
    """a - b over paired seeds."""

    seeds: int
    difference: float
    low: float
    high: float
    """95 % t-interval of the mean difference."""
    p: float
    """Exact two-sided sign-flip p."""
    p_holm: float
    """`p` after Holm over the primary comparisons of the study."""
    equivalence_low: float
    equivalence_high: float
    """90 % t-interval: two one-sided tests at 5 %."""
    detectable: float | None
    """Smallest true difference that is found better (or worse) with 80 % power while the other
    comparisons show nothing; None where the seeds are too few for these words."""
    verdict: Verdict | None
    """None below 6 seeds."""


def sign_flip_p(difference: Sequence[float]) -> float:
    """Exact two-sided p of mean 0: the share of the 2^n sign patterns with |mean| >= the observed.

    Smallest value: 2 / 2^n. Patterns that tie with the observed one up to rounding count.

    Raises:
        ValueError: for no value, or more than 20 (a million patterns).
    """
    n = len(difference)
    if not 1 <= n <= TESTED_AT_MOST:
        raise ValueError(f"the exact sign-flip test takes 1 to {TESTED_AT_MOST} pairs, not {n}")
    d = np.asarray(difference, dtype=np.float64)
    bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    sums = np.abs((1 - 2 * bits) @ d)
    observed = abs(float(d.sum()))
    slack = 1e-12 * float(np.abs(d).sum())
    return float(np.mean(sums >= observed - slack))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given.

        adjusted(i) = max over j <= i of min(1, (m - j + 1) p(j)), p sorted upwards

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    m = len(p)
    adjusted = [0.0] * m
    highest = 0.0
    for rank, i in enumerate(sorted(range(m), key=lambda k: p[k])):
        highest = max(highest, min(1.0, (m - rank) * p[i]))
        adjusted[i] = highest
    return adjusted


def equivalent(difference: Sequence[float], margin: float) -> bool:
    """Two one-sided t-tests at 5 %: the 90 % interval lies strictly inside -+ margin.

    Source: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    if not margin > 0:
        raise ValueError(f"an equivalence margin must be above 0, not {margin}")
    low, high = t_interval(difference, 0.90)
    return -margin < low and high < margin


def decide(comparison: Comparison, margin: float, higher_is_better: bool = True) -> Verdict | None:
    """The word for one comparison of a against b; None below 6 seeds.

    better / worse: the 95 % interval excludes 0 and Holm's p < .05; equivalent: the 90 % interval
    is inside the margin; undecided: else.
    """
    if comparison.seeds < SEEDS_FOR_VERDICT:
        return None
    if (comparison.low > 0 or comparison.high < 0) and comparison.p_holm < 0.05:
        return "better" if (comparison.difference > 0) == higher_is_better else "worse"
    if -margin < comparison.equivalence_low and comparison.equivalence_high < margin:
        return "equivalent"
    return "undecided"


def compare_all(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    margin: float = REWARD_MARGIN,
    higher_is_better: bool = True,
    declared: int = 0,
) -> dict[str, Comparison]:
    """All primary comparisons of a study together, because Holm needs all of them.

    Args:
        pairs: name -> (values of a, values of b), paired by position.
        declared: how many were declared, where some are not to be had yet: Holm counts these with
            p = 1, so that no verdict is easier to get before the last run than after it.
    Raises:
        ValueError: for more than 6 comparisons, a margin that is not above 0, unequal lengths.
    """
    if len(pairs) > PRIMARY_AT_MOST:
        raise ValueError(
            f"a study has at most {PRIMARY_AT_MOST} primary comparisons, not {len(pairs)}"
        )
    if not margin > 0:
        raise ValueError(f"an equivalence margin must be above 0, not {margin}")
    names = list(pairs)
    count = max(declared, len(names))
    found = [_compare(differences(*pairs[name]), count) for name in names]
    absent = [1.0] * max(0, declared - len(found))
    adjusted = holm([*(c.p for c in found), *absent])[: len(found)]
    out: dict[str, Comparison] = {}
    for name, single, p in zip(names, found, adjusted, strict=True):
        whole = replace(single, p_holm=p)
        out[name] = replace(whole, verdict=decide(whole, margin, higher_is_better))
    return out


def distinct(pairs: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Each comparison once: one that is named twice, or both ways round, is one test, which Holm
    counts once. The order of the first stays."""
    kept: dict[frozenset[str], tuple[str, str]] = {}
    for a, b in pairs:
        kept.setdefault(frozenset((a, b)), (a, b))
    return list(kept.values())


def _compare(difference: list[float], declared: int) -> Comparison:
    low, high = t_interval(difference, 0.95)
    inner_low, inner_high = t_interval(difference, 0.90)
    p = sign_flip_p(difference)
    sd = float(np.std(difference, ddof=1))
    return Comparison(
        seeds=len(difference),
        difference=math.fsum(difference) / len(difference),
        low=low,
        high=high,
        p=p,
        p_holm=p,
        equivalence_low=inner_low,
        equivalence_high=inner_high,
        detectable=detectable(sd, len(difference), declared),
        verdict=None,
    )
