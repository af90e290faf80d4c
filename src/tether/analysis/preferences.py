"""Which of two texts is better: exact sign tests, and Bradley-Terry strengths."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tether.analysis.comparisons import holm

Array = NDArray[np.float64]
_STEPS = 100
"""Newton steps; from 0 the concave log-likelihood needs fewer than 20."""


@dataclass(frozen=True)
class Preference:
    """One judgement: `a` against `b` on one prompt. `outcome` 1 = a, 0 = b, .5 = equal."""

    a: str
    b: str
    outcome: float
    item: Hashable
    """The prompt: judgements of one prompt are not independent."""


@dataclass(frozen=True)
class SignTest:
    """a against b. Equal judgements are left out of the test, as usual, and counted."""

    a: str
    b: str
    wins: int
    losses: int
    ties: int
    p: float
    """Over judgements, as papers report it: takes judgements of one prompt as independent."""
    item_wins: int
    item_losses: int
    item_ties: int
    item_p: float
    """Over prompts, by the majority of its judgements."""
    item_p_holm: float
    """`item_p` after Holm over all pairs."""


@dataclass(frozen=True)
class Strength:
    """Log-strength, 0 = the mean of all methods: P(a over b) = 1 / (1 + exp(b - a))."""

    method: str
    strength: float
    low: float
    high: float
    """95 %, robust to correlation within a prompt."""


def sign_test_p(wins: int, losses: int) -> float:
    """Exact two-sided binomial p of one half; 1 without a decided judgement."""
    n = wins + losses
    return 1.0 if n == 0 else float(stats.binomtest(wins, n, 0.5).pvalue)


def sign_tests(preferences: Sequence[Preference], methods: Sequence[str]) -> list[SignTest]:
    """Every pair of methods that was judged, in the order of `methods`."""
    found = []
    for a, b in combinations(methods, 2):
        seen = [(p.item, p.outcome) for p in preferences if (p.a, p.b) == (a, b)]
        seen += [(p.item, 1 - p.outcome) for p in preferences if (p.a, p.b) == (b, a)]
        if seen:
            found.append((a, b, seen))
    tests = []
    for a, b, seen in found:
        votes: dict[Hashable, float] = {}
        for item, outcome in seen:
            votes[item] = votes.get(item, 0.0) + outcome - 0.5
        one = _outcomes([o - 0.5 for _, o in seen])
        many = _outcomes(list(votes.values()))
        tests.append((a, b, one, sign_test_p(*one[:2]), many, sign_test_p(*many[:2])))
    adjusted = holm([t[5] for t in tests])
    return [
        SignTest(a, b, *one, p, *many, item_p, p_holm)
        for (a, b, one, p, many, item_p), p_holm in zip(tests, adjusted, strict=True)
    ]


def _outcomes(balances: Sequence[float]) -> tuple[int, int, int]:
    """Wins, losses, ties."""
    wins = sum(b > 0 for b in balances)
    losses = sum(b < 0 for b in balances)
    return wins, losses, len(balances) - wins - losses


def bradley_terry(
    preferences: Sequence[Preference], methods: Sequence[str], level: float = 0.95
) -> list[Strength] | None:
    """Maximum-likelihood strengths, with intervals from a sandwich covariance over prompts.

        log L = sum_t  y_t log p_t + (1 - y_t) log(1 - p_t),   p_t = 1 / (1 + exp(s_b - s_a))
        cov = C / (C - 1)  H^-1 (sum_c g_c g_c') H^-1,   g_c = gradient of prompt c

    An equal judgement counts as half a win each. Quantiles are Student's with C - 1 degrees of
    freedom for C prompts.

    Source: Bradley and Terry, Biometrika 39 (1952); existence: Ford, American Mathematical Monthly
    64 (1957); sandwich: Liang and Zeger, Biometrika 73 (1986).

    Returns:
        One strength for each method; None where no finite maximum exists (some methods never lost
        to the others, or were never compared with them) or fewer than 2 prompts were judged.
    """
    index = {m: i for i, m in enumerate(methods)}
    a = np.array([index[p.a] for p in preferences], dtype=np.int64)
    b = np.array([index[p.b] for p in preferences], dtype=np.int64)
    y = np.array([p.outcome for p in preferences], dtype=np.float64)
    clusters = {c: i for i, c in enumerate(dict.fromkeys(p.item for p in preferences))}
    if len(clusters) < 2 or not _connected(a, b, y, len(methods)):
        return None
    design = np.zeros((len(y), len(methods)))
    design[np.arange(len(y)), a] += 1
    design[np.arange(len(y)), b] -= 1
    s = np.zeros(len(methods))
    inverse: Array = np.eye(len(methods))
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-design @ s))
        # ones: the likelihood is flat along equal shifts of all strengths, their sum stays 0
        hessian = design.T @ (design * (p * (1 - p))[:, None]) + 1.0
        inverse = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
        step = inverse @ (design.T @ (y - p))
        s = s + step
        if float(np.abs(step).max()) < 1e-12:
            break
    residual = design * (y - 1 / (1 + np.exp(-design @ s)))[:, None]
    gradients = np.zeros((len(clusters), len(methods)))
    np.add.at(gradients, [clusters[p.item] for p in preferences], residual)
    count = len(clusters)
    covariance = count / (count - 1) * inverse @ (gradients.T @ gradients) @ inverse
    variances = np.maximum(np.diag(covariance), 0.0)  # one of 0 can be rounded to below it
    half = float(stats.t.ppf(0.5 + level / 2, count - 1)) * np.sqrt(variances)
    return [
        Strength(m, float(s[i]), float(s[i] - half[i]), float(s[i] + half[i]))
        for m, i in index.items()
    ]


def win_probability(a: float, b: float) -> float:
    """P(a over b) of two log-strengths."""
    return 1 / (1 + math.exp(b - a))


def _connected(a: NDArray[np.int64], b: NDArray[np.int64], y: Array, methods: int) -> bool:
    """Can every method be reached from every other along wins (Ford's condition)?"""
    winner = np.concatenate([a[y > 0], b[y < 1]])
    loser = np.concatenate([b[y > 0], a[y < 1]])
    graph = coo_array((np.ones(len(winner)), (winner, loser)), shape=(methods, methods))
    parts, _ = connected_components(graph.tocsr(), directed=True, connection="strong")
    return int(parts) == 1
