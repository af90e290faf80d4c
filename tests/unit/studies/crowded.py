"""Studies on a device that is not there: their runs are programs that take units of it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tether.config.run import RunSettings
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.studies import workers
from tether.studies.workers import Job, run_jobs

BEGINNING = """
import os, sys, time
from pathlib import Path
from tether.config.text_values import read_yaml, write_yaml
from tether.records import line

config = read_yaml(sys.argv[-1])
folder = Path(config["root"]) / config["name"]
folder.mkdir(parents=True)
write_yaml(folder / "config.yaml", config)
taken = Path(os.environ["TAKEN"])
starts = taken.with_name("starts")

def begins(units):
    mine = [taken / f"{os.getpid()}-{i}" for i in range(units)]
    for f in mine:
        f.touch()
    with open(starts, "a") as log:
        print(config["name"], file=log)
    return mine

def ends(mine, fits):
    if fits:
        (folder / "record.jsonl").write_text(line("end", updates=1, counts={}, notes={}) + "\\n")
    for f in mine:
        f.unlink()
    if not fits:
        print("tether: cuda:0 is out of memory", file=sys.stderr)
    sys.exit(0 if fits else 3)
"""
"""What runs have in common: `begins` takes units, `ends` gives them back and says how it went."""


def stand_in(folder: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From here on runs are this program, behind `BEGINNING`. Returns where the taken units lie."""
    file, taken = folder / "worker.py", folder / "taken"
    file.write_text(BEGINNING + program)
    taken.mkdir()
    monkeypatch.setattr(workers, "TETHER", (sys.executable, str(file)))
    monkeypatch.setattr(workers, "PAUSE", 0.01)
    monkeypatch.setattr(workers, "_warm", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(workers.__file__).parents[2]))
    monkeypatch.setenv("TAKEN", str(taken))
    return taken


def study(
    folder: Path, base: RunSettings, names: Sequence[str], *, workers: int | None, per_device: int
) -> tuple[str, dict[str, object], list[str]]:
    """What was said, the failures, and the runs in the order in which they were begun."""
    made = []
    for name in names:
        job = Job(
            name, "m", 0, replace(base, name=name), folder / "runs" / name,
            folder / f"{name}.yaml", folder / f"{name}.log",
        )  # fmt: skip
        write_yaml(job.config, dump(job.settings))
        made.append(job)
    out = io.StringIO()
    (folder / "study").mkdir()
    run_jobs(
        made, folder / "study", workers=workers, per_device=per_device, retry=False,
        console=Console(file=out, width=200),
    )  # fmt: skip
    file = folder / "study" / "failures.json"
    failures = json.loads(file.read_text()) if file.is_file() else {}
    return out.getvalue(), failures, (folder / "starts").read_text().split()
