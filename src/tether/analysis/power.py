"""How large a true difference has to be for a verdict: the power of the rule that gives it.

The rule is that of `analysis.comparisons`: the 95 % t-interval excludes 0, and Holm's p of the
exact sign-flip test is below .05. Of Holm the strictest step counts, p times the number of declared
comparisons: that is the power while the others show nothing, and what they show only adds to it.
The margin has no part in it: a difference that is found is better or worse inside of it too.

Differences are taken as normal. Both conditions hold for every larger shift of the same sample once
they hold for one, so that each drawn sample z has a least shift, in closed form:

    t-interval    shift > t(.975, n - 1) s / sqrt(n) - mean(z)
    sign-flips    shift > -(the k-th smallest mean of z over a subset of the pairs)

since p = 2 N / 2^n, N counting the subsets (and the empty one) whose differences sum to 0 or less,
and k the largest N that is allowed. Power is the share of samples whose least shift is smaller.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 0.05
_SAMPLES = 10_000
"""Drawn, always the same ones: the error of a power of .8 is .004."""
_ENUMERATED = 13
"""Pairs up to which all subsets count; of more as many subsets are drawn."""


def smallest_p(n: int, declared: int = 1) -> float:
    """The smallest two-sided sign-flip p of n pairs after Holm over the declared comparisons."""
    return min(1.0, declared * 2 / 2.0**n)


def seeds_needed(declared: int = 1) -> int:
    """Fewest seeds with which `better` and `worse` can be reached: 6, 7 from 2 comparisons on, 8
    from 4 on."""
    n = 1
    while smallest_p(n, declared) >= ALPHA:
        n += 1
    return n


def too_few(seeds: int, declared: int = 1) -> str:
    """Why no difference can be found better or worse, and with how many seeds one can; empty where
    it can."""
    least = smallest_p(seeds, declared)
    if least < ALPHA:
        return ""
    are = "seed is" if seeds == 1 else "seeds are"
    return (
        f"{seeds} {are} too few to find better or worse in {declared} declared "
        f"comparison{'' if declared == 1 else 's'}: p after Holm's correction is {least:.3g} at "
        f"least; {seeds_needed(declared)} seeds would do"
    )


def power(effect: float, n: int, declared: int = 1) -> float:
    """Chance of the verdict `better` for a true mean difference of `effect` s.d. with n pairs.

    declared: comparisons that Holm counts. Raises ValueError for fewer than 2 pairs.
    """
    return float(np.mean(_least_shifts(n, declared) < effect))


def detectable(sd: float, n: int, declared: int = 1, target: float = 0.80) -> float | None:
    """Smallest true difference found with power `target`, in the unit of `sd`; None where no
    difference can be found.

    Args:
        sd: s.d. of the paired differences.
        n: pairs.
        declared: comparisons that Holm counts.
    Raises:
        ValueError: for fewer than 2 pairs, or an s.d. that is negative or not finite.
    """
    if sd < 0 or not math.isfinite(sd):
        raise ValueError(f"the s.d. of the differences must be finite and at least 0, not {sd}")
    shifts = _least_shifts(n, declared)
    return None if smallest_p(n, declared) >= ALPHA else float(np.quantile(shifts, target)) * sd


@cache
def _least_shifts(n: int, declared: int) -> NDArray[np.float64]:
    """Of each sample, in s.d. of the differences; infinite where no shift is enough."""
    if n < 2:
        raise ValueError(f"a paired test needs at least 2 pairs, not {n}")
    if smallest_p(n, declared) >= ALPHA:
        return np.full(_SAMPLES, np.inf)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(_SAMPLES, n))
    half = float(stats.t.ppf(1 - ALPHA / 2, n - 1)) * z.std(axis=1, ddof=1) / math.sqrt(n)
    if n <= _ENUMERATED:
        numbers = np.arange(1, 2**n)
    else:
        numbers = rng.integers(1, 2**n, size=2**_ENUMERATED)
    subsets = ((numbers[:, None] >> np.arange(n)) & 1).astype(np.float64)
    means = subsets.T / subsets.sum(axis=1)
    # N of all 2^n subsets are allowed; of those at hand the same share
    allowed = math.floor(ALPHA / 2 / declared * min(2**n, 2**_ENUMERATED))
    flips = [-np.partition(part @ means, allowed - 1, axis=1)[:, allowed - 1]
             for part in np.array_split(z, 50)]  # fmt: skip
    least: NDArray[np.float64] = np.maximum(half - z.mean(axis=1), np.concatenate(flips))
    return least
