"""`tether quickstart` without running it: its arms, its folder, what it prints."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tether.config.errors import UserError
from tether.config.settings import dump, parse
from tether.config.text_values import write_yaml
from tether.reports.samples import Sample
from tether.studies import quickstart
from tether.studies.compare import plan


def console() -> Console:
    return Console(record=True, width=100)


def test_the_arms_differ_by_their_tethers_only(tmp_path: Path) -> None:
    jobs = plan(quickstart.study(3, tmp_path / "q"))
    assert [j.method for j in jobs] == ["PPO", "PPO + KL", "PPO + Elastic Reset"] * 3
    assert [j.seed for j in jobs] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    alike = []
    for job in jobs[:3]:
        found = dump(job.settings)
        assert set(found.pop("tethers")) == set(quickstart.ARMS[job.method])
        alike.append({k: v for k, v in found.items() if k not in ("name", "method")})
    assert alike[0] == alike[1] == alike[2]


def test_the_run_is_offline_and_on_one_thread(tmp_path: Path) -> None:
    job = plan(quickstart.study(1, tmp_path / "q"))[0]
    assert job.settings.threads == 1
    assert job.settings.model.device == "cpu"
    for path in (job.settings.model.path, job.settings.data.path, job.settings.data.test):
        assert path and Path(path).exists()
    assert quickstart.OFFLINE["HF_HUB_OFFLINE"] == "1"


def test_resets_happen_and_are_seen(tmp_path: Path) -> None:
    """At least two resets, the last one early enough for an evaluation of the regained reward."""
    job = plan(quickstart.study(1, tmp_path / "q"))[2]
    every = job.settings.tethers["elastic_reset"]["reset"]["n"]
    assert job.settings.updates // every >= 2
    assert job.settings.updates % every >= job.settings.evaluation.every == 2


def finished(folder: Path, seeds: int = 1) -> None:
    """A folder as a finished quickstart leaves it."""
    for job in plan(quickstart.study(seeds, folder)):
        job.folder.mkdir(parents=True)
        write_yaml(job.folder / "config.yaml", dump(job.settings))
        (job.folder / "record.jsonl").write_text('{"kind": "end"}\n')
    (folder / "study.json").write_text(json.dumps({"name": "quickstart"}))
    (folder / "report.html").write_text("report")


def test_called_again_it_says_that_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_runs(*a: Any, **k: Any) -> None:
        raise AssertionError("ran again")

    monkeypatch.setattr(quickstart, "run_study", no_runs)
    folder = tmp_path / "q"
    finished(folder)
    said = console()
    assert quickstart.main(seeds=1, folder=folder, console=said) == 0
    text = said.export_text()
    assert "complete" in text and "report.html" in text and "--fresh" in text
    with pytest.raises(AssertionError, match="ran again"):
        quickstart.main(seeds=2, folder=folder, console=console())
    (folder / "ppo-seed0" / "record.jsonl").write_text('{"kind": "start"}\n')
    with pytest.raises(AssertionError, match="ran again"):
        quickstart.main(seeds=1, folder=folder, console=console())


def test_fresh_removes_a_quickstart_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def look(study: Any, **k: Any) -> None:
        seen.append(study.folder.exists())
        raise RuntimeError("stop here")

    monkeypatch.setattr(quickstart, "run_study", look)
    folder = tmp_path / "q"
    finished(folder)
    with pytest.raises(RuntimeError, match="stop here"):
        quickstart.main(seeds=1, fresh=True, folder=folder, console=console())
    assert seen == [False]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for fresh in (True, False):
        with pytest.raises(UserError, match="holds something else"):
            quickstart.main(fresh=fresh, folder=mine, console=console())
    (mine / "study.json").write_text(json.dumps({"name": "another"}))
    with pytest.raises(UserError, match="holds something else"):
        quickstart.main(fresh=True, folder=mine, console=console())
    assert (mine / "thesis.txt").read_text() == "years of work"
    with pytest.raises(UserError, match="is a file"):
        quickstart.main(folder=mine / "thesis.txt", console=console())


def test_other_settings_name_the_mend(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    finished(folder)
    job = plan(quickstart.study(1, folder))[1]
    changed = parse(dump(dataclasses.replace(job.settings, updates=99)))
    write_yaml(job.folder / "config.yaml", dump(changed))
    with pytest.raises(UserError, match="--fresh"):
        quickstart.main(seeds=1, folder=folder, console=console())


def test_samples_show_reward_and_drift() -> None:
    text = quickstart._told(Sample("PPO", 0, 16, " great  great\nfun", 0.987, 8.25))
    assert text == "  PPO: reward 0.99, 8.2 nats\n    great great fun"
    assert quickstart._told(Sample("initial model", 0, 0, "", 0.5, 0.0)) == (
        "  initial model: reward 0.50\n    (nothing)"
    )
