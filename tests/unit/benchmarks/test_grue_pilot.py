"""Pilots of the real runs: what they change, the rule, and that no cell is trained before."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import grue_pilot, grue_real
from benchmarks.collect_grue import _rates
from benchmarks.grue_pack import GROUPS
from benchmarks.grue_pilot import FOLDER, RATES, SEED, arms, chosen
from benchmarks.grue_study import PILOT, asked, planned, settings, write_settings
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.config.whole_file import write_whole
from tether.studies.workers import Job


def arguments(**more: Any) -> Namespace:
    given = {"quick": False, "ablations": False, "seeds": [0, 1], "gpus": 2, "per_device": 3}
    return Namespace(**{**given, "retry": False, **more})


def test_the_rule() -> None:
    """The largest reward; of equal ones the smallest rate."""
    assert chosen({1e-6: (0.1, 0.01), 3e-6: (0.31, 0.02), 1e-5: (0.3, 0.2)}) == 3e-6
    assert chosen({3e-6: (0.28, 0.5), 1e-5: (0.31, 0.02), 1e-6: (0.1, 0.5)}) == 1e-5
    assert chosen({1e-5: (0.2, 0.01), 1e-6: (0.2, 0.01)}) == 1e-6
    assert chosen({3e-5: (-1.0, 0.1)}) == 3e-5


@pytest.mark.parametrize("group", GROUPS)
def test_a_pilot_is_half_a_run_without_a_test(group: str, place: Path) -> None:
    tasks = GROUPS[group]
    by = {c.name: j for c, j in planned(asked(tasks, write_settings(False)))[1]}
    for task, (start, found) in arms(tasks, False).items():
        plain = by[f"{task}/supervised-seed0"].settings
        assert start.settings.seed == SEED not in asked(tasks, Path()).seeds  # type: ignore[operator]
        assert start.settings.updates == plain.updates
        assert tuple(found) == RATES[group]
        whole = by[f"{task}/supervised-ppo-seed0"].settings
        for lr, job in found.items():
            s = job.settings
            assert s.updates * 2 == whole.updates and s.algorithm["lr"] == lr
            assert s.evaluation.every == s.updates and s.evaluation.test_prompts == 0
            assert job.after == (start.name,) and s.model.path == str(start.folder / "policy")
            same = replace(
                s, name=whole.name, seed=whole.seed, updates=whole.updates, root=whole.root,
                algorithm=whole.algorithm, model=whole.model, checkpoint=whole.checkpoint,
                evaluation=whole.evaluation,
            )  # fmt: skip
            assert same == whole
        assert len({job.folder for job in found.values()}) == len(found)


def ran(job: Job, reward: float, error: float = 0.01) -> None:
    job.folder.mkdir(parents=True)
    lines = [
        {"kind": "eval", "agent": "agent", "split": split, "update": update, "weights": "live",
         "reward": value, "reward_se": error, "drift": {}, "policy": "p", "policy_version": 0,
         "prompts": 4, "side": "", "common": True}
        for split, update, value in (("validation", 0, 9.0), ("validation", 20, reward))
    ]  # fmt: skip
    lines.append({"kind": "end", "updates": 20})
    (job.folder / "record.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")


def test_rates_are_written_and_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rate of DailyDialog failed. The supervised runs of the study are trained beside them."""
    seen: list[Sequence[Job]] = []

    def run(jobs: Sequence[Job], *args: Any, **more: Any) -> None:
        seen.append(jobs)
        assert more["workers"] == 6 and more["per_device"] == 3
        for job in jobs:
            assert job.config.is_file()
            if "-lr-" in job.name and "dailydialog" in job.name and "0.0003" in job.name:
                write_whole(FOLDER / "failures.json", json.dumps({job.name: {}}))
                continue
            by = {"0.0001": 0.5, "3e-05": 0.48, "0.0003": 0.2}
            if "-lr-" in job.name:
                ran(job, by[job.name.rpartition("lr-")[2]])

    monkeypatch.setattr(grue_pilot, "run_jobs", run)
    grue_pilot.pilot(["imdb", "dailydialog"], arguments())
    names = [j.name for j in seen[0]]
    starts = [f"{t}/supervised-seed{s}" for t in ("imdb", "dailydialog") for s in (0, 1)]
    assert names[-4:] == sorted(starts, key=lambda n: names.index(n)) and len(names) == 2 + 6 + 4
    found = json.loads(PILOT.read_text())
    assert {t: x["lr"] for t, x in found.items()} == {"imdb": 1e-4, "dailydialog": 1e-4}
    assert found["imdb"]["failed"] == [] and found["dailydialog"]["failed"] == ["0.0003"]
    found["imdb"]["lr"] = 7e-5
    PILOT.write_text(json.dumps(found))
    for quick in (False, True):
        made = settings(quick)["tasks"]
        assert made["imdb"]["tuned"]["algorithm"]["lr"] == 7e-5
        assert "lr" not in made["commongen"].get("tuned", {}).get("algorithm", {})
    by_name = {c.name: j for c, j in planned(asked(["imdb"], write_settings(False)))[1]}
    rates = {n: j.settings.algorithm["lr"] for n, j in by_name.items() if "zero" not in n}
    assert {lr for n, lr in rates.items() if "/supervised-seed" not in n} == {7e-5}
    assert {lr for n, lr in rates.items() if "/supervised-seed" in n} == {3e-4}
    told = _rates(Path("runs"), ["imdb", "dailydialog", "scitldr"])
    assert "IMDB 7e-05 (reward at 3e-05 0.480, 0.0001 0.500, 0.0003 0.200)" in told
    assert "failed: 0.0003" in told and "20 updates" in told
    assert told.endswith("SciTLDR: no pilot, 3e-5 for the T5, 1e-4 else.")
    grue_pilot.pilot(["imdb", "dailydialog"], arguments())
    assert [j.name for j in seen[1]] == names[-4:]  # the rates are known, those did not finish
    for job in seen[1]:
        ran(job, 0.5)
    grue_pilot.pilot(["imdb", "dailydialog"], arguments())
    assert len(seen) == 2 and json.loads(PILOT.read_text()) == found


def test_what_is_known_is_written_whatever_ends_the_call(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """IMDB is whole, a pilot of DailyDialog was stopped, all of SciTLDR failed."""

    def run(jobs: Sequence[Job], *args: Any, **more: Any) -> None:
        failures = {}
        for job in jobs:
            if "imdb" in job.name and "-lr-" in job.name:
                ran(job, 0.5)
            if "dailydialog" in job.name and "lr-3e-05" in job.name:
                ran(job, 0.5)
            if "scitldr" in job.name:
                failures[job.name] = {"status": 1}
        write_whole(FOLDER / "failures.json", json.dumps(failures))
        raise SystemExit(143)

    monkeypatch.setattr(grue_pilot, "run_jobs", run)
    with pytest.raises(SystemExit):
        grue_pilot.pilot(list(GROUPS["smollm2"]), arguments())
    assert list(json.loads(PILOT.read_text())) == ["imdb"]
    assert f"scitldr: every pilot failed; see {FOLDER}" in capsys.readouterr().out


@pytest.mark.parametrize("quick", [False, True])
def test_a_stopped_pilot_goes_on(quick: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run has begun, as its folder says; by then another task has its rate. The same runs
    are planned again."""
    seen: list[dict[str, Any]] = []

    def run(jobs: Sequence[Job], *args: Any, **more: Any) -> None:
        seen.append({j.name: dump(j.settings) for j in jobs if f"seed{SEED}" in j.name})
        for job in jobs:
            if f"seed{SEED}" in job.name:
                job.folder.mkdir(parents=True, exist_ok=True)
                write_yaml(job.folder / "config.yaml", dump(job.settings))

    monkeypatch.setattr(grue_pilot, "run_jobs", run)
    grue_pilot.pilot(list(GROUPS["smollm2"]), arguments(quick=quick))
    assert len(seen[0]) == 4 + 12
    write_whole(PILOT, json.dumps({"imdb": {"lr": 7e-5}}))
    grue_pilot.pilot(list(GROUPS["smollm2"]), arguments(quick=quick))
    assert seen[1] == {n: s for n, s in seen[0].items() if not n.startswith("imdb")}


def test_a_start_that_failed_is_not_repeated_by_the_pilots(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(
        grue_pilot, "run_jobs", lambda jobs, *args, **more: seen.append([j.name for j in jobs])
    )
    write_whole(Path("runs/failures.json"), json.dumps({"imdb/supervised-seed1": {}}))
    for retry in (False, True):
        grue_pilot.pilot(["imdb"], arguments(retry=retry))
    assert [("imdb/supervised-seed1" in names) for names in seen] == [False, True]


@pytest.mark.parametrize("status", [0, 1, 143, None])
def test_no_cell_before_the_rates_are_known(
    status: int | None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []

    def within(command: Sequence[str], seconds: float) -> int | None:
        stages.append(command[0])
        if command[0] == "cells":
            assert command[-3:] == ["--tasks", "imdb", "scitldr"]
        return status if command[0] == "pilot" else 0

    if status == 0:
        write_whole(PILOT, json.dumps({t: {"lr": 1e-5} for t in ("imdb", "scitldr")}))
    monkeypatch.setattr(grue_real, "within", within)
    monkeypatch.setattr(grue_real, "parts", lambda *args: None)
    monkeypatch.setattr(grue_real, "unanchored", lambda tasks: [])
    monkeypatch.setattr(grue_real, "bundle", lambda *args: stages.append("bundle"))
    given = arguments(out=place / "o", sources=[], stop_after=100.0, measure_later=False)
    given.tasks = None
    assert not grue_real.study("smollm2", given, [])  # DailyDialog has no rate
    given.tasks = ["imdb", "scitldr"]
    stages.clear()
    assert grue_real.study("smollm2", given, []) is (status == 0)
    assert stages == ["pilot", *(["cells"] if status == 0 else []), "bundle"]
