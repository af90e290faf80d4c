"""`tether compare`: methods x settings x seeds, each run a worker process, resumable.

A study is its arms, its seeds and what it declares beforehand. Its folder holds `study.json`,
`configs/`, `logs/`, one folder a run, and `failures.json`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tether.analysis.comparisons import (
    PRIMARY_AT_MOST,
    REWARD_MARGIN,
    TESTED_AT_MOST,
    distinct,
)
from tether.analysis.power import too_few
from tether.config.compose import recipe as recipe_mapping
from tether.config.differences import differences, told
from tether.config.errors import UserError
from tether.config.json_file import read_mapping
from tether.config.layers import apply_overrides, merge
from tether.config.run import RunSettings
from tether.config.settings import dump, fingerprint, parse
from tether.config.text_values import read_yaml, refuse_cut, write_yaml
from tether.config.whole_file import write_whole
from tether.reports.runs import STUDY
from tether.studies import study_file
from tether.studies.frontier import main as frontier
from tether.studies.own_settings import refuse_own
from tether.studies.workers import Job, run_jobs

KEYS = ("name", "seeds", "arms", "primary", "margin", "folder")
"""Of a study file."""
SEEDS = 3
"""Where nobody says how many."""
MOST_RUNS = 10_000
OWN = {
    "name": "a run is called after its method and seed",
    "root": "a run is below the study's folder (--folder)",
    "method": "a run's method is its arm",
    "seed": "--seeds N, or `seeds` of the study file, says which seeds there are",
}
"""Setting that a study makes itself -> what decides it."""
Changes = Mapping[str, Any] | Sequence[str]
"""Settings on top of a recipe: a nested mapping, or command-line words."""
Setting = tuple[str | None, Changes]
"""(recipe name or YAML file or None, changes)"""


@dataclass(frozen=True)
class Study:
    """What is compared."""

    name: str
    folder: Path
    arms: Mapping[str, Sequence[Setting]]
    """method -> its settings; each runs on every seed. The choice between the settings of a method
    is made from validation records."""
    seeds: Sequence[int]
    primary: Sequence[tuple[str, str]] = ()
    """Comparisons (method, against) that get a verdict, declared before the first result; at most
    6. Everything else is exploratory."""
    margin: float = REWARD_MARGIN
    """Equivalence margin of the primary comparisons, on the scale of the reward."""


def run_study(
    study: Study,
    *,
    workers: int | None = None,
    per_device: int = 1,
    progress: bool = True,
    retry: bool = False,
    console: Console | None = None,
) -> list[Path]:
    """Run what is not finished yet, seed by seed over all arms; folders of all runs with a record.

    Finished runs are skipped, unfinished ones resumed. A run that fails is recorded and counted,
    the others go on; it is not re-drawn, and repeated only with `retry`.

    Args:
        workers: processes at once; default: one a CPU core, or `per_device` a GPU.
        per_device: runs that share one GPU.
    Raises:
        UserError: before the first worker, for any configuration that is wrong.
        SystemExit: 130 or 143 after Ctrl-C or SIGTERM, when all workers have stopped.
    """
    console = console or Console(stderr=True, quiet=not progress)
    jobs = plan(study)
    _declare(study)
    if study.primary and (why := too_few(len(study.seeds), len(distinct(study.primary)))):
        console.print(f"{why} (--seeds N)", style="yellow", markup=False, highlight=False)
    for job in jobs:
        write_yaml(_made(job.config), dump(job.settings))
    run_jobs(
        jobs,
        study.folder,
        workers=workers,
        per_device=per_device,
        retry=retry,
        console=console,
    )
    return [j.folder for j in jobs if (j.folder / "record.jsonl").is_file()]


def plan(study: Study) -> list[Job]:
    """All runs of a study, resolved and checked, in the order they start: seed by seed.

    Raises:
        UserError: no arm or seed, a wrong setting, or a folder that holds another run.
    """
    if not study.arms or not study.seeds:
        raise UserError("a study needs at least one method and one seed")
    count = len(study.seeds) * sum(map(len, study.arms.values()))
    if count > MOST_RUNS:
        raise UserError(f"a study of {count:,} runs; at most {MOST_RUNS:,}: take fewer seeds")
    if len(set(study.seeds)) != len(study.seeds):
        raise UserError(f"the seeds of a study must differ: {list(study.seeds)}")
    jobs = []
    for seed in study.seeds:
        for method, settings in study.arms.items():
            for i, setting in enumerate(settings):
                number = f".{i + 1}" if len(settings) > 1 else ""
                name = f"{_slug(method)}{number}-seed{seed}"
                jobs.append(_job(study, method, setting, seed, name))
    names = [j.name for j in jobs]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice:
        raise UserError(f"two methods of the study share the folder name '{twice}': rename one")
    for job in jobs:
        _refuse_other(job)
    return jobs


def from_recipes(
    recipes: Sequence[str],
    *,
    seeds: int | Sequence[int] | None = None,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    primary: Sequence[tuple[str, str]] = (),
    margin: float = REWARD_MARGIN,
) -> Study:
    """A study of recipes (or run YAML files), the same overrides on each; or of one study file.

    A method is called what its recipe calls it, else after the recipe. seeds: default: those of the
    study file, else 3.
    """
    if len(recipes) == 1 and _is_yaml(recipes[0]) and "arms" in read_yaml(recipes[0]):
        return read_study(Path(recipes[0]), seeds=seeds, folder=folder, overrides=overrides)
    seeds = SEEDS if seeds is None else seeds
    arms: dict[str, list[Setting]] = {}
    for name in recipes:
        method = str(_base(name).get("method") or Path(name.split(":")[0]).stem)
        if method in arms:
            raise UserError(
                f"'{name}' and another recipe are both called '{method}': give several settings "
                "of a method in a study file"
            )
        arms[method] = [(name, list(overrides))]
    title = "compare-" + "-".join(_slug(m) for m in arms)
    return Study(
        name=title,
        folder=folder or Path("runs") / title,
        arms=arms,
        seeds=range(seeds) if isinstance(seeds, int) else seeds,
        primary=primary,
        margin=margin,
    )


def read_study(
    file: Path,
    *,
    seeds: int | Sequence[int] | None = None,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
) -> Study:
    """A study file: `name`, `seeds` (a number or a list), `arms`, `primary`, `margin`, `folder`.

    An arm is a recipe name, a mapping of settings with an optional key `recipe`, or a list of
    these (several settings of one method).
    """
    read = read_yaml(file)
    study_file.known(read, KEYS, file, "a study")
    if not isinstance(read.get("arms"), dict):
        raise UserError(f"'arms' in {file} must be a mapping: method -> recipe or settings")
    arms: dict[str, list[Setting]] = {}
    for method, entry in read["arms"].items():
        entries = entry if isinstance(entry, list) else [entry]
        arms[str(method)] = [_setting(e, overrides, f"{file}, arm {method}") for e in entries]
    if seeds is None:
        seeds = study_file.seeds(read, SEEDS, file)
    name = study_file.text(read, "name", file.stem, file)
    primary = read.get("primary", [])
    if not isinstance(primary, list):
        raise UserError(f"'primary' in {file} must list pairs [method, against], not {primary!r}")
    return Study(
        name=name,
        folder=folder or Path(study_file.text(read, "folder", str(Path("runs") / name), file)),
        arms=arms,
        seeds=range(seeds) if isinstance(seeds, int) else seeds,
        primary=[_pair(p, file) for p in primary],
        margin=study_file.number(read, "margin", REWARD_MARGIN, file),
    )


def main(
    recipes: Sequence[str],
    *,
    seeds: int | Sequence[int] | None = None,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    workers: int | None = None,
    per_device: int = 1,
    retry: bool = False,
    console: Console | None = None,
    check: bool = True,
) -> int:
    """Run a comparison and report it. Exit status: 0, or 1 when a run failed.

    check: look at data, rewards and tethers of every method here, so that a mistake is one line
    and not a failure of every worker.
    """
    study = from_recipes(recipes, seeds=seeds, folder=folder, overrides=overrides)
    if check:
        check_inputs(study)
    run_study(study, workers=workers, per_device=per_device, retry=retry)
    written = frontier([study.folder], study.folder, console=console)
    return 1 if any(m.failed() for m in written.study.methods) else 0


def check_inputs(study: Study) -> None:
    """Raises UserError for what would stop a run of the study before its first update."""
    from tether.train.build import build_parts, check_data

    seen = set()
    for job in plan(study):
        parts = build_parts(job.settings)
        s, scored = job.settings, parts.algorithm.uses_rewards  # then the training rows are too
        data = (repr(s.data), repr(s.rewards), repr(s.judges), scored)
        if data not in seen:
            seen.add(data)
            check_data(job.settings, parts)


def _setting(entry: Any, overrides: Sequence[str], where: str) -> Setting:
    if isinstance(entry, str):
        return entry, list(overrides)
    if not isinstance(entry, dict):
        raise UserError(f"{where} must be a recipe or a mapping of settings, not {entry!r}")
    changes = {k: v for k, v in entry.items() if k != "recipe"}
    refuse_own(changes, OWN, where)
    refuse_own(overrides, OWN, "the command line")
    merged = merge(_base(entry.get("recipe")), changes)
    return None, apply_overrides(merged, overrides)


def _pair(value: Any, file: Path) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise UserError(f"'primary' in {file} must list pairs [method, against], not {value!r}")
    return str(value[0]), str(value[1])


def _base(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    return read_yaml(name) if _is_yaml(name) else recipe_mapping(name)


def _is_yaml(name: str) -> bool:
    return Path(name).suffix in (".yaml", ".yml")


def _job(study: Study, method: str, setting: Setting, seed: int, name: str) -> Job:
    base, changes = setting
    mapping = _base(base)
    if base is not None or not isinstance(changes, Mapping):  # else it is a whole run's mapping
        refuse_own(changes, OWN, f"changes of the method {method}")
    if isinstance(changes, Mapping):
        mapping = merge(mapping, changes)
    else:
        mapping = apply_overrides(mapping, changes)
    place = {"name": name, "root": str(study.folder), "method": method, "seed": seed}
    mapping = merge(mapping, place)
    if mapping.get("threads") is None:
        mapping["threads"] = 1  # a worker a core: more threads only get in each other's way
    settings = parse(mapping, f"the study's run {name}")
    if not isinstance(settings, RunSettings):
        raise UserError(f"'{base}' is a {settings.job} job; a study compares policy runs")
    return Job(
        name=name,
        method=method,
        seed=seed,
        settings=settings,
        folder=study.folder / name,
        config=study.folder / "configs" / f"{name}.yaml",
        log=study.folder / "logs" / f"{name}.log",
    )


def _refuse_other(job: Job) -> None:
    config = job.folder / "config.yaml"
    if config.is_file() and fingerprint(old := read_yaml(config)) != fingerprint(job.settings):
        refuse_cut(config)
        raise UserError(
            f"{job.folder} holds a run with other settings "
            f"({told(differences(old, job.settings))}): give those, or choose another folder: "
            "--folder FOLDER"
        )


def _declare(study: Study) -> None:
    """Write study.json; what was declared cannot change once there are results."""
    unknown = next((m for pair in study.primary for m in pair if m not in study.arms), None)
    if unknown:
        raise UserError(f"'primary' names '{unknown}', which is no method of the study")
    if study.primary and not 0 < study.margin < math.inf:
        raise UserError(f"'margin' of a study must be a number above 0, not {study.margin}")
    itself = next((a for a, b in study.primary if a == b), None)
    if itself:
        raise UserError(f"'primary' compares '{itself}' with itself")
    primary = distinct(study.primary)
    if len(primary) > PRIMARY_AT_MOST:
        raise UserError(
            f"a study declares at most {PRIMARY_AT_MOST} primary comparisons, not {len(primary)}"
        )
    if primary and len(study.seeds) > TESTED_AT_MOST:
        raise UserError(
            f"a study with primary comparisons has at most {TESTED_AT_MOST} seeds, up to which the "
            f"test is exact, not {len(study.seeds)}: take fewer, or declare no comparison"
        )
    file = study.folder / STUDY
    methods = list(study.arms)
    declared = {"primary": [list(p) for p in primary], "margin": study.margin}
    if file.is_file():
        mend = "delete it: the same command writes it again, and repeats no finished run"
        old = read_mapping(file, mend, "primary", "margin", "methods")
        before = {"primary": _once(old["primary"]), "margin": old["margin"]}
        if before != declared and any(study.folder.glob("*/record.jsonl")):
            raise UserError(
                f"{file} declares other primary comparisons, and there are results already; "
                "choose another folder: --folder FOLDER"
            )
        methods = [*old["methods"], *(m for m in methods if m not in old["methods"])]
    text = json.dumps(
        {"name": study.name, "methods": methods, "seeds": list(study.seeds), **declared},
        indent=1,
        ensure_ascii=False,
    )
    write_whole(file, text + "\n")


def _once(declared: Any) -> Any:
    """What a study file holds, as it is written now; anything else than pairs as it is."""
    try:
        return [list(p) for p in distinct(declared)]
    except (TypeError, ValueError):
        return declared


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _slug(text: str) -> str:
    """`PPO + KL` -> `ppo-kl`: what stands in folder names."""
    slug = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
    if not slug:
        raise UserError(f"the method name '{text}' needs a letter or a digit")
    return slug
