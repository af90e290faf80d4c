"""A study's records in one file: the same tables come out, and nothing of a machine is in it."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.archive import archive
from benchmarks.collect_grue import main as collect_grue
from benchmarks.collect_imdb import main as collect
from benchmarks.collect_imdb_graph import main as collect_graph
from benchmarks.collect_imdb_methods import main as collect_methods
from tests.unit.benchmarks.test_collect_imdb import records as records_

records = records_
ROOT = Path(__file__).resolve().parents[3]


def read(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


def test_the_same_rows_come_out(records: Path, tmp_path: Path) -> None:
    packed, one, two = tmp_path / "a.tgz", tmp_path / "one.json", tmp_path / "two.json"
    (records / "study" / "ppo-seed0" / "samples.jsonl").write_text("a review")
    archive(records, packed, [0, 1, 2])
    words = ["--date", "2026-01-02", "--commit", "0123abc", "--out"]
    assert collect([str(records), *words, str(one)]) == 0
    assert collect([str(packed), *words, str(two)]) == 0
    given, again = json.loads(one.read_text()), json.loads(two.read_text())
    for mine, theirs in zip(given["rows"], again["rows"], strict=True):
        assert mine == theirs
    assert given == again


def test_seconds_are_kept_and_runs_of_both_studies_chosen_by_seed(
    records: Path, tmp_path: Path
) -> None:
    for seed in (0, 1):
        run = records / "study" / f"ppo-seed{seed}"
        (run / "timing.jsonl").write_text('{"seconds": {}}\n')
        shutil.copytree(run, records / "graph" / f"ppo-seed{seed}")
    (records / "graph" / "notes.json").write_text('["what no record says"]')
    archive(records, tmp_path / "a.tgz", [1])
    found = read(tmp_path / "a.tgz")
    assert found["study/ppo-seed1/timing.jsonl"] == b'{"seconds": {}}\n'
    assert found["graph/notes.json"] == b'["what no record says"]'
    assert {n.split("/")[1] for n in found if n.startswith("graph/")} == {"ppo-seed1", "notes.json"}


def test_other_seeds_samples_and_machines_stay_outside(records: Path, tmp_path: Path) -> None:
    run = records / "study" / "ppo-seed0"
    (run / "samples.jsonl").write_text("a review")
    facts = {"device": "one card", "versions": {}, "command": ["/home/x/tether", "train"]}
    (run / "environment.json").write_text(json.dumps(facts))
    packed = tmp_path / "a.tgz"
    archive(records, packed, [0])
    found = read(packed)
    assert {n.split("/")[1][-1] for n in found if n.startswith("study/")} == {"0"}
    assert not any(n.endswith("samples.jsonl") for n in found)
    text = b"".join(found.values())
    assert b"/home/x" not in text and b"/data/x" not in text and b"a review" not in text
    assert archive(records, tmp_path / "b.tgz", [0])
    assert packed.read_bytes() == (tmp_path / "b.tgz").read_bytes()


@pytest.mark.parametrize(
    ("name", "collect"),
    [
        ("imdb_first", collect), ("imdb_methods", collect_methods), ("imdb_graph", collect_graph),
        ("grue", collect_grue),
    ],
)  # fmt: skip
def test_the_committed_archive_gives_the_committed_rows(
    name: str, collect: Callable[[list[str]], int], tmp_path: Path
) -> None:
    file = ROOT / "benchmarks" / "results" / f"{name}.json"
    if not file.exists():
        pytest.skip(f"{file.name}: not yet run")
    shipped = json.loads(file.read_text())
    out = tmp_path / "rows.json"
    words = ["--date", shipped["date"], "--commit", shipped["commit"], "--out", str(out)]
    if name == "grue":  # a row alone is NAME: METHOD
        of = {}
        for r in (r for r in shipped["rows"] if "commit" in r):
            alone = r["row"].partition(": ")[2]
            task = r["kind"].partition("-")[2]
            of[f"{task}/{alone}" if alone else task] = r["commit"]
        for r in shipped["rows"]:
            of |= r.get("commits", {})
        words += ["--other", *(f"{what}={commit}" for what, commit in of.items())]
    collect([str(ROOT / "benchmarks" / "records" / f"{name}.tgz"), *words])
    assert json.loads(out.read_text()) == shipped
