"""`tether quickstart`: three methods on a bundled model and prompts, offline, in three minutes.

PPO alone, PPO + KL and PPO + Elastic Reset pull a language model of a million parameters towards a
word list that praises. The list can be gamed, and unpenalised PPO games it: the samples show how.
"""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tether.config.errors import UserError
from tether.config.settings import fingerprint
from tether.config.text_values import read_yaml
from tether.recipes.toy import BUDGETS, toy
from tether.records import read_lines
from tether.reports.runs import STUDY
from tether.reports.samples import Sample, side_by_side
from tether.reports.write import Written, write_report
from tether.studies.compare import Study, plan, run_study
from tether.studies.frontier import show

NAME = "quickstart"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
SHOWN = 2
"""Prompts whose completions are printed; the report has more."""

ARMS: Mapping[str, Mapping[str, Any]] = {
    "PPO": {},
    "PPO + KL": {"kl": {"kind": "kl", "coef": 0.03}},
    "PPO + Elastic Reset": {
        "elastic_reset": {
            "kind": "elastic_reset",
            "reset": {"kind": "every", "n": 5, "unit": "update"},
            "average": {"kind": "every", "n": 1, "unit": "update"},
            "decay": 0.8,
        }
    },
}
"""Method -> its tethers. All else is the same."""


def settings(tethers: Mapping[str, Any]) -> dict[str, Any]:
    """One arm, without name and seed: `toy` with fewer prompts to evaluate on, since two cores
    have three minutes for nine runs."""
    base = toy()
    few = {"prompts": 64, "test_prompts": 64, "human_rows": 8}
    return {**base, "evaluation": base["evaluation"] | few, "tethers": dict(tethers)}


def study(seeds: int, folder: Path, first: int = 0) -> Study:
    """The three arms on seeds `first` to `first + seeds - 1`."""
    return Study(
        name=NAME,
        folder=folder,
        arms={method: [(None, settings(tethers))] for method, tethers in ARMS.items()},
        seeds=range(first, first + seeds),
    )


def main(
    seeds: int = 3,
    fresh: bool = False,
    folder: Path | None = None,
    *,
    first: int = 0,
    workers: int | None = None,
    console: Console | None = None,
) -> int:
    """Run, report, print. Exit status: 0, or 1 when a run failed.

    Args:
        seeds: seeds a method; intervals are printed from 5 on.
        fresh: repeat what is there already.
        folder: of the study; default runs/quickstart.
        first: the first seed (tuning uses 1000 and more).
        workers: processes at once; default one a CPU core.
    Raises:
        UserError: the folder holds something else, or a quickstart with other settings.
        SystemExit: after Ctrl-C or SIGTERM; the same command goes on.
    """
    started = time.perf_counter()
    console = console or Console()
    folder = folder or Path("runs") / NAME
    os.environ.update(OFFLINE)
    if fresh:
        remove(folder)
    refuse_foreign(folder)
    wanted = study(seeds, folder, first)
    refuse_changed(wanted)
    if complete(wanted):
        console.print(
            f"The quickstart is complete: {folder / 'report.html'}\n"
            "`tether quickstart --fresh` repeats it.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 0
    cores = workers or len(os.sched_getaffinity(0))
    console.print(
        f"{', '.join(ARMS)}: {seeds} seed{'s' if seeds > 1 else ''} each, {cores} at a time, in "
        f"{folder}. Ctrl-C stops; the same command goes on.",
        markup=False,
        highlight=False,
    )
    run_study(wanted, workers=workers, console=console)
    written = write_report([folder], folder, BUDGETS)
    samples(written, console)
    show(written, console)
    if seeds < 5:
        console.print("`tether quickstart --seeds 10` gives intervals.", markup=False)
    console.print(f"Finished in {time.perf_counter() - started:.0f} s.", highlight=False)
    return 1 if any(m.failed() for m in written.study.methods) else 0


def complete(wanted: Study) -> bool:
    """True where every run has its end line and the report is there."""
    if not (wanted.folder / "report.html").is_file():
        return False
    return all(_ended(job.folder / "record.jsonl") for job in plan(wanted))


def _ended(record: Path) -> bool:
    return record.is_file() and any(row["kind"] == "end" for row in read_lines(record))


def refuse_foreign(folder: Path) -> None:
    """Raises UserError where the folder is not a quickstart's."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give another place: --folder FOLDER")
    if folder.is_dir() and any(folder.iterdir()) and not _ours(folder):
        raise UserError(f"{folder} holds something else; give another place: --folder FOLDER")


def refuse_changed(wanted: Study) -> None:
    """Raises UserError where the folder holds runs of another version's quickstart."""
    for job in plan(replace(wanted, folder=wanted.folder / "none")):
        config = wanted.folder / job.name / "config.yaml"
        if config.is_file() and fingerprint(read_yaml(config)) != fingerprint(job.settings):
            raise UserError(
                f"{wanted.folder} holds a quickstart with other settings: "
                "`tether quickstart --fresh` replaces it, or give another place: --folder FOLDER"
            )


def remove(folder: Path) -> None:
    """Delete the folder of a former quickstart, and nothing else."""
    refuse_foreign(folder)
    if folder.is_dir():
        shutil.rmtree(folder)


def _ours(folder: Path) -> bool:
    try:
        found = json.loads((folder / STUDY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("name") == NAME


def samples(written: Written, console: Console) -> None:
    """The same prompts before and after: reward and drift of each completion beside it."""
    prompts = side_by_side(written.study, SHOWN)
    if prompts and prompts[0].after:
        seed = prompts[0].after[0].seed
        console.print(f"\nBefore and after training (seed {seed}, last update):", highlight=False)
    for prompt in prompts:
        console.print()
        console.print(f'"{prompt.text} ..."', style="bold", markup=False, highlight=False)
        for sample in ([prompt.before] if prompt.before else []) + list(prompt.after):
            console.print(_told(sample), markup=False, highlight=False)
    console.print()


def _told(sample: Sample) -> str:
    facts = "" if sample.score is None else f" reward {sample.score:.2f}"
    if sample.drift is not None and sample.update:
        facts += f", {sample.drift:.1f} nats"
    text = " ".join(sample.completion.split()) or "(nothing)"
    head = f"  {sample.method}{facts and ':' + facts}"
    return head + "\n" + textwrap.fill(text, 76, initial_indent="    ", subsequent_indent="    ")
