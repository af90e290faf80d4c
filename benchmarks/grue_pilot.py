"""Learning rates of the real runs, found before them: an action of `benchmarks.grue_real`.

    python -m benchmarks.grue_real pilot t5 --root W --from .grue/t5 --gpus 2

On a seed that the study does not have, supervised + PPO is trained for half of the study's updates
at each of `RATES`. The rule, written here before any result: the one with the largest reward on the
validation prompts after the last update; of equal ones the smallest. (Within a standard error of
the best, which is that of a mean over prompts, the smallest may be one that learns nothing: all
rates have the same prompts.) All methods of a task that train on a reward have that rate. A task
whose rate is known is left out.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.grue_pack import GROUPS
from benchmarks.grue_study import (
    OUT,
    PILOT,
    asked,
    console,
    learning_rates,
    options,
    wanted,
    write_settings,
)
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.config.whole_file import write_whole
from tether.records import read_points
from tether.reports.grue.results import finished
from tether.reports.runs import FAILURES
from tether.studies.grue.planning import planned
from tether.studies.workers import Job, run_jobs

SEED = 1000
RATES = {"t5": (1e-6, 3e-6, 1e-5, 3e-5), "smollm2": (3e-5, 1e-4, 3e-4)}
FOLDER = Path("pilot")
"""Its runs, below the working folder; they do not travel."""


def arms(tasks: Sequence[str], quick: bool) -> dict[str, tuple[Job, dict[float, Job]]]:
    """Task -> (its supervised run, rate -> PPO from that).

    The supervised run is as the benchmark plans it, test included: a pilot that goes on is planned
    again, and its folder has to hold what is planned.
    """
    of_study = asked(tasks, write_settings(quick), seeds=[SEED])
    by_name = {cell.name: job for cell, job in planned(replace(of_study, out=FOLDER))[1]}
    group = {t: g for g, of_group in GROUPS.items() for t in of_group}
    found = {}
    for task in tasks:
        ppo = by_name[f"{task}/supervised-ppo-seed{SEED}"]
        rates = {lr: _at(ppo, lr) for lr in RATES[group[task]]}
        found[task] = by_name[f"{task}/supervised-seed{SEED}"], rates
    return found


def _at(job: Job, lr: float) -> Job:
    s, run = job.settings, f"lr-{lr:g}"
    updates = max(1, s.updates // 2)
    return replace(
        job,
        name=f"{job.name}-{run}",
        settings=replace(
            s, name=f"{s.name}-{run}", updates=updates,
            algorithm={**s.algorithm, "lr": lr},
            evaluation=replace(s.evaluation, every=updates, test_prompts=0),
            checkpoint=replace(s.checkpoint, export=False),
        ),
        folder=job.folder.with_name(f"{job.folder.name}-{run}"),
        config=job.config.with_name(f"{job.config.stem}-{run}.yaml"),
        log=job.log.with_name(f"{job.log.stem}-{run}.log"),
    )  # fmt: skip


def chosen(rewards: Mapping[float, tuple[float, float]]) -> float:
    """By the rule. rewards: rate -> (reward, its standard error) of at least one rate."""
    best = max(reward for reward, _ in rewards.values())
    return min(lr for lr, (reward, _) in rewards.items() if reward == best)


def _after(job: Job) -> tuple[float, float] | None:
    """(reward, its standard error) after the last update; None where it did not get there."""
    if not finished(job.folder):
        return None
    last = [p for p in read_points(job.folder / "record.jsonl") if p.split == "validation"][-1]
    return last.reward, last.reward_se


def pilot(tasks: Sequence[str], args: Namespace) -> None:
    """Train what is not finished, and write the rates; beside the pilots, while there is room, the
    supervised runs of the study, which do not depend on them, nor on anchors. Options as of
    `benchmarks.grue_real`.

    Raises SystemExit where it was asked to stop: the next call goes on.
    """
    left = [t for t in tasks if t not in learning_rates()]
    failed = _failures(OUT)
    starts = [
        job for cell, job in planned(options(tasks, args), wanted)[1]
        if cell.method.name == "supervised" and (args.retry or job.name not in failed)
        and not finished(job.folder)
    ]  # fmt: skip
    if not left and not starts:
        return
    made = arms(left, args.quick) if left else {}
    jobs = [start for start, _ in made.values()]
    jobs += [job for _, found in made.values() for job in found.values()]
    for job in [*jobs, *starts]:
        job.config.parent.mkdir(parents=True, exist_ok=True)
        write_yaml(job.config, dump(job.settings))
    try:
        run_jobs(
            [*jobs, *starts], FOLDER, workers=args.per_device * max(1, args.gpus),
            per_device=args.per_device, retry=args.retry, console=console(),
        )  # fmt: skip
    finally:  # also where it is asked to stop: a pilot does not travel, its result does
        if made:
            _write({task: found for task, (_, found) in made.items()})


def _failures(folder: Path) -> dict[str, Any]:
    file = folder / FAILURES
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _write(made: Mapping[str, Mapping[float, Job]]) -> None:
    """The rates of tasks whose pilots have all come to an end, one way or the other."""
    known: dict[str, Any] = json.loads(PILOT.read_text()) if PILOT.is_file() else {}
    failures = _failures(FOLDER)
    for task, found in made.items():
        rewards = {lr: r for lr, job in found.items() if (r := _after(job)) is not None}
        failed = [f"{lr:g}" for lr, job in found.items() if job.name in failures]
        if len(rewards) + len(failed) < len(found):
            continue  # the next call goes on
        if not rewards:
            print(f"{task}: every pilot failed; see {FOLDER / 'logs' / task}", flush=True)
            continue
        known[task] = {
            "lr": chosen(rewards),
            "updates": next(iter(found.values())).settings.updates,
            "reward": {f"{lr:g}": reward for lr, (reward, _) in rewards.items()},
            "reward_se": {f"{lr:g}": error for lr, (_, error) in rewards.items()},
            "failed": failed,
        }
        print(f"{task}: learning rate {known[task]['lr']:g}", flush=True)
    write_whole(PILOT, json.dumps(known, indent=1) + "\n")
