"""The human ratings that the GRUE paper printed, and what of its text they bear out.

Source: Ramamurthy et al., Is Reinforcement Learning (Not) for Natural Language Processing, arXiv
2210.01241v2: mean ratings of the study, Table 2 (claims), Table 10 (Tukey). Ratings are 1 to 5, 3
people a text, 100 texts a method (50 for CNN/DailyMail and ToTTo). No deviation was printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

from tether.analysis.group_means import tukey_p

SOURCE = "arXiv 2210.01241v2"
AXES = ("coherence", "task axis")
MEANS: dict[str, dict[str, tuple[float, float]]] = {
    "IMDB": {
        "human": (4.13, 3.01),
        "zero-shot": (3.60, 3.10),
        "supervised": (3.51, 3.43),
        "PPO": (3.46, 3.58),
        "NLPO": (3.49, 3.61),
        "PPO without KL": (3.16, 4.36),
        "NLPO without KL": (3.16, 4.41),
        "supervised + PPO": (3.45, 3.64),
        "supervised + NLPO": (3.48, 3.73),
    },
    "CommonGen": {
        "zero-shot": (2.15, 2.29),
        "PPO": (2.84, 3.03),
        "NLPO": (2.00, 2.13),
        "supervised": (4.39, 4.21),
        "supervised + PPO": (4.14, 4.03),
        "supervised + NLPO": (4.25, 4.16),
    },
    "CNN/DailyMail": {
        "human": (3.89, 3.77),
        "zero-shot": (3.73, 3.69),
        "PPO": (3.94, 3.76),
        "NLPO": (4.03, 3.83),
        "supervised": (4.25, 3.99),
        "supervised + PPO": (4.21, 3.97),
        "supervised + NLPO": (4.30, 3.98),
    },
    "ToTTo": {
        "zero-shot": (1.63, 1.93),
        "PPO": (2.75, 3.23),
        "NLPO": (2.25, 2.61),
        "supervised": (4.59, 4.54),
        "supervised + PPO": (4.57, 4.48),
        "supervised + NLPO": (4.58, 4.57),
    },
    "DailyDialog": {
        "zero-shot": (3.84, 3.20),
        "PPO": (4.18, 3.32),
        "NLPO": (4.18, 3.35),
        "supervised": (3.96, 3.59),
        "supervised + PPO": (3.99, 3.48),
        "supervised + NLPO": (4.13, 3.58),
    },
}
"""task -> method -> (coherence, task axis); the task axis of IMDB is sentiment."""
RATINGS = {"IMDB": 300, "CommonGen": 300, "CNN/DailyMail": 150, "ToTTo": 150, "DailyDialog": 300}
"""Ratings of each method on each axis."""
TABLE_2: dict[str, dict[str, bool]] = {
    "RL > supervised": {
        "IMDB": True, "CommonGen": False, "CNN/DailyMail": False, "ToTTo": False
    },
    "supervised + RL > supervised": {
        "IMDB": True, "CommonGen": False, "CNN/DailyMail": True, "ToTTo": True
    },
    "supervised + NLPO > supervised + PPO": {
        "IMDB": True, "CommonGen": True, "CNN/DailyMail": True, "ToTTo": True
    },
}  # fmt: skip
"""Rows "human" of the paper's Table 2: claim -> task -> holds."""
_SIDES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "RL > supervised": (("PPO", "NLPO"), ("supervised",)),
    "supervised + RL > supervised": (("supervised + PPO", "supervised + NLPO"), ("supervised",)),
    "supervised + NLPO > supervised + PPO": (("supervised + NLPO",), ("supervised + PPO",)),
    "NLPO >= PPO": (("NLPO",), ("PPO",)),
}
TABLE_10 = ((0.06, 0.001), (0.107, 0.9))
"""Two lines of the paper's Table 10, at equal numbers of ratings: (difference of means, Tukey
p)."""
_ROUNDING = 0.005
"""Printed means have two decimals."""


@dataclass(frozen=True)
class Claim:
    """One claim about one task against its printed means."""

    claim: str
    task: str
    claimed: bool
    differences: tuple[float, float]
    """Left less right side of the claim on both axes; of several methods the best is taken."""
    higher_on: int
    """Axes, of 2, on which the left side is higher (for >=: not lower)."""
    borne_out: bool
    """Claimed and higher on both axes, or denied and not higher on both."""


@dataclass(frozen=True)
class Smallest:
    """How small a Tukey p can be, whatever the ratings were that have the printed means."""

    task: str
    axis: str
    pairs: int
    cannot: int
    """Pairs whose p is at least .05 for any such ratings."""
    threshold: float
    """Differences of printed means up to this cannot have p < .05."""


def claims() -> list[Claim]:
    """Table 2's claims about people, and NLPO >= PPO on every task."""
    made = [(c, task, yes) for c, row in TABLE_2.items() for task, yes in row.items()]
    made += [("NLPO >= PPO", task, True) for task in MEANS]
    out = []
    for claim, task, claimed in made:
        means = MEANS[task]
        left, right = _SIDES[claim]
        d = [
            round(max(means[m][x] for m in left) - max(means[m][x] for m in right), 2)
            for x in range(2)
        ]
        higher = sum(v >= 0 if ">=" in claim else v > 0 for v in d)
        out.append(Claim(claim, task, claimed, (d[0], d[1]), higher, (higher == 2) == claimed))
    return out


def average_over_tasks(methods: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Mean of the printed means of each method over the five tasks, on both axes."""
    return {
        m: (
            math.fsum(t[m][0] for t in MEANS.values()) / len(MEANS),
            math.fsum(t[m][1] for t in MEANS.values()) / len(MEANS),
        )
        for m in methods
    }


def tukey_in_order(pairs: Sequence[tuple[float, float]] = TABLE_10) -> bool:
    """Could these (difference, p) be of one Tukey test with equal group sizes?

    There p falls with |difference|, since all pairs share one standard error.
    """
    ordered = sorted(pairs, key=lambda pair: abs(pair[0]))
    return all(a[1] >= b[1] for a, b in pairwise(ordered))


@cache
def smallest_p(task: str, axis: int, a: str, b: str) -> float:
    """Least Tukey p that integer ratings with the printed means can have.

    Whole numbers with mean m have at least the variance f (1 - f), f = m - floor(m): all of them
    are one of the two next to m. That bounds the within mean square from below, whatever people
    answered. Printed means are taken where rounding favours significance most.
    """
    means, n = MEANS[task], RATINGS[task]
    k = len(means)
    within = math.fsum(_least_variance(v[axis]) for v in means.values()) / k * n / (n - 1)
    d = abs(means[a][axis] - means[b][axis]) + 2 * _ROUNDING
    return tukey_p(d, within, (n, n), k, k * (n - 1))


def _least_variance(mean: float) -> float:
    fractions = [(mean + e) % 1.0 for e in (-_ROUNDING, _ROUNDING)]
    if math.floor(mean - _ROUNDING) != math.floor(mean + _ROUNDING):
        return 0.0
    return min(f * (1 - f) for f in fractions)


@cache
def smallest() -> tuple[Smallest, ...]:
    """For every task and axis: pairs of methods that no ratings could have told apart."""
    out = []
    for task, means in MEANS.items():
        for x, axis in enumerate(AXES):
            found = sorted(
                (abs(round(means[a][x] - means[b][x], 2)), smallest_p(task, x, a, b))
                for a, b in combinations(means, 2)
            )
            cannot = [d for d, p in found if p >= 0.05]
            out.append(Smallest(task, axis, len(found), len(cannot), max(cannot, default=0.0)))
    return tuple(out)
