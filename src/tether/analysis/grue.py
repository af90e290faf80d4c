"""The scores of the benchmark: metrics on one scale, a task's two scores, the aggregate.

    mapped(value) = (value - floor) / (ceiling - floor)

Floor and ceiling of a metric are fixed before any run and depend on no model: 0 is what an empty
output or the copied prompt gets, whichever is better, 1 what people get. Values outside [0, 1] stay
as they are. Perplexity, which has no such ends, is min(1, initial / policy).

    task score         mean over the task's metrics of their mapped values
    naturalness score  the same over its metrics of naturalness
    aggregate          mean over the tasks, of each of the two; they are never put together, since a
                       policy that games its reward raises one and lowers the other
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tether.analysis.intervals import SEEDS_FOR_INTERVAL, t_interval
from tether.analysis.jackknife import interval, standard_error

Family = Literal["task", "naturalness", "other"]
"""other: measured, and in no score."""
FAMILIES: tuple[Family, ...] = ("task", "naturalness")
PERPLEXITY = "perplexity"
"""Kind, and signature, of the one metric that is read from a run's record: of the policy on human
text."""


@dataclass(frozen=True)
class Anchor:
    """One metric of a task: its two ends, or why it does not count."""

    metric: str
    family: Family
    signature: str = ""
    floor: float | None = None
    floor_is: str = ""
    """`empty output` or `copied prompt`."""
    ceiling: float | None = None
    ceiling_is: str = ""
    """Where it comes from, in words."""
    dropped: str = ""
    """Why the metric does not count; empty = it does."""

    @property
    def is_perplexity(self) -> bool:
        """Of human text, whatever the metric is called."""
        return self.signature == PERPLEXITY

    def counts(self, family: Family) -> bool:
        """Whether the family's score has it."""
        return self.family == family and not self.dropped


@dataclass(frozen=True)
class Measured:
    """Metrics of one set of weights on the task's examples."""

    values: Mapping[str, float]
    left_out: Mapping[str, Sequence[float]]
    """metric -> its value without each group of examples."""


@dataclass(frozen=True)
class Score:
    """A score of one method: every seed's value, their mean, and an interval."""

    seeds: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    over: Literal["seeds", "examples", ""]
    """What the interval is over: seeds from 5 of them on, else the examples alone; empty = no
    interval."""
    left_out: tuple[float, ...] = ()
    """Mean over seeds without each group of examples."""


def mapped(value: float, floor: float, ceiling: float) -> float:
    """0 at the floor, 1 at the ceiling. Where less is better the ceiling is the smaller number.

    Raises:
        ValueError: when the two are equal.
    """
    if floor == ceiling:
        raise ValueError("a metric whose ceiling is its floor cannot be mapped")
    return (value - floor) / (ceiling - floor)


def perplexity_share(initial: float, policy: float) -> float:
    """min(1, initial / policy): 1 = human text is no less likely than at the start."""
    return min(1.0, initial / policy)


def on_scale(
    anchors: Sequence[Anchor], values: Mapping[str, float], perplexity: float | None
) -> dict[str, float]:
    """metric -> mapped value, for the metrics that count.

    perplexity: of the initial model, the numerator of the share.
    """
    out = {}
    for a in anchors:
        if a.dropped or a.metric not in values:
            continue
        if a.is_perplexity:
            if perplexity is not None:
                out[a.metric] = perplexity_share(perplexity, values[a.metric])
        elif a.floor is not None and a.ceiling is not None:
            out[a.metric] = mapped(values[a.metric], a.floor, a.ceiling)
    return out


def family_score(
    anchors: Sequence[Anchor], family: Family, scaled: Mapping[str, float]
) -> float | None:
    """Mean over the family's metrics; None where none counts, or one that counts is missing: a mean
    over the others would be another quantity."""
    names = [a.metric for a in anchors if a.counts(family)]
    if not names or any(n not in scaled for n in names):
        return None
    return math.fsum(scaled[n] for n in names) / len(names)


def left_out_scores(
    anchors: Sequence[Anchor], family: Family, measured: Measured, perplexity: float | None
) -> list[float]:
    """The family's score without each group of examples; a metric without such values (perplexity)
    is the same in all of them. Empty where nothing has such values."""
    names = {a.metric for a in anchors if a.family == family}
    count = {len(v) for k, v in measured.left_out.items() if k in names and v}
    if len(count) != 1:
        return []
    out = []
    for g in range(count.pop()):
        values = {k: (measured.left_out.get(k) or [])[g : g + 1] for k in measured.values}
        here = {k: v[0] if v else measured.values[k] for k, v in values.items()}
        score = family_score(anchors, family, on_scale(anchors, here, perplexity))
        if score is not None:
            out.append(score)
    return out


def summarised(seeds: Sequence[float], left_out: Sequence[Sequence[float]]) -> Score:
    """One method's score on one task.

    Args:
        seeds: its value on each seed.
        left_out: of each seed, its value without each group of examples.
    Raises:
        ValueError: for no seed.
    """
    if not seeds:
        raise ValueError("no seed has a score")
    mean = math.fsum(seeds) / len(seeds)
    whole = [x for x in left_out if x]
    groups = tuple(math.fsum(g) / len(g) for g in zip(*whole, strict=True)) if whole else ()
    if len(seeds) >= SEEDS_FOR_INTERVAL:
        low, high = t_interval(seeds)
        return Score(tuple(seeds), mean, low, high, "seeds", groups)
    error = standard_error(groups)
    if error is None:
        return Score(tuple(seeds), mean, None, None, "", groups)
    low, high = interval(mean, error, len(groups))
    return Score(tuple(seeds), mean, low, high, "examples", groups)


def aggregate(tasks: Sequence[Score]) -> Score:
    """Mean over the tasks, seed by seed. Below 5 seeds the interval is over examples; the tasks'
    examples are independent, so their variances add:

        se = sqrt(sum over tasks of se_t^2) / tasks

    Raises:
        ValueError: for no task, or tasks with different numbers of seeds.
    """
    counts = {len(t.seeds) for t in tasks}
    if len(counts) != 1:
        raise ValueError(f"an aggregate needs equal numbers of seeds in all tasks, not {counts}")
    seeds = [math.fsum(x) / len(tasks) for x in zip(*(t.seeds for t in tasks), strict=True)]
    mean = math.fsum(seeds) / len(seeds)
    if len(seeds) >= SEEDS_FOR_INTERVAL:
        low, high = t_interval(seeds)
        return Score(tuple(seeds), mean, low, high, "seeds")
    errors = [standard_error(t.left_out) for t in tasks]
    known = [e for e in errors if e is not None]
    if len(known) < len(tasks):
        return Score(tuple(seeds), mean, None, None, "")
    error = math.sqrt(math.fsum(e * e for e in known)) / len(tasks)
    fewest = min(len(t.left_out) for t in tasks)
    low, high = interval(mean, error, fewest)
    return Score(tuple(seeds), mean, low, high, "examples")


def difference(a: Score, b: Score) -> tuple[float, float, float] | None:
    """a - b on one task with its paired interval over examples: both were measured without the same
    groups. None where one has no such values."""
    if len(a.left_out) < 2 or len(a.left_out) != len(b.left_out):
        return None
    error = standard_error([x - y for x, y in zip(a.left_out, b.left_out, strict=True)])
    if error is None:
        return None
    value = a.mean - b.mean
    return (value, *interval(value, error, len(a.left_out)))
