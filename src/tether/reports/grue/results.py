"""A benchmark's folder as its reports see it: declared rows, anchors, scores of finished cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tether.analysis.grue import (
    Anchor,
    Family,
    Measured,
    Score,
    aggregate,
    family_score,
    left_out_scores,
    on_scale,
    summarised,
)
from tether.config.errors import UserError
from tether.reports.methods import PRIMARY_BUDGET
from tether.reports.runs import FAILURES

FINAL = "final"


@dataclass(frozen=True)
class Row:
    """One row of the leaderboard, as declared."""

    label: str
    method: str
    start: str
    tuned: bool
    """Trains on a reward: the only rows that a drift budget chooses weights for."""
    trained_on: str
    """The one metric that it is trained on; empty = the task's reward."""
    reference: str


@dataclass(frozen=True)
class Weights:
    """One tested set of weights of a cell."""

    names: tuple[str, ...]
    policy: str
    update: int
    drift: float | None
    reward: float | None
    measured: Measured
    perplexity: float | None


@dataclass(frozen=True)
class Cell:
    """A finished cell."""

    folder: Path
    label: str
    seed: int
    weights: tuple[Weights, ...]

    def at(self, name: str, policy: str = "exported") -> Weights | None:
        """The weights of a name (`final`, `budget:4`)."""
        return next((w for w in self.weights if name in w.names and w.policy == policy), None)


@dataclass(frozen=True)
class Task:
    name: str
    anchors: tuple[Anchor, ...]
    examples: int
    sha256: str
    """Of the anchors, which hold the hash of the examples and the metrics' signatures."""
    perplexity: float | None
    """Of the model as it is, on the human text."""
    cells: Mapping[str, Mapping[int, Cell]]
    """row -> seed -> cell; zero-shot has the same cell on every seed."""


@dataclass(frozen=True)
class Results:
    folder: Path
    mini: bool
    tasks: tuple[Task, ...]
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    budgets: tuple[float, ...]
    primary: tuple[tuple[str, str], ...]
    margin: float
    completions: Mapping[str, Mapping[str, int]]
    """task -> row -> completions that a run trains on."""
    cells: int
    """How many were declared."""
    missing: tuple[str, ...]
    """Names of cells that have no scores."""
    failures: Mapping[str, str]
    """Cell -> the last line of its log."""

    @property
    def budget(self) -> float:
        """The primary one."""
        return PRIMARY_BUDGET if PRIMARY_BUDGET in self.budgets else self.budgets[-1]

    def row(self, label: str) -> Row:
        return next(r for r in self.rows if r.label == label)

    def names(self, row: Row, budget: float | None) -> str:
        """What the weights that stand for a row are called: the best within a budget where a
        reward was trained on and a budget is given, else the final ones."""
        return FINAL if budget is None or not row.tuned else f"budget:{budget:g}"

    def weights(self, task: Task, row: Row, budget: float | None) -> list[Weights]:
        """Of every finished seed, in order."""
        name = self.names(row, budget)
        cells = task.cells.get(row.label, {})
        return [w for s in self.seeds if s in cells and (w := cells[s].at(name)) is not None]

    def score(self, task: Task, row: Row, family: Family, budget: float | None) -> Score | None:
        """None where no seed has finished, or nothing of the family is measured."""
        found = [
            (value, left_out_scores(task.anchors, family, w.measured, task.perplexity))
            for w in self.weights(task, row, budget)
            if (value := _score(task, family, w)) is not None
        ]
        if not found:
            return None
        return summarised([v for v, _ in found], [x for _, x in found])

    def aggregate(self, row: Row, family: Family, budget: float | None) -> Score | None:
        """Over all tasks that have the family; None while a cell of one is missing, since a mean
        over other tasks would be another quantity."""
        tasks = [t for t in self.tasks if _counts(t, family)]
        scores = [self.score(t, row, family, budget) for t in tasks]
        whole = [s for s in scores if s is not None and len(s.seeds) == len(self.seeds)]
        return aggregate(whole) if whole and len(whole) == len(tasks) else None


def _counts(task: Task, family: Family) -> bool:
    return any(a.family == family and not a.dropped for a in task.anchors)


def _score(task: Task, family: Family, weights: Weights) -> float | None:
    scaled = on_scale(task.anchors, weights.measured.values, task.perplexity)
    return family_score(task.anchors, family, scaled)


def read(folder: Path) -> Results:
    """Raises UserError: the folder is no benchmark's, or no cell has finished."""
    file = folder / "grue.json"
    if not file.is_file():
        raise UserError(f"{folder} holds no benchmark: `tether grue run --out {folder}` makes one")
    declared = _json(file)
    rows = tuple(Row(label, **about) for label, about in declared["rows"].items())
    completions: dict[str, dict[str, int]] = {}
    cells: dict[str, dict[str, dict[int, Cell]]] = {}
    missing = []
    for c in declared["cells"]:
        completions.setdefault(c["task"], {})[c["label"]] = c["completions"]
        scores = folder / c["name"] / "scores.json"
        stamp = declared["anchors"][c["task"]]
        content = _json(scores) if scores.is_file() else {}
        if content.get("anchors") != stamp:
            missing.append(c["name"])
            continue
        cell = Cell(scores.parent, c["label"], c["seed"], tuple(map(_weights, content["weights"])))
        cells.setdefault(c["task"], {}).setdefault(c["label"], {})[c["seed"]] = cell
    if not cells:
        raise UserError(f"{folder}: no cell has finished yet; the same `tether grue run` goes on")
    seeds = tuple(declared["seeds"])
    return Results(
        folder,
        bool(declared["mini"]),
        tuple(_task(folder, t, rows, seeds, cells.get(t, {})) for t in declared["tasks"]),
        rows,
        seeds,
        tuple(sorted(declared["budgets"])),
        tuple((a, b) for a, b in declared["primary"]),
        float(declared["margin"]),
        completions,
        len(declared["cells"]),
        tuple(missing),
        _failures(folder),
    )


def _failures(folder: Path) -> dict[str, str]:
    file = folder / FAILURES
    return {k: str(v["error"]) for k, v in _json(file).items()} if file.is_file() else {}


def _task(
    folder: Path,
    name: str,
    rows: Sequence[Row],
    seeds: Sequence[int],
    cells: Mapping[str, Mapping[int, Cell]],
) -> Task:
    content = _json(folder / "anchors" / f"{name}.json")
    spread = {label: dict(by_seed) for label, by_seed in cells.items()}
    raw = next((r.label for r in rows if not r.tuned and r.label == "zero-shot"), "")
    initial = None
    if spread.get(raw):
        alone = next(iter(spread[raw].values()))
        spread[raw] = dict.fromkeys(seeds, alone)
        final = alone.at(FINAL)
        initial = final.perplexity if final is not None else None
    return Task(
        name,
        tuple(Anchor(**a) for a in content["metrics"]),
        int(content["examples"]),
        str(content["sha256"]),
        initial,
        spread,
    )


def _weights(found: Mapping[str, Any]) -> Weights:
    return Weights(
        tuple(found["names"]),
        found["policy"],
        int(found["update"]),
        found["drift"],
        found["reward"],
        Measured(found["values"], found["left_out"]),
        found["perplexity"],
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise UserError(f"{file} cannot be read: {e}") from e
    return found
