"""`tether grue run`: anchors, then all cells as worker processes, their metrics, the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from rich.console import Console

from tether.analysis.grue import Anchor
from tether.analysis.power import too_few
from tether.config.errors import UserError
from tether.config.json_file import read_mapping
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.config.whole_file import write_whole
from tether.records import Damaged
from tether.reports.grue.anchors_file import RECOMPUTE
from tether.reports.grue.results import UNMEASURED, finished, has_end
from tether.studies.grue import anchors as anchoring
from tether.studies.grue import scoring
from tether.studies.grue.cells import Cell, Plan, free_cells, jobs, tuned
from tether.studies.grue.declaration import checked, declare
from tether.studies.grue.metrics import Entry, entries
from tether.studies.grue.planning import Asked, planned
from tether.studies.grue.same_examples import check_record, check_same
from tether.studies.grue.starts import check_starts
from tether.studies.workers import Job, run_jobs


@dataclass(frozen=True)
class Ready:
    """One task with everything that its cells are measured by."""

    entries: Sequence[Entry]
    anchors: Sequence[Anchor]
    examples: anchoring.Examples
    stamp: str
    splits: Mapping[str, str] = field(default_factory=dict)
    """Validation and test split -> hash that the records of all cells have of it."""


def main(
    asked: Asked,
    *,
    workers: int | None = None,
    per_device: int = 1,
    retry: bool = False,
    console: Console | None = None,
    only: Callable[[Cell], bool] = lambda cell: True,
    measuring: bool = True,
) -> tuple[Path, bool]:
    """Run what is not finished, measure it. Returns the folder, and whether every cell has finished
    and is measured. Where the metrics of a cell fail, the others go on.

    Args:
        only: cells that the benchmark consists of, of all that the options give (a method with
            fewer seeds than the others, say); what one starts from has to be among them.
        measuring: False = only train, and leave the metrics to `measure_finished`.
    Raises:
        UserError: before the first worker, for anything that is wrong.
        SystemExit: 130 or 143 after Ctrl-C or SIGTERM; the same command goes on.
    """
    console = console or Console()
    plan, made = planned(asked, only)
    free = jobs(plan, free_cells(plan, [cell for cell, _ in made]))
    check_starts([job for _, job in [*made, *free]])
    _check([*made, *free])
    ready = _declared(plan, made, free, asked, console)
    for _, job in [*made, *free]:
        job.config.parent.mkdir(parents=True, exist_ok=True)
        write_yaml(job.config, dump(job.settings))
    by_name = {job.name: (cell, job) for cell, job in made}
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(1) as pool:  # metrics of one cell while others train
        measured: list[Future[dict[str, str]]] = []

        def ended(job: Job) -> None:
            if measuring and job.name in by_name:  # what trains nothing is no row
                measured.append(pool.submit(measure, [by_name[job.name]], ready))

        try:
            run_jobs(
                [job for _, job in [*made, *free]],
                plan.folder,
                workers=workers,
                per_device=per_device,
                retry=retry,
                console=console,
                ended=ended,
            )
            for done in measured:
                failed |= done.result()
        except BaseException:  # Ctrl-C: the next call measures what is queued
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    whole = all(finished(job.folder) for _, job in [*made, *free])
    if not measuring:
        return plan.folder, whole
    failed |= measure([(c, j) for c, j in made if c.name not in failed], ready)
    _record(plan.folder, made, failed, console)
    return plan.folder, not failed and whole


def measure_finished(
    asked: Asked,
    *,
    console: Console | None = None,
    only: Callable[[Cell], bool] = lambda cell: True,
) -> tuple[Path, bool]:
    """Metrics of the finished cells that have none; nothing is trained. What the options give is
    declared, and failures are written, as `main` does. Returns the folder, and whether none failed.

    Raises UserError: no cell has finished, or anything else that is wrong before the first metric.
    """
    console = console or Console()
    plan, made = planned(asked, only)
    if not any(finished(job.folder) for _, job in made):
        raise UserError(f"{plan.folder} has no finished cell of this benchmark to measure")
    free = jobs(plan, free_cells(plan, [cell for cell, _ in made]))
    failed = measure(made, _declared(plan, made, free, asked, console))
    _record(plan.folder, made, failed, console)
    return plan.folder, not failed


def _declared(
    plan: Plan,
    made: Sequence[tuple[Cell, Job]],
    free: Sequence[tuple[Cell, Job]],
    asked: Asked,
    console: Console,
) -> dict[str, Ready]:
    """The anchors of every task, and the benchmark in `grue.json`; told where its seeds are too
    few for a verdict."""
    checked(plan, made, asked.primary, asked.margin)  # before the anchors, which take their time
    ready = prepare(plan, made, console, free)
    stamps = {task: r.stamp for task, r in ready.items()}
    alone = [cell for cell, _ in free]
    now = declare(plan, made, stamps, asked.primary, asked.margin, alone)
    if now["primary"] and (why := too_few(len(now["seeds"]), len(now["primary"]))):
        console.print(f"{why} (--seeds N)", style="yellow", markup=False, highlight=False)
    return ready


def _check(made: Sequence[tuple[Cell, Job]]) -> None:
    """What would stop a run before its first update, found here: one line and no failed workers."""
    from tether.train.build import build_parts, check_data

    seen = set()
    for _, job in made:
        parts = build_parts(job.settings)
        s, scored = job.settings, parts.algorithm.uses_rewards  # then the training rows are too
        data = (repr(s.data), repr(s.rewards), repr(s.judges), scored)
        if data not in seen:
            seen.add(data)
            check_data(job.settings, parts)


def prepare(
    plan: Plan,
    made: Sequence[tuple[Cell, Job]],
    console: Console,
    free: Sequence[tuple[Cell, Job]] = (),
) -> dict[str, Ready]:
    """The anchors of every task, told where one is dropped. free: runs that measure what costs no
    training. Raises UserError, also where cells of a task have other examples."""
    found = {}
    for task in plan.tasks:
        mine = [j for c, j in made if c.task == task]
        job = mine[0]
        listed = entries(task, plan.terms[task], plan.rewards)
        anchoring.check_cuts(task, listed, [j.settings.data for j in mine])
        choosing = [j for c, j in made if c.task == task and tuned(plan, task, c.method)]
        splits = check_same([*mine, *(j for c, j in free if c.task == task)], choosing)
        rows = anchoring.examples(job.settings)
        given = partial(anchoring.given, job.settings)
        kept = anchoring.store(plan.folder, task, listed, rows, given)
        for a in kept:
            if a.dropped:
                said = f"{task}: {a.metric} is left out: {a.dropped}"
                console.print(said, markup=False, highlight=False)
        file = plan.folder / anchoring.FOLDER / f"{task}.json"
        stamp = str(read_mapping(file, RECOMPUTE, "sha256")["sha256"])
        found[task] = Ready(listed, kept, rows, stamp, splits)
    return found


def measure(made: Sequence[tuple[Cell, Job]], ready: Mapping[str, Ready]) -> dict[str, str]:
    """Metrics of every finished cell that has none yet. Returns cell -> why its metrics failed."""
    failed = {}
    for cell, job in made:
        r = ready[cell.task]
        try:
            if finished(job.folder):
                check_record(job.folder, r.splits)
                given = cache(partial(anchoring.given_again, job.settings, r.examples))
                rest = (r.entries, r.anchors, r.examples, r.stamp, given)
                scoring.score(job.folder, cell, *rest)
            else:
                has_end(job.folder)  # raises where the record is damaged
        except Damaged as e:
            failed[cell.name] = (
                f"{e}; restore the file, or delete {job.folder}: the same `tether grue run "
                "--retry` trains it again"
            )
        except Exception as e:  # of a library, a model, a metric of the user's: the others go on
            kind = "" if isinstance(e, UserError) else f"{type(e).__name__}: "
            failed[cell.name] = " ".join(f"{kind}{e}".split())[:500]
    return failed


def _record(
    folder: Path, made: Sequence[tuple[Cell, Job]], failed: Mapping[str, str], console: Console
) -> None:
    """Tell whose metrics failed and write it for the reports; cells of earlier calls stay."""
    file = folder / UNMEASURED
    try:
        before = read_mapping(file, "") if file.is_file() else {}
    except UserError:  # it says why cells of earlier calls are not measured: their next call does
        before = {}
    now = {cell.name for cell, _ in made}
    listed = {k: v for k, v in before.items() if k not in now} | dict(failed)
    if listed or file.is_file():
        write_whole(file, json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    for name, why in failed.items():
        console.print(f"{name}: its metrics FAILED: {why}", markup=False, highlight=False)
