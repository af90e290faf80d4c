"""`tether interpolate` and `tether baselines`: the same points for a run that has ended, in a file
of their own beside its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from transformers.utils import logging as transformers_logging

from tether.config.checks import check_together
from tether.config.errors import UserError
from tether.config.run import AfterSettings, How, RunSettings
from tether.config.whole_file import write_whole
from tether.records import BASELINES, INTERPOLATION, BaselinePoint, baseline_line
from tether.train.after import baselines, interpolation
from tether.train.after_weights import finished, has_weights, load_final, same_start
from tether.train.agent import Agent
from tether.train.build import build_agent, build_parts, check_data, set_threads
from tether.train.disk import guarded
from tether.train.evaluate import Split
from tether.train.lock import writing
from tether.train.seeding import seed_user_code

Seen = Callable[[BaselinePoint], None]


def interpolate(
    folder: str | Path,
    shares: Sequence[float] | None = None,
    how: Sequence[How] | None = None,
    *,
    split: Split | None = None,
    prompts: int | None = None,
    seen: Seen = lambda point: None,
) -> list[BaselinePoint]:
    """Evaluates weights between a run's initial and final ones, into `interpolation.jsonl` in its
    folder.

    Args:
        shares, how, split: default: as in the run's `after`.
        prompts: default: as in the run's evaluation.
        seen: called with each point as it is measured.
    Raises:
        UserError: not a finished run, no weights left, or a setting that cannot work.
    """
    folder = Path(folder)
    settings = finished(folder)
    asked = {"shares": shares, "how": how, "split": split}
    given = {k: v if isinstance(v, str) else list(v) for k, v in asked.items() if v is not None}
    wanted = replace(settings.after, interpolate=True, **given)  # type: ignore[arg-type]
    settings = _checked(settings, wanted, prompts)
    has_weights(folder, settings)
    agent = _agent(folder, settings)
    load_final(folder, settings, agent.lm, agent.sets)
    points = []
    for point in interpolation(agent, wanted, settings.updates, prompts):
        points.append(point)
        seen(point)
    _add(folder, INTERPOLATION, points)
    return points


def initial_baselines(
    folder: str | Path,
    *,
    samples: int | None = None,
    prompts: int | None = None,
    split: Split | None = None,
    seen: Seen = lambda point: None,
) -> list[BaselinePoint]:
    """Best-of-n and the oracle frontier of a run's initial model; `baselines.jsonl` in its folder.
    The run's weights are not needed: one run of a study is enough.

    Args:
        samples, prompts, split: default: as in the run's `after`.
        seen: called with each point.
    Raises:
        UserError: not a finished run, or a setting that cannot work.
    """
    folder = Path(folder)
    settings = finished(folder)
    asked = {"samples": samples, "prompts": prompts, "split": split}
    given = {k: v for k, v in asked.items() if v is not None}
    wanted = replace(settings.after, best_of_n=True, oracle=True, **given)  # type: ignore[arg-type]
    settings = _checked(settings, wanted, prompts)
    points = baselines(_agent(folder, settings), wanted)
    for point in points:
        seen(point)
    _add(folder, BASELINES, points)
    return points


def _checked(settings: RunSettings, wanted: AfterSettings, prompts: int | None) -> RunSettings:
    """The run's settings with these steps; more prompts are read where more are asked for."""
    evaluation = settings.evaluation
    if prompts is not None and wanted.split == "validation":
        evaluation = replace(evaluation, prompts=max(prompts, evaluation.prompts))
    elif prompts is not None:
        evaluation = replace(evaluation, test_prompts=max(prompts, evaluation.test_prompts))
    settings = replace(settings, after=wanted, evaluation=evaluation)
    check_together(settings)
    return settings


def _agent(folder: Path, settings: RunSettings) -> Agent:
    """A fresh agent with the initial weights that the run began with."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    set_threads(settings)
    parts = build_parts(settings)
    check_data(settings, parts)
    agent = build_agent(settings, parts)
    if settings.after.split not in agent.tasks:
        raise UserError(f"there are no {settings.after.split} prompts; name data.test")
    same_start(folder, agent.lm, agent.sets)
    seed_user_code(settings.seed, settings.updates + 1)  # as at the end of the run
    return agent


def _add(folder: Path, name: str, points: Sequence[BaselinePoint]) -> None:
    """The file with these points, in place of any of the same kind, split, way and share."""
    file = folder / name
    rows = [baseline_line(p) for p in points]
    new = {_key(json.loads(r)) for r in rows}
    with writing(folder), guarded(name, folder):
        kept = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        rows = [r for r in kept if _key(json.loads(r)) not in new] + rows
        write_whole(file, "".join(r + "\n" for r in rows))


def _key(row: dict[str, object]) -> tuple[object, ...]:
    """Curves of samples are replaced whole, interpolations point by point."""
    whole = row["baseline"] != "interpolation"
    return (
        row["agent"],
        row["baseline"],
        row["split"],
        *(() if whole else (row["how"], row["at"])),
    )
