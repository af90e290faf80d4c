"""`tether grue run`: anchors, then all cells as worker processes, their metrics, the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.console import Console

from tether.analysis.grue import Anchor
from tether.analysis.power import too_few
from tether.config.catalog import CATALOG
from tether.config.errors import UserError
from tether.config.json_file import read_mapping
from tether.config.nearest import unknown
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.config.whole_file import write_whole
from tether.records import Damaged
from tether.reports.grue.anchors_file import RECOMPUTE
from tether.reports.grue.results import UNMEASURED, finished, has_end
from tether.studies.grue import anchors as anchoring
from tether.studies.grue import mini as miniature
from tether.studies.grue import scoring
from tether.studies.grue.cells import RAW, Cell, Plan, free_cells, jobs, settings_of, tuned
from tether.studies.grue.declaration import checked, declare
from tether.studies.grue.methods import DEFAULT, ZERO_SHOT, parse
from tether.studies.grue.metrics import Entry, entries
from tether.studies.grue.same_examples import check_record, check_same
from tether.studies.grue.starts import check_starts
from tether.studies.grue.terms import OWN, TASKS, Terms, house, joined
from tether.studies.grue.terms import read as read_terms
from tether.studies.own_settings import refuse_own
from tether.studies.workers import Job, run_jobs
from tether.tasks.reading import ENDINGS
from tether.tasks.source import source_of


@dataclass(frozen=True)
class Asked:
    """The options of the command."""

    tasks: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: int | Sequence[int] = 1
    model: str = ""
    data: Path | None = None
    mini: bool = False
    out: Path | None = None
    settings: Path | None = None
    rewards: Sequence[str] = ()
    references: Sequence[str] = ()
    budgets: Sequence[float] = ()
    primary: Sequence[tuple[str, str]] | str = ()
    """Pairs of rows, or the text of `--primary`."""
    margin: float | None = None
    """None = as declared before, else the default."""
    after: Sequence[str] = ()
    """Steps of `after` that are on: what costs no training."""
    overrides: Sequence[str] = ()


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


def planned(
    asked: Asked, only: Callable[[Cell], bool] = lambda cell: True
) -> tuple[Plan, list[tuple[Cell, Job]]]:
    """The benchmark that the options give, and its cells. Raises UserError."""
    plan = with_test_rows(plan_of(asked))
    made = chosen(jobs(plan), only)
    there = {cell.task for cell, _ in made}
    return replace(plan, tasks=[t for t in plan.tasks if t in there]), made


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


def chosen(
    made: Sequence[tuple[Cell, Job]], only: Callable[[Cell], bool]
) -> list[tuple[Cell, Job]]:
    """The cells of a benchmark that is not a full cross of methods and seeds.

    Raises UserError: none is left, or one that another starts from is not.
    """
    kept = [(c, j) for c, j in made if only(c)]
    names = {c.name for c, _ in kept}
    if not kept:
        raise UserError("no cell of the benchmark is wanted")
    for cell, job in kept:
        lost = next((n for n in job.after if n not in names), None)
        if lost is not None:
            raise UserError(f"{cell.name} starts from {lost}, which is not wanted")
    return kept


def plan_of(asked: Asked) -> Plan:
    """Names looked up, terms joined; reads no data. Raises UserError."""
    tasks = list(asked.tasks) or list(TASKS)
    for task in tasks:
        if task not in CATALOG["task"]:
            raise unknown("task", task, CATALOG["task"], "--tasks")
    named = {"--tasks": tasks, "--rewards": asked.rewards, "--kl-reference": asked.references}
    for option, names in named.items():
        twice = next((n for n in names if list(names).count(n) > 1), None)
        if twice:
            raise UserError(f"{option} names '{twice}' twice")
    wanted = list(asked.methods) or list(miniature.METHODS if asked.mini else DEFAULT)
    # every method's perplexity is told as a share of the raw model's
    methods = parse(wanted if ZERO_SHOT in wanted else [ZERO_SHOT, *wanted])
    refuse_own(asked.overrides, OWN, "the command line")
    if set(methods) == {ZERO_SHOT}:
        refuse_own(asked.overrides, {"updates": "zero-shot trains nothing"}, "the command line")
    common, single = read_terms(asked.settings, list(methods)) if asked.settings else (Terms(), {})
    terms = {}
    for task in tasks:
        first = [miniature.terms(), miniature.of_task(task)] if asked.mini else [house(task)]
        terms[task] = joined(*first, common, single.get(task, Terms()))
    name = "grue-mini" if asked.mini else "grue"
    plan = Plan(
        folder=asked.out or Path("runs") / name,
        tasks=tasks,
        methods=methods,
        seeds=range(asked.seeds) if isinstance(asked.seeds, int) else list(asked.seeds),
        terms=terms,
        data={t: data_of(asked.data, t) for t in tasks} if asked.data is not None else {},
        mini=asked.mini,
        rewards=asked.rewards,
        references=asked.references,
        budgets=asked.budgets,
        model=asked.model,
        overrides=[*asked.overrides, *(f"--after.{step}=true" for step in asked.after)],
    )
    _check_references(plan)
    _check_after(plan, asked.settings)
    return plan


def _check_after(plan: Plan, file: Path | None) -> None:
    """Raises UserError: `after` where no method of a task trains on a reward, so that nothing would
    be measured."""
    on = any(o.startswith("--after.") for o in plan.overrides)
    of_task = {t: any(tuned(plan, t, m) for m in plan.methods.values()) for t in plan.tasks}
    idle = [t for t in plan.tasks if not of_task[t]]
    terms = plan.terms
    asking = [t for t in plan.tasks if _asks(terms[t].all) or _asks(terms[t].tuned)]
    if on and len(idle) == len(plan.tasks):
        where = "--after"
    elif asking and set(asking) <= set(idle):
        where = f"after in {file} ({', '.join(asking)})"
    else:
        return
    raise UserError(
        f"{where} measures for methods that train on a reward what the weights that they start "
        "from give without training; --methods names none (ppo, supervised+nlpo ...)"
    )


def _asks(layer: Mapping[str, Any]) -> bool:
    """Whether a layer of settings says of `after` more than that something is off."""
    return any(v not in (None, False) for v in (layer.get("after") or {}).values())


def _check_references(plan: Plan) -> None:
    for name in plan.references:
        if name == RAW:
            continue
        if name not in plan.methods:
            fit = [m for m in plan.methods.values() if m.recipe]
            fit = [m for m in fit if not any(tuned(plan, t, m) for t in plan.tasks)]
            where = "--kl-reference (raw, or one of --methods that trains on human completions)"
            raise unknown("reference", name, [RAW, *(m.name for m in fit)], where)
        if name == ZERO_SHOT or any(tuned(plan, t, plan.methods[name]) for t in plan.tasks):
            raise UserError(
                f"--kl-reference {name}: a reference is raw (the model as it is) or a method that "
                "trains on human completions"
            )


def data_of(folder: Path, task: str) -> str:
    """Where a task's data are below `--data`: TASK, TASK.jsonl ... or TASK_*. Raises UserError."""
    if not folder.is_dir():
        raise UserError(f"--data {folder} is no folder; it holds a file or folder for each task")
    exact = [folder / f"{task}{e}" for e in ("", *ENDINGS) if (folder / f"{task}{e}").exists()]
    close = sorted(folder.glob(f"{task}_*"))
    found = exact[:1] or close
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        raise UserError(f"--data {folder} has several sets for {task}: {names}; call one '{task}'")
    if not found:
        there = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise UserError(
            f"--data {folder} has no '{task}', '{task}.jsonl' or '{task}_*' for the task {task}; "
            f"it holds {there}"
        )
    return str(found[0])


def with_test_rows(plan: Plan) -> Plan:
    """Where a task's source has no test or validation split with references, rows are held out, of
    a small set at most a quarter for each."""
    terms = dict(plan.terms)
    for task in plan.tasks:
        # the settings alone: a run that is there was made with the rows held out below
        settings = settings_of(plan, Cell(task, plan.methods[ZERO_SHOT], 0))
        data, source = settings.data, source_of(settings.data)
        held = {"validation_rows": data.validation_rows, "test_rows": data.test_rows}
        wanted = {k: held[k] for k in held if source.own(k.removesuffix("_rows")) is None}
        if "test_rows" in wanted and not data.test_rows:
            wanted["test_rows"] = settings.evaluation.test_prompts
        if wanted:
            most = max(1, len(source.read("train")) // 4)
            rows = {k: min(v, most) for k, v in wanted.items()}
            terms[task] = joined(terms[task], Terms(all={"data": rows}))
    return replace(plan, terms=terms)


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
