"""A run that failed in a study and has since ended, in another one or by hand, is no failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.runs_for_tests import make_world, run, settings
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.studies.workers import Job, run_jobs


def test_what_starts_from_it_is_run(tmp_path: Path) -> None:
    world = make_world(tmp_path / "world")
    start = settings(world, name="start", updates=1)
    folder = run(start)
    study = tmp_path / "study"
    study.mkdir()
    (study / "failures.json").write_text(json.dumps({"start": {"status": 1, "error": "once"}}))
    after = replace(start, name="after")
    write_yaml(tmp_path / "after.yaml", dump(after))
    jobs = [
        Job("start", "m", 0, start, folder, tmp_path / "start.yaml", tmp_path / "start.log"),
        Job(
            "after", "m", 0, after, folder.with_name("after"), tmp_path / "after.yaml",
            tmp_path / "after.log", after=("start",),
        ),
    ]  # fmt: skip
    run_jobs(jobs, study, workers=1, per_device=1, retry=False, console=Console(quiet=True))
    assert (folder.with_name("after") / "record.jsonl").read_text().count('"kind": "end"') == 1
    assert json.loads((study / "failures.json").read_text()) == {}
