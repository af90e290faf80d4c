"""The cells of a benchmark: task x method x seed, each a run with resolved settings.

`zero-shot` and methods on human completions are trained once a task and seed, whatever rewards and
KL references the others are repeated with; a method from another's weights waits for that run.

What costs no training (`after` in the settings) is measured where it is needed once: best-of-n and
the oracle depend on the weights that methods start from, so a run of no updates has them, and
interpolation on each run's own final weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tether.analysis.grue import PERPLEXITY
from tether.config.catalog import CATALOG, load
from tether.config.checks import check_complete
from tether.config.compose import layered
from tether.config.compose import recipe as recipe_mapping
from tether.config.describe import part_description
from tether.config.differences import differences, told
from tether.config.errors import UserError
from tether.config.layers import merge
from tether.config.parts import build
from tether.config.run import OF_REFERENCE, RunSettings
from tether.config.sections import check_sections
from tether.config.settings import fingerprint, parse
from tether.config.text_values import read_yaml, refuse_cut
from tether.studies.grue.methods import (
    BASELINES,
    PLAIN,
    ZERO_SHOT,
    Method,
    changed,
    check_named,
    mapping_of,
)
from tether.studies.grue.metrics import part_of
from tether.studies.grue.terms import FROM_A_RUN, SHORT, Terms, grouped
from tether.studies.workers import Job

RAW = "raw"
"""The KL reference that is the model as it is."""
BUDGETS = "evaluation.budgets"
OF_TUNED = ("algorithm", "critic", "tethers")
"""What a method that trains on a reward brings; all else are the task's terms."""
OF_TRAINING = (*OF_TUNED, "updates", "batch", "optimizer")
OF_DEMONSTRATIONS = (*OF_TRAINING, "evaluation")


@dataclass(frozen=True)
class Cell:
    """One run of the benchmark."""

    task: str
    method: Method
    seed: int
    reward: str = ""
    """Metric that it trains on alone; empty = the task's reward."""
    reference: str = ""
    """KL reference: `raw`, or the method whose weights it is; empty = where it starts."""

    @property
    def free(self) -> bool:
        """Trains nothing and is no row: it measures the weights that others start from."""
        return not self.method.recipe and self.method.name != ZERO_SHOT

    @property
    def label(self) -> str:
        """Name of its row: the method, and what it is repeated with."""
        extra = [f"reward {self.reward}"] if self.reward else []
        extra += [f"KL to {self.reference}"] if self.reference else []
        return self.method.name + (f" ({', '.join(extra)})" if extra else "")

    @property
    def run(self) -> str:
        """Name of its folder below the task's."""
        parts = [self.method.name, *filter(None, (self.reward, self.reference))]
        slug = re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower())
        seed = f"-seed{self.seed}" if self.method.recipe or self.method.start else ""
        return slug.strip("-.") + seed

    @property
    def name(self) -> str:
        """Its name among all runs."""
        return f"{self.task}/{self.run}"


@dataclass(frozen=True)
class Plan:
    """What a benchmark consists of."""

    folder: Path
    tasks: Sequence[str]
    methods: Mapping[str, Method]
    seeds: Sequence[int]
    terms: Mapping[str, Terms]
    """Task -> its terms, all layers joined."""
    data: Mapping[str, str]
    """Task -> `data.path`; an absent one is the terms' or the task's hub id."""
    mini: bool = False
    rewards: Sequence[str] = ()
    references: Sequence[str] = ()
    budgets: Sequence[float] = ()
    model: str = ""
    overrides: Sequence[str] = ()


def tuned(plan: Plan, task: str, method: Method) -> bool:
    """Whether a method trains on a reward (the algorithm says so)."""
    if not method.recipe:
        return False
    kind = str(own(plan, task, method)["algorithm"]["kind"])
    uses: bool = load("algorithm", kind, f"the method {method.name}").uses_rewards
    return uses


def cells(plan: Plan) -> list[Cell]:
    """All cells, seed by seed over all tasks and methods, starts before what starts from them."""
    out: list[Cell] = []
    for number, seed in enumerate(plan.seeds):
        for task in plan.tasks:
            for method in plan.methods.values():
                if not tuned(plan, task, method):
                    if method.recipe:
                        _check_once(plan, task, method)
                        out.append(Cell(task, method, seed))
                    elif number == 0:
                        out.append(Cell(task, method, 0))  # no seed has a part in it
                    continue
                for reward in plan.rewards or [""]:
                    for reference in plan.references or [""]:
                        out.append(Cell(task, method, seed, reward, reference))
    names = [c.name for c in out]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice:
        raise UserError(f"two methods of the benchmark share the folder name '{twice}': rename one")
    return out


def _check_once(plan: Plan, task: str, method: Method) -> None:
    """A method on human completions is trained once, whatever the others are repeated with. Raises
    UserError where it starts from one that is repeated."""
    repeated = "--rewards" if plan.rewards else "--kl-reference" if plan.references else ""
    if repeated and method.start and tuned(plan, task, plan.methods[method.start]):
        raise UserError(
            f"{repeated} repeats '{method.start}', but not '{method.name}', which starts from it "
            f"and trains on human completions: leave that method out, or {repeated}"
        )


def free_cells(plan: Plan, wanted: Sequence[Cell] | None = None) -> list[Cell]:
    """For best-of-n and the oracle, where they are asked for: one for each set of weights that
    methods (of all cells, or of those that are wanted) start from, and each reward. The model as
    it is has no seed."""
    found: dict[Cell, None] = {}
    for cell in cells(plan) if wanted is None else wanted:
        if not tuned(plan, cell.task, cell.method):
            continue
        start = cell.method.start
        method = Method(f"{start}+{BASELINES}" if start else BASELINES, "", start)
        held = bool(start) and tuned(plan, cell.task, plan.methods[start])
        reference = cell.reference if held else ""
        found[Cell(cell.task, method, cell.seed if start else 0, cell.reward, reference)] = None
    after = {c: settings_of(plan, c).after for c in found}
    return [c for c, a in after.items() if a.best_of_n or a.oracle]


def own(plan: Plan, task: str, method: Method) -> dict[str, Any]:
    """What a method brings: its recipe for the task where there is one, else its general recipe in
    the place of the task's PPO."""
    short = "" if plan.mini else SHORT.get(task, "")
    last = method.recipe
    if not short:
        return mapping_of(last)
    usual = recipe_mapping(f"grue-{short}-{PLAIN}")["algorithm"]
    for name in (f"grue-{short}-{method.start}-{last}", f"grue-{short}-{last}"):
        if name in CATALOG["recipe"]:
            mapping = recipe_mapping(name)
            same = mapping["algorithm"]["kind"] == usual["kind"]
            return {**mapping, "algorithm": usual} if same else mapping
    mapping = mapping_of(last)
    if mapping["algorithm"]["kind"] == usual["kind"]:
        differs = changed(mapping["algorithm"], recipe_mapping(PLAIN)["algorithm"])
        mapping["algorithm"] = {**usual, **differs}
    return mapping


def settings_of(plan: Plan, cell: Cell) -> RunSettings:
    """Resolved and checked. Raises UserError."""
    terms, method = plan.terms[cell.task], cell.method
    on_reward = tuned(plan, cell.task, method)
    part: dict[str, Any] = {"kind": cell.task}
    if method.recipe:
        brought = own(plan, cell.task, method)
        keys = OF_TUNED if on_reward else OF_DEMONSTRATIONS
        mapping = {k: v for k, v in brought.items() if k in keys}
        theirs = brought.get("data", {}).get("task", {})
        if not on_reward:
            same = theirs.get("kind") == cell.task
            part |= theirs if same else {k: theirs[k] for k in theirs if k == "one_row_a_reference"}
    else:
        mapping = {"algorithm": {"kind": "supervised"}}
    algorithm = str(mapping["algorithm"]["kind"])
    layers: list[Mapping[str, Any]] = [mapping | {"data": {"task": part}}]
    layers += terms.layers(method.name, algorithm, on_reward, bool(method.recipe))
    if cell.free:  # measured as those are that start from these weights
        layers.append({k: v for k, v in terms.tuned.items() if k not in OF_TRAINING})
    if plan.model:
        layers.append({"model": {"path": plan.model}})
    if cell.task in plan.data:
        layers.append({"data": {"path": plan.data[cell.task]}})
    if plan.budgets:
        layers.append({"evaluation": {"budgets": list(plan.budgets)}})
    where = f"the settings of {cell.name}"
    merged = layered(layers, plan.overrides)
    check_sections(merged, where)
    check_named(method, mapping, merged, where)
    if on_reward:
        merged = grouped(merge({"batch": {"prompts": 64}}, merged), where)
    merged = merge(merged, _place(plan, cell, merged))
    if cell.reward:
        merged["rewards"] = {cell.reward: _as_reward(cell.task, terms, cell.reward)}
    if cell.reference and not cell.free:
        merged["tethers"] = _with_reference(plan, cell, merged)
    merged = _measured_after(cell, on_reward, merged)
    settings = parse(merged, where)
    assert isinstance(settings, RunSettings)  # recipes of other jobs are refused by name
    check_complete(settings)
    if settings.data.too_long == "drop":
        raise UserError(
            f"data.too_long in {where} is drop: methods would be measured on different examples; "
            "set truncate_left or truncate_right"
        )
    return settings


OF_SAMPLES = ("best_of_n", "oracle", "samples", "prompts")
OF_INTERPOLATION = ("interpolate", "shares", "how")


def _measured_after(cell: Cell, on_reward: bool, merged: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those steps of `after` alone that this cell measures. A run that measures
    the start samples: where evaluations take the likeliest token, as training does."""
    wanted = merged.get("after") or {}
    others = OF_INTERPOLATION if cell.free else OF_SAMPLES
    mine = {k: v for k, v in wanted.items() if k not in others} if cell.free or on_reward else {}
    out = {**merged, "after": mine}
    evaluation = dict(merged.get("evaluation") or {})
    if cell.free and (evaluation.get("sampling") or {}).get("greedy"):
        out["evaluation"] = {**evaluation, "sampling": None}
    return out


def _place(plan: Plan, cell: Cell, merged: Mapping[str, Any]) -> dict[str, Any]:
    """Folder, seed and start of a cell, and all completions of its test prompts."""
    wanted = merged.get("evaluation", {}).get("test_prompts", 0)
    if not wanted:
        raise UserError("evaluation.test_prompts is 0: the benchmark measures on test prompts")
    place: dict[str, Any] = {
        "name": cell.run,
        "root": str(plan.folder / cell.task),
        "method": cell.label,
        "seed": cell.seed,
        "evaluation": {"test_samples": wanted},
        "checkpoint": {"export": bool(cell.method.recipe)},
    }
    if not cell.method.recipe:
        place["updates"] = 0
    if merged.get("threads") is None:
        place["threads"] = 1  # a worker a core: more threads only get in each other's way
    if cell.method.start:
        place["model"] = {"path": exported(plan, cell, cell.method.start), **FROM_A_RUN}
    return place


def exported(plan: Plan, cell: Cell, method: str) -> str:
    """Folder of the final weights of another method on the cell's task and seed."""
    return str(plan.folder / forerunner(plan, cell, method).name / "policy")


def forerunner(plan: Plan, cell: Cell, method: str) -> Cell:
    """The run of another method that a cell starts from or is held to. Where that one is repeated
    with rewards or references, so is the cell, with the same."""
    other = plan.methods[method]
    if tuned(plan, cell.task, other):
        return replace(cell, method=other)
    return Cell(cell.task, other, cell.seed)


def _as_reward(task: str, terms: Terms, name: str) -> dict[str, Any]:
    part = part_of(name, task, terms, "--rewards")
    if part["kind"] == PERPLEXITY:
        raise UserError("--rewards: perplexity is of the policy and not of its texts: no reward")
    metric = {k: v for k, v in part.items() if k != "maximum"}
    blanks = build("metric", dict(metric), "--rewards").keeps_blanks
    return {"kind": "metric", "metric": metric, **({"strip": False} if blanks else {})}


def _with_reference(plan: Plan, cell: Cell, merged: Mapping[str, Any]) -> dict[str, Any]:
    """The tethers with their KL reference moved. Raises UserError where none has one."""
    tethers = {k: dict(v) for k, v in (merged.get("tethers") or {}).items() if v is not None}
    held = [
        k
        for k, v in tethers.items()
        if {"reference", "model"} <= set(part_description("tether", v.get("kind", k))["fields"])
    ]
    if not held:
        raise UserError(
            f"--kl-reference: the method '{cell.method.name}' has no KL penalty whose reference "
            "could be another; take one that has (ppo-kl, nlpo), or leave it out"
        )
    if cell.reference == (cell.method.start or RAW):
        return tethers  # where it starts: its initial weights
    raw = cell.reference == RAW
    model = _raw(plan, cell.task) if raw else exported(plan, cell, cell.reference)
    return {k: {**v, "model": model} if k in held else v for k, v in tethers.items()}


def _raw(plan: Plan, task: str) -> str | dict[str, Any]:
    """The model as it is, for a KL reference of cells that start from another's weights. Raises
    UserError."""
    model = settings_of(plan, Cell(task, plan.methods[ZERO_SHOT], 0)).model
    if model.random_weights:
        raise UserError(
            "--kl-reference raw: model.random_weights are others for every seed, so there is no "
            "model as it is to hold to; give a model with weights"
        )
    more = {k: v for k in OF_REFERENCE if k != "path" and (v := getattr(model, k))}
    return {"path": model.path, **more} if more else model.path


def jobs(plan: Plan, wanted: Sequence[Cell] | None = None) -> list[tuple[Cell, Job]]:
    """Every cell with its run, in the order they start; or those cells that are wanted.

    Raises UserError: a wrong setting, budgets that are not the same in all cells, or a folder that
    holds a run with other settings.
    """
    out: list[tuple[Cell, Job]] = []
    for cell in cells(plan) if wanted is None else wanted:
        folder = plan.folder / cell.name
        waits = [cell.method.start] if cell.method.start else []
        waits += [cell.reference] if cell.reference not in ("", RAW, *waits) else []
        job = Job(
            name=cell.name,
            method=cell.label,
            seed=cell.seed,
            settings=settings_of(plan, cell),
            folder=folder,
            config=plan.folder / "configs" / cell.task / f"{cell.run}.yaml",
            log=plan.folder / "logs" / cell.task / f"{cell.run}.log",
            after=tuple(forerunner(plan, cell, m).name for m in waits),
        )
        first = out[0][1] if out else job
        _same_budgets(first, job)
        _same_settings(plan, job)
        out.append((cell, job))
    return out


def _same_settings(plan: Plan, job: Job) -> None:
    """Raises UserError where the folder of a cell holds a run with other settings."""
    config = job.folder / "config.yaml"
    if not config.is_file() or fingerprint(old := read_yaml(config)) == fingerprint(job.settings):
        return
    refuse_cut(config)
    found = differences(old, job.settings)
    if values := found.get(BUDGETS):
        raise UserError(
            f"{plan.folder} holds a benchmark with other budgets ({values}), which are the same in "
            "all cells: give those (--budgets a,b,c), or choose another folder: --out FOLDER"
        )
    raise UserError(
        f"{job.folder} holds a run with other settings ({told(found)}): give those, or choose "
        "another folder: --out FOLDER"
    )


def _same_budgets(first: Job, job: Job) -> None:
    """Methods and tasks are compared within the same budgets. Raises UserError."""
    one, other = (sorted(set(j.settings.evaluation.budgets)) for j in (first, job))
    if not other:
        raise UserError(
            f"evaluation.budgets of {job.name} is empty: the benchmark compares within drift "
            "budgets; name some: --budgets 1,2,4,8,16"
        )
    if one != other:
        raise UserError(
            f"evaluation.budgets differ: {one} in {first.name}, {other} in {job.name}; give all "
            "cells the same: --budgets 1,2,4,8,16"
        )
