"""frontier.csv: one row for every evaluation of the exported policy, and what the chart draws;
after them what costs no training, told apart by the column `kind`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from tether.analysis.frontier import non_dominated
from tether.records import BaselinePoint, EvalPoint, setting_of
from tether.reports.methods import Study
from tether.reports.runs import Run, drift

COLUMNS = (
    "method",
    "seed",
    "run",
    "agent",
    "split",
    "weights",
    "update",
    "side",
    "common",
    "drift_nats_per_completion",
    "reward",
    "reward_se",
    "prompts",
    "checkpoint",
    "non_dominated",
    "reset",
    "failed",
    "kind",
    "setting",
    "drift_is",
    "valid",
)


@dataclass(frozen=True)
class Row:
    """One evaluation. `checkpoint`: drawn as a point; `reset`: drawn as one side of a reset."""

    run: Run
    point: EvalPoint
    checkpoint: bool
    non_dominated: bool
    reset: str

    @property
    def drift(self) -> float:
        return drift(self.point)


def rows(study: Study) -> list[Row]:
    """In order of method, seed, run, record.

    Non-dominated is meant within a method and seed, over all its settings: these points are the
    corners of that seed's frontier.
    """
    out: list[Row] = []
    for method in study.methods:
        for seed in method.seeds:
            common = [(r, p) for r in seed.runs for p in r.validation()]
            corners = {
                id(common[i][1]) for i in non_dominated([(drift(p), p.reward) for _, p in common])
            }
            counted = {id(p) for _, p in common}
            for run in seed.runs:
                sides = {id(p): p.side for p in run.around_resets()}
                out += [
                    Row(run, p, id(p) in counted, id(p) in corners, sides.get(id(p), ""))
                    for p in run.points
                    if p.policy == "exported"
                ]
    return out


def baselines(study: Study) -> list[tuple[Run, BaselinePoint]]:
    """Every point of every run that cost no training."""
    return [(r, p) for r in study.runs for p in r.baselines]


def as_csv(table: list[Row], free: Sequence[tuple[Run, BaselinePoint]] = ()) -> str:
    """The file's text; judges follow as columns `judge.<name>`."""
    points = [*(row.point for row in table), *(p for _, p in free)]
    judges = sorted({name for p in points for name in p.judges})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"judge.{j}" for j in judges)])
    for row in table:
        p = row.point
        writer.writerow(
            [
                row.run.method,
                row.run.seed,
                row.run.name,
                p.agent,
                p.split,
                p.weights,
                p.update,
                p.side,
                _flag(p.common),
                repr(row.drift),
                repr(p.reward),
                _number(p.reward_se),
                p.prompts,
                _flag(row.checkpoint),
                _flag(row.non_dominated),
                row.reset,
                row.run.failed,
                "evaluation",
                "",
                "measured",
                "true",
                *(p.judges.get(j, "") for j in judges),
            ]
        )
    writer.writerows(_free(run, p, judges) for run, p in free)
    return out.getvalue()


def _free(run: Run, p: BaselinePoint, judges: Sequence[str]) -> list[object]:
    """A row without weights of an update: neither a checkpoint nor one side of a reset."""
    known: dict[str, object] = {
        "method": run.method,
        "seed": run.seed,
        "run": run.name,
        "agent": p.agent,
        "split": p.split,
        "common": "false",
        "drift_nats_per_completion": repr(p.drift),
        "reward": repr(p.reward),
        "reward_se": _number(p.reward_se),
        "prompts": p.prompts,
        "checkpoint": "false",
        "non_dominated": "false",
        "failed": run.failed,
        "kind": p.baseline,
        "setting": setting_of(p),
        "drift_is": p.drift_is,
        "valid": _flag(p.valid),
    }
    return [*(known.get(c, "") for c in COLUMNS), *(p.judges.get(j, "") for j in judges)]


def _number(value: float | None) -> str:
    """Empty where a record has null: the error of a single prompt."""
    return "" if value is None else repr(value)


def _flag(value: bool) -> str:
    return "true" if value else "false"
