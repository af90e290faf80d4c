"""Run folders as the reports see them: their points, events, settings, and how they ended."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tether.analysis.comparisons import distinct
from tether.config.errors import UserError
from tether.config.json_file import read_mapping
from tether.records import BASELINES, DRIFT, INTERPOLATION, BaselinePoint, EvalPoint, read_lines

FAILURES = "failures.json"
"""In a study folder: run name -> {method, seed, returncode, error}."""
LISTS_FAILURES = "delete it: it lists the runs that failed, which are then repeated"
"""What mends a damaged list of failures."""
STUDY = "study.json"
"""In a study folder: name, methods in order, seeds, declared comparisons and their margin."""


@dataclass(frozen=True)
class Run:
    """One run folder. Points that are not finite are left out and make the run `failed`."""

    folder: Path
    name: str
    method: str
    seed: int
    agent: str = ""
    points: tuple[EvalPoint, ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    baselines: tuple[BaselinePoint, ...] = ()
    """What costs no training: of the record and of the files beside it, each once."""
    updates: int = 0
    """Completed updates."""
    finished: bool = False
    failed: str = ""
    """Why the run counts as failed (diverged, stopped with an error); empty = it does not."""
    start: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    def validation(self) -> list[EvalPoint]:
        """The points that count for budgets: common times, exported policy, in order."""
        return [p for p in self.around_resets() if p.common]

    def around_resets(self) -> list[EvalPoint]:
        """The same with both sides of every weight event."""
        return [
            p
            for p in self.points
            if p.split == "validation" and p.weights == "live" and p.policy == "exported"
        ]

    def test(self) -> list[EvalPoint]:
        return [p for p in self.points if p.split == "test" and p.policy == "exported"]


@dataclass(frozen=True)
class Plan:
    """What a study declared before its runs."""

    name: str = ""
    methods: tuple[str, ...] = ()
    primary: tuple[tuple[str, str], ...] = ()
    """Primary comparisons, (method, against), each once."""
    margin: float = 0.01


def drift(point: EvalPoint) -> float:
    """KL to the initial model, nats per completion; the initial model itself is at 0."""
    return 0.0 if point.update == 0 else point.drift[DRIFT]


def read_run(folder: Path, agent: str | None = None) -> Run:
    """One run folder.

    Args:
        folder: holds `record.jsonl`.
        agent: whose points; default: the agent of the first point.
    Raises:
        UserError: when there is no record, it has no start line, or its points have no drift.
    """
    record = folder / "record.jsonl"
    if not record.is_file():
        raise UserError(f"{folder} is not a run: it has no record.jsonl")
    try:
        lines = list(read_lines(record))
    except ValueError as e:
        raise UserError(str(e)) from e
    start = next((x for x in lines if x["kind"] == "start"), None)
    if start is None:
        raise UserError(f"{record} has no start line: the run was stopped before it began")
    raw = [{k: v for k, v in x.items() if k != "kind"} for x in lines if x["kind"] == "eval"]
    agent = agent if agent is not None else (raw[0]["agent"] if raw else "")
    mine = [EvalPoint(**x) for x in raw if x["agent"] == agent]
    for p in mine:
        if p.policy == "exported" and p.update > 0 and DRIFT not in p.drift:
            raise UserError(f"{record}: the evaluation at update {p.update} has no {DRIFT}")
    good = [p for p in mine if _finite(p)]
    end = next((x for x in lines if x["kind"] == "end"), None)
    return Run(
        folder=folder,
        name=folder.name,
        method=str(start.get("method") or folder.name),
        seed=int(start.get("seed", 0)),
        agent=agent,
        points=tuple(good),
        events=tuple(x for x in lines if x["kind"] == "event" and x.get("agent", agent) == agent),
        baselines=_baselines(folder, lines, agent),
        updates=max(
            [
                int(x["update"])
                for x in lines
                if x["kind"] == "update" and x.get("agent", agent) == agent
            ],
            default=0,
        ),
        finished=end is not None,
        failed=f"diverged: {len(mine) - len(good)} evaluations are not finite"
        if len(good) < len(mine)
        else "",
        start=start,
        end=end or {},
        environment=_environment(folder / "environment.json"),
    )


def _baselines(folder: Path, lines: list[dict[str, Any]], agent: str) -> tuple[BaselinePoint, ...]:
    """Of the record, and of the files that commands wrote later, which win: a curve of samples
    as a whole, an interpolation point by point. Points that are not finite are left out."""
    kept: dict[tuple[Any, ...], list[BaselinePoint]] = {}
    for group in (lines, *(_lines(folder / name) for name in (BASELINES, INTERPOLATION))):
        here: dict[tuple[Any, ...], list[BaselinePoint]] = {}
        for row in group:
            if row["kind"] == "baseline" and row["agent"] == agent:
                p = BaselinePoint(**{k: v for k, v in row.items() if k != "kind"})
                single = (p.how, p.at) if p.baseline == "interpolation" else ()
                here.setdefault((p.baseline, p.split, *single), []).append(p)
        kept |= here
    everything = [p for points in kept.values() for p in points]
    return tuple(p for p in everything if p.reward is not None and p.drift is not None)


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    try:
        return list(read_lines(file))
    except ValueError as e:
        raise UserError(str(e)) from e


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], Plan]:
    """Runs below run folders and study folders, in order; failed ones included.

    Raises:
        UserError: for a path that is neither, or when no run was found.
    """
    runs: dict[Path, Run] = {}
    plans: list[Plan] = []
    for path in paths:
        if (path / "record.jsonl").is_file():
            runs.setdefault(path.resolve(), read_run(path))
            continue
        if not path.is_dir():
            raise UserError(f"{path} is not a folder; give run folders or the folder of a study")
        below = sorted(p.parent for p in path.glob("*/record.jsonl") if _started(p))
        failures = failures_of(path, "method", "seed", "error")
        if not below and not failures:
            raise UserError(f"{path} holds no runs: no {path / '*' / 'record.jsonl'}")
        plans.append(_plan(path / STUDY))
        for folder in below:
            runs.setdefault(folder.resolve(), _marked(read_run(folder), failures))
        for name, why in failures.items():
            if path / name not in below:
                ghost = Run(path / name, name, str(why["method"]), int(why["seed"]))
                runs.setdefault((path / name).resolve(), _marked(ghost, failures))
    plan = plans[0] if len(plans) == 1 else Plan(methods=tuple(m for p in plans for m in p.methods))
    order = {m: i for i, m in enumerate(plan.methods)}
    return sorted(runs.values(), key=lambda r: order.get(r.method, len(order))), plan


def _marked(run: Run, failures: dict[str, dict[str, Any]]) -> Run:
    if run.name not in failures or run.finished:
        return run
    return Run(**{**vars(run), "failed": str(failures[run.name]["error"])})


def _started(record: Path) -> bool:
    return next((x["kind"] == "start" for x in read_lines(record)), False)


def _finite(point: EvalPoint) -> bool:
    """JSON has no NaN: a value that was not finite is null in the record."""
    values: list[Any] = [point.reward, 0.0 if point.update == 0 else point.drift.get(DRIFT, 0.0)]
    return all(v is not None and math.isfinite(v) for v in values)


def failures_of(folder: Path, *keys: str) -> dict[str, dict[str, Any]]:
    """Run -> why it failed, with at least these keys. Raises UserError: the list is damaged."""
    file = folder / FAILURES
    found: dict[str, dict[str, Any]] = read_mapping(file, LISTS_FAILURES) if file.is_file() else {}
    for name, why in found.items():
        if not isinstance(why, dict) or not why.keys() >= {*keys}:
            raise UserError(f"{file} is damaged (its entry '{name}'): {LISTS_FAILURES}")
    return found


def _plan(file: Path) -> Plan:
    if not file.is_file():
        return Plan()
    mend = "delete it and repeat the command of the study, which writes it again"
    read = read_mapping(file, mend, "name", "methods", "primary", "margin")
    try:
        return Plan(
            name=str(read["name"]),
            methods=tuple(read["methods"]),
            primary=tuple(distinct(read["primary"])),
            margin=float(read["margin"]),
        )
    except (TypeError, ValueError) as e:
        raise UserError(f"{file} is damaged ({e}): {mend}") from e


def _environment(file: Path) -> dict[str, Any]:
    mend = "delete it: it says where the run ran, and no number depends on it"
    return read_mapping(file, mend) if file.is_file() else {}


def settings(run: Run) -> dict[str, Any]:
    """config.yaml of a run; empty where there is none."""
    file = run.folder / "config.yaml"
    try:
        about = file.stat()
    except FileNotFoundError:
        return {}
    return copy.deepcopy(_settings(file, about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=4096)
def _settings(file: Path, changed: int, size: int) -> dict[str, Any]:
    """Once per content: a study asks for every run's many times."""
    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    mend = "restore it (a study has it in `configs/` too), or delete it: reports go without"
    try:
        found = yaml.load(file.read_text(encoding="utf-8"), Loader=fast)
    except (OSError, ValueError, yaml.YAMLError) as e:
        raise UserError(f"{file} is damaged ({' '.join(str(e).split())}): {mend}") from e
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged (it holds no mapping): {mend}")
    return found
