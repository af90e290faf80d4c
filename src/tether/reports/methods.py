"""Methods side by side: for every method and seed its frontier, its budgets, its final weights.

A method may have several settings (runs of equal method and seed): the choice between them is made
from validation records, as the choice between checkpoints is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tether.analysis.frontier import Checkpoint, Step, area, at, steps
from tether.analysis.intervals import Summary, summarise
from tether.analysis.recovery import Recovery, Seen, recoveries
from tether.config.errors import UserError
from tether.records import EvalPoint
from tether.reports.runs import Plan, Run, drift, settings

BUDGETS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Nats per completion."""
PRIMARY_BUDGET = 4.0
AREAS = (16.0, 4.0)
"""Limits of the normalised areas, nats per completion."""


@dataclass(frozen=True)
class SeedResult:
    """One method on one seed."""

    seed: int
    runs: tuple[Run, ...]
    shown: tuple[Step, ...]
    """f on validation prompts: the line that is drawn."""
    reported: tuple[Step, ...]
    """f as reported: on test prompts where the study has them."""
    initial: float
    """R0 on the reported prompts."""
    final: EvalPoint
    """Last finite weights of the setting that is chosen at the primary budget."""
    failed: str = ""
    """Why a run of this seed counts as failed; its last finite weights stand in."""

    def reward_at(self, budget: float) -> float:
        return at(self.reported, budget).reward


@dataclass(frozen=True)
class Method:
    name: str
    seeds: tuple[SeedResult, ...]
    missing: tuple[str, ...] = ()
    """Runs without one finite evaluation: counted, but without a value."""

    def final_reward(self) -> Summary:
        return summarise([s.final.reward for s in self.seeds])

    def final_drift(self) -> Summary:
        return summarise([drift(s.final) for s in self.seeds])

    def reward_at(self, budget: float) -> Summary:
        return summarise([s.reward_at(budget) for s in self.seeds])

    def area(self, limit: float) -> Summary:
        return summarise([area(s.reported, s.initial, limit) for s in self.seeds])

    def failed(self) -> int:
        return sum(bool(s.failed) for s in self.seeds) + len(self.missing)

    def recoveries(self) -> list[Recovery]:
        return [r for s in self.seeds for run in s.runs for r in _recoveries(run)]


@dataclass(frozen=True)
class Study:
    methods: tuple[Method, ...]
    budgets: tuple[float, ...]
    split: str
    """`test` where every finished run has test points, else `validation`."""
    areas: bool
    """False where rewards exceed 1, the ceiling that the area is normalised by."""
    plan: Plan = field(default_factory=Plan)
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        return [r for m in self.methods for s in m.seeds for r in s.runs]

    @property
    def primary_budget(self) -> float:
        return PRIMARY_BUDGET if PRIMARY_BUDGET in self.budgets else self.budgets[-1]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({s.seed for m in self.methods for s in m.seeds}))


def study(
    runs: Sequence[Run],
    plan: Plan | None = None,
    budgets: Sequence[float] = (),
    *,
    apart: Sequence[str] = (),
) -> Study:
    """All methods of the runs, in order of appearance.

    Args:
        budgets: nats per completion; default 1, 2, 4, 8, 16.
        apart: those of `SHARED` that differ on purpose (each seed has its own initial model).
    Raises:
        UserError: when no run has a finite evaluation, or one lacks the initial model.
    """
    budgets = tuple(sorted(budgets or BUDGETS))
    usable = [r for r in runs if r.validation()]
    if not usable:
        raise UserError("no run has a finite evaluation yet: there is nothing to draw")
    done = [r for r in usable if r.finished]
    split = "test" if done and all(r.test() for r in done) else "validation"
    start = _initial_on_test(usable)
    primary = PRIMARY_BUDGET if PRIMARY_BUDGET in budgets else budgets[-1]
    methods = []
    for name in dict.fromkeys(r.method for r in runs):
        mine = [r for r in runs if r.method == name]
        by_seed: dict[int, list[Run]] = {}
        for r in mine:
            if r.validation():
                by_seed.setdefault(r.seed, []).append(r)
        seeds = tuple(
            _seed(seed, group, split, start, primary) for seed, group in sorted(by_seed.items())
        )
        missing = tuple(r.name for r in mine if not r.validation())
        if seeds or missing:
            methods.append(Method(name, seeds, missing))
    highest = max(p.reward for r in usable for p in r.points)
    lowest_start = max(s.initial for m in methods for s in m.seeds)
    return Study(
        methods=tuple(methods),
        budgets=budgets,
        split=split,
        areas=highest <= 1.0 and lowest_start < 1.0,
        plan=plan or Plan(),
        notes=_notes(runs, split, start, highest, apart),
    )


def candidates(run: Run, split: str, start: float | None = None) -> list[Checkpoint]:
    """What a run offers to a budget.

    With split `test` only weights that were evaluated on test prompts (the best validation
    checkpoint under each budget and the final weights) and the initial model; each is placed at
    its validation drift and chosen by its validation reward. A run that did not get to the end of
    its test points (it failed, or is not finished) offers its validation points.

    Raises:
        UserError: when a test point has no validation point of the same weights.
    """
    points = {p.update: p for p in run.validation()}
    tested = {p.update: p.reward for p in run.test()}
    if split != "test" or not run.finished:
        return [_checkpoint(run, p, p.reward) for p in points.values()]
    missing = sorted(set(tested) - set(points))
    if missing:
        raise UserError(
            f"{run.folder}: the weights of update {missing[0]} were evaluated on test prompts, but "
            "not at a common validation time"
        )
    if 0 in points and 0 not in tested:
        tested[0] = points[0].reward if start is None else start
    return [_checkpoint(run, points[u], reward) for u, reward in sorted(tested.items())]


def _checkpoint(run: Run, point: EvalPoint, reward: float) -> Checkpoint:
    return Checkpoint(drift(point), point.reward, reward, point.update, run.name)


def _seed(
    seed: int, runs: list[Run], split: str, start: float | None, primary: float
) -> SeedResult:
    for run in runs:
        if not any(p.update == 0 for p in run.validation()):
            raise UserError(f"{run.folder}: the evaluation at update 0 is missing")
    shown = steps([c for r in runs for c in candidates(r, "validation")])
    reported = steps([c for r in runs for c in candidates(r, split, start)])
    chosen = at(reported, primary).run
    setting = next(r for r in runs if r.name == chosen)
    return SeedResult(
        seed=seed,
        runs=tuple(runs),
        shown=tuple(shown),
        reported=tuple(reported),
        initial=next(c.reward for c in candidates(runs[0], split, start) if c.update == 0),
        final=_final(setting, split),
        failed="; ".join(r.failed for r in runs if r.failed),
    )


def _final(run: Run, split: str) -> EvalPoint:
    last = [p for p in run.test() if p.weights == "final"] if split == "test" else []
    return (last or run.validation())[-1]


def _initial_on_test(runs: Sequence[Run]) -> float | None:
    """Test reward of the initial model: equal for all runs (same prompts, same seeds)."""
    return next((p.reward for r in runs for p in r.test() if p.update == 0), None)


def _recoveries(run: Run) -> list[Recovery]:
    return recoveries([Seen(p.update, p.side, p.reward, drift(p)) for p in run.around_resets()])


SHARED = (
    *("model.path", "model.revision", "model.adapter", "data", "rewards"),
    *("evaluation.prompts", "evaluation.seed", "evaluation.sampling"),
)
"""Settings that runs must share, or their rewards and drifts are of different things."""


def unlike(runs: Sequence[Run]) -> list[str]:
    """Those of `SHARED` in which the runs differ."""
    found = []
    for key in SHARED:
        values = set()
        for r in runs:
            value: Any = settings(r)
            for name in key.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            if value is not None:
                values.add(json.dumps(value, sort_keys=True, default=str))
        if len(values) > 1:
            found.append(key)
    return found


def _notes(
    runs: Sequence[Run], split: str, start: float | None, highest: float, apart: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    if differ := [key for key in unlike(runs) if key not in apart]:
        notes.append(
            f"These runs differ in {', '.join(differ)}: their rewards or drifts are of different "
            "things, and neither means nor curves over them say anything."
        )
    masked = dict.fromkeys(r.method for r in runs if any(p.policy != "exported" for p in r.points))
    if masked:
        notes.append(
            "A masked policy is two policies; budgets, curves and texts are of the exported one, "
            f"without its mask: {', '.join(masked)}."
        )
    for r in runs:
        if len(agents := r.start.get("agents") or ()) > 1:
            notes.append(
                f"{r.name} has {len(agents)} agents ({', '.join(agents)}); only {r.agent} is shown."
            )
    failed = [r for r in runs if r.failed]
    if failed:
        notes.append(
            f"{len(failed)} of {len(runs)} runs failed or diverged; they count with their last "
            f"finite checkpoint: {', '.join(r.name for r in failed)}."
        )
    going = [r for r in runs if not r.finished and not r.failed]
    if going:
        notes.append(
            f"{len(going)} of {len(runs)} runs are not finished: "
            f"{', '.join(r.name for r in going)}."
        )
    if split == "test" and start is None:
        notes.append(
            "The initial model has no test evaluation; its validation reward stands for it."
        )
    if highest > 1.0:
        notes.append(
            f"Rewards reach {highest:.3g}; the normalised area needs rewards of at most 1 and is "
            "left out."
        )
    seeds = {
        m: tuple(sorted(r.seed for r in runs if r.method == m)) for m in {r.method for r in runs}
    }
    if len({tuple(sorted(set(s))) for s in seeds.values()}) > 1:
        notes.append("The methods have different seeds; differences between them are not paired.")
    return tuple(notes)
