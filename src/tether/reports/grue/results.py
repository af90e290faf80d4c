"""A benchmark's folder as its reports see it: declared rows, anchors, scores of finished cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tether.analysis.comparisons import distinct
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
from tether.config.json_file import read_mapping
from tether.records import Damaged, read_lines
from tether.reports.grue.anchors_file import read_anchors
from tether.reports.grue.sound import check_declared, check_metrics, check_weights
from tether.reports.methods import PRIMARY_BUDGET
from tether.reports.runs import FAILURES, LISTS_FAILURES, read_run

FINAL = "final"
ZERO_SHOT = "zero-shot"
"""The row of the model as it is."""
SCORES = "scores.json"
"""In a cell: the metrics of each of its tested weights."""
UNMEASURED = "unmeasured.json"
"""Cell -> why its metrics failed, of the cells whose runs have finished."""
REDECLARE = (
    "delete it and repeat the `tether grue run` commands of this folder, --primary and --margin "
    "included: they write it again, and repeat no finished cell"
)
"""What mends a damaged grue.json."""


METRICS = "its metrics: "
"""Before why the metrics of a cell failed, which every call measures again."""
RETRY = " --retry` repeats what failed"
"""What mends failed runs, after `tether grue run`."""


def of_a_run(failure: str) -> bool:
    """Whether it was a run that failed, and not the metrics of one that has finished."""
    return not failure.startswith(METRICS)


def has_end(folder: Path) -> bool:
    """Whether the run's record has its end line. Raises Damaged."""
    record = folder / "record.jsonl"
    return record.is_file() and any(x.get("kind") == "end" for x in read_lines(record))


def finished(folder: Path) -> bool:
    """The same; a damaged record is no finished run's."""
    try:
        return has_end(folder)
    except Damaged:
        return False


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

    @property
    def has_seeds(self) -> bool:
        """False for the model as it is: one run, whatever the number of seeds."""
        return self.method != ZERO_SHOT


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
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """metric -> further values of it, such as those over subsets of the examples."""


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
class Free:
    """A run that trains nothing: it measures what the weights that methods start from give without
    training. No row."""

    name: str
    folder: Path
    task: str
    start: str
    """Method whose final weights these are; empty = the model as it is."""
    seed: int
    trained_on: str
    """The one metric that is the reward; empty = the task's reward."""
    reference: str
    """KL reference that the start was trained with; empty = it has none."""

    @property
    def finished(self) -> bool:
        return finished(self.folder)


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
    """row -> seed -> cell; zero-shot has one cell, which no seed has a part in."""


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
    damaged: Mapping[str, str]
    """Of them, cell -> what is wrong with a file of it, and what mends it."""
    failures: Mapping[str, str]
    """Cell -> the last line of its log, or why its metrics failed."""
    free: tuple[Free, ...] = ()

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
        """Of every finished seed, in order; one where the row has no seeds."""
        return list(self.by_seeds(task, row, budget).values())

    def by_seeds(self, task: Task, row: Row, budget: float | None) -> dict[int, Weights]:
        """The same with their seeds."""
        name = self.names(row, budget)
        cells = task.cells.get(row.label, {})
        seeds = self.seeds if row.has_seeds else sorted(cells)[:1]
        return {s: w for s in seeds if s in cells and (w := cells[s].at(name)) is not None}

    def runs(self, row: Row) -> int:
        """How many a task has of a row."""
        return len(self.seeds) if row.has_seeds else 1

    def score(self, task: Task, row: Row, family: Family, budget: float | None) -> Score | None:
        """None where no seed has finished, or nothing of the family is measured."""
        return _summarised(task, family, self.weights(task, row, budget))

    def paired(
        self, task: Task, a: str, b: str
    ) -> tuple[tuple[int, ...], Score | None, Score | None]:
        """(seeds, task scores of two rows within the primary budget on these), the seeds being
        those that both have. One run without a seed stands beside each."""
        of = [self.row(a), self.row(b)]
        found = [
            {s: w for s, w in self.by_seeds(task, x, self.budget).items()
             if _score(task, "task", w) is not None}
            for x in of
        ]  # fmt: skip
        seeds = [set(f) for x, f in zip(of, found, strict=True) if x.has_seeds]
        shared = tuple(sorted(set.intersection(*seeds))) if seeds else ()
        kept = [
            [f[s] for s in shared] if x.has_seeds else list(f.values())
            for x, f in zip(of, found, strict=True)
        ]
        first, second = (_summarised(task, "task", w) for w in kept)
        return shared, first, second

    def aggregate(self, row: Row, family: Family, budget: float | None) -> Score | None:
        """Over all tasks that have the family; None while a cell of one is missing, since a mean
        over other tasks would be another quantity."""
        tasks = [t for t in self.tasks if any(a.counts(family) for a in t.anchors)]
        scores = [self.score(t, row, family, budget) for t in tasks]
        whole = [s for s in scores if s is not None and len(s.seeds) == self.runs(row)]
        return aggregate(whole) if whole and len(whole) == len(tasks) else None

    def by_seed(self, label: str) -> list[float] | None:
        """Aggregate task score of a row within the primary budget, on every seed: what is paired.
        One run without a seed stands beside each of them."""
        row = self.row(label)
        found = self.aggregate(row, "task", self.budget)
        if found is None:
            return None
        return list(found.seeds) if row.has_seeds else [found.mean] * len(self.seeds)


def _score(task: Task, family: Family, weights: Weights) -> float | None:
    scaled = on_scale(task.anchors, weights.measured.values, task.perplexity)
    return family_score(task.anchors, family, scaled)


def _summarised(task: Task, family: Family, weights: Sequence[Weights]) -> Score | None:
    found = [
        (value, left_out_scores(task.anchors, family, w.measured, task.perplexity))
        for w in weights
        if (value := _score(task, family, w)) is not None
    ]
    return summarised([v for v, _ in found], [x for _, x in found]) if found else None


def read(folder: Path) -> Results:
    """Raises UserError: the folder is no benchmark's, no cell has finished, or a file that all
    cells share is damaged; a cell with a damaged file counts as unfinished."""
    file = folder / "grue.json"
    if not file.is_file():
        raise UserError(f"{folder} holds no benchmark: `tether grue run --out {folder}` makes one")
    declared = read_mapping(file, REDECLARE)
    try:
        check_declared(declared)
        return _read(folder, declared)
    except (LookupError, TypeError, ValueError, AttributeError) as e:
        if isinstance(e, UserError):
            raise
        raise UserError(f"{file} is damaged ({type(e).__name__}: {e}): {REDECLARE}") from e


def _read(folder: Path, declared: Mapping[str, Any]) -> Results:
    rows = tuple(Row(label, **about) for label, about in declared["rows"].items())
    completions: dict[str, dict[str, int]] = {}
    cells: dict[str, dict[str, dict[int, Cell]]] = {}
    missing = []
    damaged: dict[str, str] = {}
    anchors = {t: read_anchors(folder, t, declared["anchors"][t]) for t in declared["tasks"]}
    recorded = any(folder.glob("*/*/record.jsonl"))  # an archive of the scores alone has none
    for c in declared["cells"]:
        completions.setdefault(c["task"], {})[c["label"]] = c["completions"]
        where, stamp = folder / c["name"], declared["anchors"][c["task"]]
        try:
            found, examples = anchors[c["task"]]
            weights = scores_of(where, stamp, found, examples)
            if weights is not None and recorded:
                _check_record(where)
        except (Damaged, UserError) as e:
            weights, damaged[c["name"]] = None, str(e)
        if weights is None:
            missing.append(c["name"])
            continue
        cell = Cell(where, c["label"], c["seed"], weights)
        cells.setdefault(c["task"], {}).setdefault(c["label"], {})[c["seed"]] = cell
    failures = _failures(folder)
    if not cells:
        why = [*(f"{k}: {v}" for k, v in failures.items()), *damaged.values()][:1]
        again = RETRY if any(map(of_a_run, failures.values())) else "` goes on"
        raise UserError(
            f"{folder}: no cell has finished yet{f' ({why[0]})' if why else ''}; the same "
            f"`tether grue run{again}"
        )
    return Results(
        folder,
        bool(declared["mini"]),
        tuple(_task(t, *a, declared["anchors"][t], cells.get(t, {})) for t, a in anchors.items()),
        rows,
        tuple(declared["seeds"]),
        tuple(sorted(set(declared["budgets"]))),
        tuple(distinct(declared["primary"])),
        float(declared["margin"]),
        completions,
        len(declared["cells"]),
        tuple(missing),
        damaged,
        failures,
        tuple(Free(folder=folder / f["name"], **f) for f in declared.get("free", [])),
    )


def scores_of(
    folder: Path, stamp: str, anchors: Sequence[Anchor], examples: int
) -> tuple[Weights, ...] | None:
    """What `scores.json` of a run holds; None where it is not there, or under other anchors than
    these, of that hash and so many examples. Raises UserError where it is damaged."""
    file = folder / SCORES
    if not file.is_file():
        return None
    mend = "the same `tether grue run` measures the cell again"
    content = read_mapping(file, mend, "anchors", "weights")
    if content["anchors"] != stamp:
        return None
    try:
        weights = tuple(map(_weights, content["weights"]))
        if not weights:
            raise ValueError("it has no weights")
        for w in weights:
            m = w.measured
            check_metrics(m.values, m.left_out, w.perplexity, anchors, examples)
    except (LookupError, TypeError, ValueError, AttributeError) as e:
        raise UserError(f"{file} is damaged ({type(e).__name__}: {e}): {mend}") from e
    return weights


def _check_record(folder: Path) -> None:
    """Of a run that is measured, and so had finished. Raises UserError, with the mend."""
    file = folder / "record.jsonl"
    mend = f"restore it, or delete {folder}: the same `tether grue run --retry` trains it again"
    try:
        if file.is_file() and read_run(folder).finished:
            return
        why = "it has no end line" if file.is_file() else "it is not there"
    except (LookupError, TypeError, ValueError, AttributeError) as e:
        why = str(e) if isinstance(e, UserError) else f"{type(e).__name__}: {e}"
    raise UserError(f"{file} was changed after the run had finished ({why}): {mend}")


def _failures(folder: Path) -> dict[str, str]:
    file, unmeasured = folder / FAILURES, folder / UNMEASURED
    found: dict[str, str] = {}
    if file.is_file():
        for k, v in read_mapping(file, LISTS_FAILURES).items():
            if not isinstance(v, dict) or "error" not in v:
                raise UserError(f"{file} is damaged ('{k}' has no 'error'): {LISTS_FAILURES}")
            found[k] = str(v["error"])
    if unmeasured.is_file():
        mend = "delete it: the next `tether grue run` writes it again"
        found |= {k: f"{METRICS}{v}" for k, v in read_mapping(unmeasured, mend).items()}
    return found


def _task(
    name: str,
    anchors: tuple[Anchor, ...],
    examples: int,
    stamp: str,
    cells: Mapping[str, Mapping[int, Cell]],
) -> Task:
    raw = next((c.at(FINAL) for c in cells.get(ZERO_SHOT, {}).values()), None)
    return Task(name, anchors, examples, stamp, raw.perplexity if raw is not None else None, cells)


def _weights(found: Mapping[str, Any]) -> Weights:
    check_weights(found)
    return Weights(
        tuple(found["names"]),
        found["policy"],
        int(found["update"]),
        found["drift"],
        found["reward"],
        Measured(found["values"], found["left_out"]),
        found["perplexity"],
        found.get("parts", {}),
    )
