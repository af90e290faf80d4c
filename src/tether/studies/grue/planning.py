"""What the options of `tether grue run` ask for: names looked up, terms joined, cells listed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tether.config.catalog import CATALOG
from tether.config.errors import UserError
from tether.config.nearest import unknown
from tether.studies.grue import mini as miniature
from tether.studies.grue.cells import RAW, Cell, Plan, jobs, settings_of, tuned
from tether.studies.grue.methods import DEFAULT, ZERO_SHOT, parse
from tether.studies.grue.terms import OWN, TASKS, Terms, house, joined
from tether.studies.grue.terms import read as read_terms
from tether.studies.own_settings import refuse_own
from tether.studies.workers import Job
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


def planned(
    asked: Asked, only: Callable[[Cell], bool] = lambda cell: True
) -> tuple[Plan, list[tuple[Cell, Job]]]:
    """The benchmark that the options give, and its cells. Raises UserError."""
    plan = with_test_rows(plan_of(asked))
    made = chosen(jobs(plan), only)
    there = {cell.task for cell, _ in made}
    return replace(plan, tasks=[t for t in plan.tasks if t in there]), made


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
