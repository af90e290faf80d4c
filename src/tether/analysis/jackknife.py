"""Standard errors over examples for any number of a whole corpus: the delete-a-group jackknife.

BLEU or distinct-n of a corpus is no mean over its examples, so no formula gives its error. Leaving
out one group of examples at a time does, with one computation of the metric a group; and since
every method is measured without the same groups, differences between methods are paired.

    se^2 = (G - 1) / G * sum over g of (theta without g - mean of these)^2

Source: Kott 2001, "The delete-a-group jackknife", Journal of Official Statistics 17; for G = n the
jackknife of Tukey 1958.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

GROUPS = 20
"""Most groups; fewer examples than this are left out one by one."""


def groups(examples: int, most: int = GROUPS) -> list[list[int]]:
    """Positions of the examples of each group: example i is in group i mod G, G at most `most`.

    The order of the examples must be no order of anything (it is shuffled where rows are held out
    or read).
    """
    count = min(examples, most)
    return [list(range(g, examples, count)) for g in range(count)]


def standard_error(left_out: Sequence[float]) -> float | None:
    """From the value without each group; None for fewer than 2 groups."""
    n = len(left_out)
    if n < 2:
        return None
    mean = math.fsum(left_out) / n
    return math.sqrt((n - 1) / n * math.fsum((x - mean) ** 2 for x in left_out))


def interval(
    value: float, error: float, groups_left: int, level: float = 0.95
) -> tuple[float, float]:
    """value -+ t(1 - (1 - level) / 2, G - 1) * se.

    Raises:
        ValueError: for fewer than 2 groups.
    """
    if groups_left < 2:
        raise ValueError(f"an interval over examples needs at least 2 groups, not {groups_left}")
    half = float(stats.t.ppf(0.5 + level / 2, groups_left - 1)) * error
    return value - half, value + half
