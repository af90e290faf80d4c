"""The frontier of one method and seed: reward as a function of the drift that is allowed.

A checkpoint is a pair (drift, reward) of the same weights. The question "what does this method buy
within b nats?" is answered by a step function f(b); its value at fixed budgets and its mean over
[0, 16] nats are the two numbers that studies compare.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Checkpoint:
    """One candidate for a budget: chosen by one set of prompts, reported on another."""

    drift: float
    """Validation drift, nats per completion; 0 for the initial model."""
    chosen_by: float
    """Validation reward: what the choice reads."""
    reward: float
    """What is reported: the test reward of the same weights, or `chosen_by` again where no test
    prompts were used."""
    update: int = 0
    """Completed updates; 0 = the initial model."""
    run: str = ""
    """Which run (a method has several settings)."""


@dataclass(frozen=True)
class Step:
    """f(b) = checkpoint.reward for b from `start` to the next step's start."""

    start: float
    checkpoint: Checkpoint


def non_dominated(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (drift, reward) pairs that no other pair beats, in order of drift.

    i is dominated when some j has drift_j <= drift_i and reward_j >= reward_i, one of them
    strictly. Equal pairs stand together.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    kept: list[int] = []
    for i in order:
        drift, reward = points[i]
        if kept and reward <= points[kept[-1]][1] and (drift, reward) != points[kept[-1]]:
            continue
        kept.append(i)
    return kept


def best_within(checkpoints: Sequence[Checkpoint], budget: float) -> Checkpoint | None:
    """The checkpoint with the best validation reward among those with drift <= budget.

    Ties go to the smaller drift, then to the earlier update. None when none is within the budget.
    """
    within = [c for c in checkpoints if c.drift <= budget]
    if not within:
        return None
    return max(within, key=lambda c: (c.chosen_by, -c.drift, -c.update))


def steps(checkpoints: Sequence[Checkpoint]) -> list[Step]:
    """f as its steps: one for every drift at which the choice changes. First start = 0.

    Raises:
        ValueError: when no checkpoint has drift <= 0: the initial model belongs to every set.
    """
    found: list[Step] = []
    for start in sorted({max(c.drift, 0.0) for c in checkpoints} | {0.0}):
        best = best_within(checkpoints, start)
        if best is None:
            raise ValueError(
                "no checkpoint at drift 0: add the initial model (the evaluation at update 0)"
            )
        if not found or found[-1].checkpoint != best:
            found.append(Step(start, best))
    return found


def at(function: Sequence[Step], budget: float) -> Checkpoint:
    """The checkpoint that f reports at a budget >= 0."""
    if budget < 0:
        raise ValueError(f"a drift budget must be at least 0 nats, not {budget}")
    return function[bisect_right([s.start for s in function], budget) - 1].checkpoint


def mean_reward(function: Sequence[Step], limit: float) -> float:
    """Exact mean of f(b) over b in [0, limit]: sum of reward * width over the steps."""
    if not limit > 0:
        raise ValueError(f"the limit of an area must be above 0 nats, not {limit}")
    ends = [s.start for s in function[1:]] + [limit]
    widths = [max(0.0, min(e, limit) - s.start) for s, e in zip(function, ends, strict=True)]
    return sum(w * s.checkpoint.reward for w, s in zip(widths, function, strict=True)) / limit


def area(
    function: Sequence[Step], initial: float, limit: float = 16.0, ceiling: float = 1.0
) -> float:
    """Normalised area: mean over b in [0, limit] of (f(b) - R0) / (ceiling - R0).

    Where f is chosen and reported on the same prompts this is the two-dimensional hypervolume with
    reference point (limit, R0), divided by its largest value.

    Args:
        function: f, in steps.
        initial: R0, the reward of the initial model on the prompts that are reported.
        limit: nats per completion.
        ceiling: the largest possible reward.
    Raises:
        ValueError: when R0 is not below the ceiling.
    """
    if not initial < ceiling:
        raise ValueError(
            f"the area needs an initial reward below {ceiling}, the largest one, not {initial}"
        )
    return (mean_reward(function, limit) - initial) / (ceiling - initial)


def mean_steps(functions: Sequence[Sequence[Step]]) -> list[tuple[float, list[float]]]:
    """Several seeds' f on the union of their steps: (start, one reward per seed), in order."""
    starts = sorted({s.start for f in functions for s in f})
    return [(b, [at(f, b).reward for f in functions]) for b in starts]
