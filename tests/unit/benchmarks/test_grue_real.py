"""The real runs of the benchmark: the study has the cells that it names, and the archives of its
groups make one benchmark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import grue_real, grue_travel
from benchmarks.collect_grue import SOURCES
from benchmarks.grue_ablations import LAYERS, NAMES
from benchmarks.grue_pack import GROUPS
from benchmarks.grue_study import DEVIATIONS, METHODS, asked, planned, write_settings
from benchmarks.parts import cut, packed
from tether.config.errors import UserError
from tether.studies.grue import run as running
from tether.studies.grue.cells import settings_of
from tether.studies.grue.declaration import declare
from tether.studies.grue.planning import chosen


def test_the_study_has_102_cells_with_settings_that_hold(place: Path) -> None:
    tasks = [t for g in GROUPS.values() for t in g]
    plan, made = planned(asked(tasks, write_settings(False)))
    names = [c.name for c, _ in made]
    # 7 zero-shot; 4 methods x 3 seeds x 7 tasks; PPO: 2 tasks x 3 seeds and 5 pilots
    assert len(names) == len(set(names)) == 7 + 84 + 11
    assert "imdb/ppo-seed2" in names and "multi30k/ppo-seed1" not in names
    for _, job in made:
        s = job.settings
        assert s.evaluation.test_prompts == 500 and not Path(s.model.path).is_absolute()
    by = {c.name: j.settings for c, j in made}
    assert by["imdb/supervised-nlpo-seed0"].tethers["nlpo_mask"]["refresh"]["n"] == 5
    assert by["multi30k/supervised-nlpo-seed0"].tethers["nlpo_mask"]["refresh"]["n"] == 8
    assert by["imdb/supervised-ppo-seed1"].model.path == "runs/imdb/supervised-seed1/policy"
    assert by["imdb/supervised-ppo-seed1"].model.lora is not None
    assert by["imdb/supervised-ppo-seed1"].model.gguf_file is None
    assert settings_of(plan, made[0][0]).updates == 0


def test_an_ablation_changes_one_thing_of_supervised_ppo(place: Path) -> None:
    tasks = [t for g in GROUPS.values() for t in g]
    given = asked(tasks, write_settings(False, ablations=True), ablations=True)
    made = planned(given)[1]
    by = {c.name: j for c, j in made}
    plain = {c.name for c, _ in planned(asked(tasks, write_settings(False)))[1]}
    added = sorted(by.keys() - plain)
    arms = [m.rpartition(":")[2] for m in LAYERS]
    assert added == sorted(
        f"multi30k/supervised-benchmarks.grue-ablations-{arm}-seed{seed}"
        for arm in arms
        for seed in (0, 1, 2)
    )
    assert set(LAYERS) == set(NAMES) and plain < by.keys()
    for seed in (0, 1, 2):
        base = by[f"multi30k/supervised-ppo-seed{seed}"]
        s = base.settings
        assert not s.model.dropout and s.sampling.top_k == 10 and s.evaluation.sampling.greedy  # type: ignore[union-attr]
        arm = {a: by[f"multi30k/supervised-benchmarks.grue-ablations-{a}-seed{seed}"] for a in arms}
        assert all(job.after == base.after for job in arm.values())
        found = {a: replace(j.settings, name=s.name, method=s.method) for a, j in arm.items()}
        on = replace(s, model=replace(s.model, dropout=True))
        assert found["dropout"] == on != s
        fifty = replace(s, sampling=replace(s.sampling, top_k=50))
        assert found["mismatched"] == fifty != s
        same = replace(fifty, evaluation=replace(s.evaluation, sampling=fifty.sampling))
        assert found["matched"] == same != fifty


@pytest.mark.parametrize("ablations", [False, True])
def test_what_is_said_to_differ_is_what_is_set(ablations: bool, place: Path) -> None:
    """DEVIATIONS are written by hand, beside settings that may change."""
    tasks = [t for g in GROUPS.values() for t in g]
    given = asked(tasks, write_settings(False, ablations), ablations=ablations)
    made = planned(given)[1]
    by = {c.name: j.settings for c, j in made}
    ablated = {c.name for c, _ in made if c.method.name in LAYERS}
    said = " ".join(DEVIATIONS)
    (tested,) = {s.evaluation.test_prompts for s in by.values()}
    (validated,) = {s.evaluation.prompts for s in by.values()}
    assert f"at most {tested} prompts a task, validated on at most {validated}" in said
    tokens = by["fairytaleqa/ppo-seed0"].sampling.max_new_tokens
    assert f"at most {tokens} new tokens on FairytaleQA (RL4LMs: 50" in said
    others = set()
    for name, s in by.items():
        ppo = by[f"{name.partition('/')[0]}/ppo-seed0"]
        if (s.sampling, s.evaluation.sampling) != (ppo.sampling, ppo.evaluation.sampling):
            others.add(name)
    assert others <= ablated and bool(others) is ablations
    assert "one for all methods of a task, that of its PPO (the ablations apart)" in said


def test_a_cell_without_its_start_is_refused(place: Path) -> None:
    _, made = planned(asked(["commongen"], write_settings(False)))
    with pytest.raises(UserError, match="starts from commongen/supervised-seed0"):
        chosen(made, lambda c: c.method.name != "supervised")
    with pytest.raises(UserError, match="no cell"):
        chosen(made, lambda c: False)


def test_a_rehearsal_has_the_same_cells(place: Path) -> None:
    tasks = [t for g in GROUPS.values() for t in g]
    full, quick = (
        [c.name for c, _ in planned(asked(tasks, write_settings(q)))[1]] for q in (False, True)
    )
    assert full == quick


def finish(job: Any, *, adapter: bool, policy: bool) -> None:
    job.folder.mkdir(parents=True)
    (job.folder / "record.jsonl").write_text('{"kind": "end", "updates": 1}\n')
    for name, there in (("adapter", adapter), ("policy", policy)):
        if there:
            (job.folder / name).mkdir()
            (job.folder / name / "w.safetensors").write_bytes(b"0" * 1000)


def test_a_start_whose_weights_are_gone_is_merged_or_trained_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = planned(asked(["commongen", "imdb"], write_settings(False)))
    jobs = {c.name: j for c, j in made}
    finish(jobs["commongen/supervised-seed0"], adapter=False, policy=False)
    finish(jobs["commongen/supervised-seed1"], adapter=False, policy=True)
    finish(jobs["imdb/supervised-seed0"], adapter=True, policy=False)
    merged: list[str] = []
    monkeypatch.setattr(grue_real, "merge", lambda job, folder: merged.append(job.name))
    assert grue_real.restore_starts(made) == ["commongen/supervised-seed0"]
    assert merged == ["imdb/supervised-seed0"]
    assert not jobs["commongen/supervised-seed0"].folder.exists()
    assert jobs["commongen/supervised-seed1"].folder.exists()


def test_starts_of_finished_methods_do_not_travel(place: Path) -> None:
    _, made = planned(asked(["commongen", "imdb"], write_settings(False)))
    jobs = {c.name: j for c, j in made}
    finish(jobs["imdb/supervised-seed0"], adapter=True, policy=True)
    finish(jobs["imdb/supervised-seed1"], adapter=True, policy=True)
    finish(jobs["commongen/supervised-seed0"], adapter=False, policy=True)
    for method in METHODS[2:5]:
        name = method.replace("+", "-")
        finish(jobs[f"imdb/{name}-seed1"], adapter=False, policy=False)
    files, left = grue_travel.starts(made, 10_000)
    assert [f.as_posix() for f in files] == ["runs/imdb/supervised-seed0/adapter/w.safetensors"]
    assert left == ["commongen/supervised-seed0"]
    assert grue_travel.starts(made, 10)[1] == [
        "commongen/supervised-seed0",
        "imdb/supervised-seed0",
    ]


def bundled(group: str, out: Path) -> None:
    """A group's runs in a folder of their own: two cells have finished, one of them without
    metrics, one has failed, a start was trained again."""
    shutil.rmtree("runs", ignore_errors=True)
    first = GROUPS[group][0]
    plan, made = planned(asked(GROUPS[group], write_settings(False)))
    declare(plan, made, {t: f"stamp of {t}" for t in GROUPS[group]})
    for cell, job in made:
        if (cell.task, cell.seed, cell.method.name) in ((first, 0, "zero-shot"), (first, 0, "ppo")):
            finish(job, adapter=False, policy=False)
    for name, content in (
        ("failures.json", {f"{first}/ppo-seed1": {"error": "out of memory"}}),
        ("unmeasured.json", {f"{first}/ppo-seed0": "no WordNet"}),
        ("repeated.json", [f"{first}/supervised-seed0"]),
    ):
        (Path("runs") / name).write_text(json.dumps(content))
    (Path("runs") / "anchors").mkdir()
    for task in GROUPS[group]:
        (Path("runs") / "anchors" / f"{task}.json").write_text("{}")
    grue_travel.bundle(group, out, Namespace(quick=False, ablations=False, seeds=[0, 1, 2]))


@pytest.mark.parametrize("folders_", [("o", "o"), ("a", "b")])
def test_the_records_of_both_groups_make_one_benchmark(
    folders_: tuple[str, str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outs = [place / f for f in folders_]
    for group, out in zip(GROUPS, outs, strict=True):
        bundled(group, out)
    there = place / "elsewhere"
    there.mkdir()
    monkeypatch.chdir(there)
    for _ in range(2):  # taken twice is taken once
        grue_travel.unpack(outs)
    found = {f.stem: json.loads(f.read_text()) for f in Path("runs").glob("*.json")}
    assert set(found["grue"]["tasks"]) == {t for g in GROUPS.values() for t in g}
    assert len(found["grue"]["cells"]) == 102 and len(found["grue"]["anchors"]) == 7
    assert sorted(found["failures"]) == ["commongen/ppo-seed1", "imdb/ppo-seed1"]
    assert sorted(found["unmeasured"]) == ["commongen/ppo-seed0", "imdb/ppo-seed0"]
    assert sorted(found["repeated"]) == ["commongen/supervised-seed0", "imdb/supervised-seed0"]
    assert len(list(Path("runs/anchors").iterdir())) == 7
    for task in ("commongen", "imdb"):
        assert all((Path("runs") / task / f"{x}" / "record.jsonl").is_file()
                   for x in ("zero-shot", "ppo-seed0"))  # fmt: skip
    assert {f.name for f in Path().glob("lost-*")} == {"lost-t5.json", "lost-smollm2.json"}


def test_what_has_been_mended_since_stays_mended(place: Path) -> None:
    """An archive tells of its own group alone, whatever was known of the other when it was made;
    of its own group it alone tells."""
    bundled("t5", place / "o")
    failures, repeated = Path("runs/failures.json"), Path("runs/repeated.json")
    theirs = json.loads(failures.read_text())
    stale = {"imdb/ppo-seed0": {"error": "stale"}, "imdb/ppo-seed1": {"error": "mended since"}}
    failures.write_text(json.dumps({**theirs, **stale}))
    repeated.write_text('["commongen/supervised-seed0", "imdb/supervised-seed0"]')
    grue_travel.bundle("t5", place / "o", Namespace(quick=False, ablations=False, seeds=[0, 1, 2]))
    here = {"imdb/ppo-seed0": {"error": "x"}}
    failures.write_text(json.dumps({**here, "commongen/ppo-seed2": {"error": "mended there"}}))
    repeated.write_text('["imdb/supervised-seed2"]')
    grue_travel.unpack([place / "o"])
    assert json.loads(failures.read_text()) == {**here, **theirs}
    known = json.loads(repeated.read_text())
    assert known == ["imdb/supervised-seed2", "commongen/supervised-seed0"]


def test_an_archive_of_another_benchmark_changes_nothing(place: Path) -> None:
    """Not even the files that come before grue.json in the order of paths."""
    bundled("t5", place / "o")
    declared = json.loads(Path("runs/grue.json").read_text())
    Path("runs/grue.json").write_text(json.dumps({**declared, "margin": 0.5}))
    for file in [f for f in Path("runs").rglob("*.json*") if f.name != "grue.json"]:
        file.write_text("[]" if file.name == "repeated.json" else '{"commongen/x": "here"}')
    Path("lost-t5.json").unlink()

    def files() -> dict[str, bytes]:
        return {str(f): f.read_bytes() for f in Path().rglob("*") if f.is_file()}

    before = files()
    assert {"runs/anchors/commongen.json", "runs/commongen/ppo-seed0/record.jsonl"} < set(before)
    with pytest.raises(UserError, match=r"declares margin 0\.5, and the archive 0\.01"):
        grue_travel.unpack([place / "o"])
    assert files() == before


def test_records_under_other_anchors_change_nothing(place: Path) -> None:
    """Cells that are here may be measured under those that are here."""
    bundled("t5", place / "o")
    anchors = Path("runs/anchors/fairytaleqa.json")
    anchors.write_text('{"of": "here"}')
    record = Path("runs/commongen/ppo-seed0/record.jsonl")
    record.unlink()
    with pytest.raises(UserError, match=r"fairytaleqa\.json is there and has other .*records-t5"):
        grue_travel.unpack([place / "o"])
    assert json.loads(anchors.read_text()) == {"of": "here"} and not record.exists()
    anchors.unlink()
    grue_travel.unpack([place / "o"])
    assert anchors.is_file() and record.is_file()


def test_a_folder_without_its_archives_is_named(place: Path) -> None:
    with pytest.raises(UserError, match=r"--from .*ot5 is no folder"):
        grue_travel.unpack([place / "ot5"])
    (place / "empty").mkdir()
    with pytest.raises(UserError, match="holds no list of pieces"):
        grue_travel.unpack([place / "empty"])
    (place / "x.bin").write_bytes(b"0" * 100)
    for piece in cut(packed(place, [place / "x.bin"]), place / "o", "t5"):
        piece.unlink()
    with pytest.raises(UserError, match=r"t5\.tar\.xz-00 is not there, and t5\.json names it"):
        grue_travel.unpack([place / "o"])


def test_what_is_measured_later_is_declared_and_what_failed_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> bool:
        raise RuntimeError("no WordNet")

    ready = {t: running.Ready([], [], None, f"stamp of {t}") for t in GROUPS["t5"]}  # type: ignore[arg-type]
    monkeypatch.setattr(running, "prepare", lambda *_: ready)
    monkeypatch.setattr(running.scoring, "score", failing)
    _, made = planned(asked(GROUPS["t5"], write_settings(False)))
    finish(made[0][1], adapter=False, policy=False)
    args = Namespace(quick=False, ablations=False, seeds=[0, 1, 2])
    assert not grue_real.measured(GROUPS["t5"], args)
    declared = json.loads(Path("runs/grue.json").read_text())
    assert declared["tasks"] == list(GROUPS["t5"]) and len(declared["cells"]) == len(made)
    failed = json.loads(Path("runs/unmeasured.json").read_text())
    assert failed == {made[0][0].name: "RuntimeError: no WordNet"}
    monkeypatch.setattr(running.scoring, "score", lambda *_: True)
    assert grue_real.measured(GROUPS["t5"], args)
    assert json.loads(Path("runs/unmeasured.json").read_text()) == {}


def test_at_the_deadline_the_runs_are_asked_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import signal, sys, time, pathlib\n"
        "def stop(*_):\n"
        "    pathlib.Path(sys.argv[-1]).write_text('asked')\n"
        "    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "time.sleep(30)\n"
    )
    asked_file = tmp_path / "asked"
    file = tmp_path / "slow.py"
    file.write_text(program)
    plain = grue_real.subprocess.Popen
    monkeypatch.setattr(
        grue_real.subprocess, "Popen", lambda command: plain([command[0], str(file), *command[3:]])
    )
    assert grue_real.within([str(asked_file)], 2.0) is None
    assert asked_file.read_text() == "asked"
    file.write_text("raise SystemExit(3)")
    assert grue_real.within([str(asked_file)], 20.0) == 3


WORKER = """
import ctypes, pathlib, signal, sys, time
def save(*_):
    time.sleep(1.0)
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
pathlib.Path(sys.argv[1]).write_text("works")
time.sleep(30)
"""
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], start_new_session=True)
time.sleep(30)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs Linux's /proc")
def test_workers_of_a_killed_driver_write_before_anything_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "checkpoint"
    words = [sys.executable, "-c", STUBBORN, str(file), WORKER]
    monkeypatch.setattr(grue_real, "started", lambda _: subprocess.Popen(words))
    monkeypatch.setattr(grue_real, "GRACE", 0.3)
    clock = time.perf_counter()
    assert grue_real.within([], 3.0) is None
    assert file.read_text() == "saved"
    assert time.perf_counter() - clock < 12  # gone, not given up


def test_the_documented_calls_name_what_they_read() -> None:
    """To measure on a fresh folder the sets and the weights are needed, and what was trained."""
    words = [x.split() for x in (grue_real.__doc__ or "").splitlines() if "grue_real " in x]
    calls = [grue_real.parser().parse_args([w for w in x[3:] if w != "..."]) for x in words]
    read = {call.action: [str(s) for s in call.sources] for call in calls}
    assert read.pop("anchors") == [SOURCES["t5"]]
    assert read.pop("measure") == [*" ".join(SOURCES.values()).split(), "O"]
    assert read == {group: sources.split() for group, sources in SOURCES.items()}
