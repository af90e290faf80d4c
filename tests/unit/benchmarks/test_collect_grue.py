"""The tables of the real runs come from their files, and say what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.collect_grue import collect, main, pack
from benchmarks.collect_imdb import opened
from benchmarks.grue_ablations import LAYERS, NAMES
from benchmarks.grue_pack import GROUPS
from benchmarks.grue_study import METHODS, PRETRAINED
from benchmarks.published_grue import TABLES
from benchmarks.render import read as read_result
from benchmarks.render import render
from tests.unit.grue import folders


def test_every_paper_row_has_its_columns() -> None:
    for found in TABLES.values():
        assert all(len(v) == len(found.columns) for v in found.rows.values())
        assert set(found.rows) <= {*METHODS, "nlpo"}
    assert set(TABLES) == {t for g in GROUPS.values() for t in g}


def test_models_that_ran_at_different_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = benchmark(tmp_path / "runs")
    (folder / "repeated.json").write_text("[]")
    found = collect(folder, date="2026-01-02", commit="0123abc", others={"t5": "fedcba9"})
    file = tmp_path / "grue.json"
    file.write_text(json.dumps(found))
    page = render(read_result(file))
    assert "Trained twice" not in page
    assert "at commit 0123abc; torch 2. At commit fedcba9: CommonGen.\n" in page
    of = {r["kind"]: r.get("commit") for r in found["rows"] if r["card"] == "one card"}
    assert of["scores-commongen"] == "fedcba9" and of["scores-imdb"] is None
    words = [str(folder), "--date", "2026-01-02", "--commit", "0123abc", "--out", str(file)]
    both = ["t5=fedcba9", "smollm2=fedcba9"]
    twice = ["imdb/ppo=1", "imdb/ppo=2"]
    for wrong in (["t6=1"], ["t5"], ["t5="], both, [*both, "imdb/ppo=1"], ["imdbb=1"], twice):
        with pytest.raises(SystemExit):
            main([*words, "--other", *wrong])
    assert main([*words, "--other", "smollm2=fedcba9"]) == 0
    assert "At commit fedcba9: IMDB." in render(read_result(file))
    assert main([*words, "--other", "imdb=fedcba9"]) == 0  # a task, of the same model as others
    assert "At commit fedcba9: IMDB." in render(read_result(file))
    assert {r["kind"] for r in read_result(file)["rows"] if r.get("commit")} == {
        "scores-imdb", "metrics-imdb",
    }  # fmt: skip
    assert main([*words, "--other", "imdb=fedcba9", "commongen=1234567"]) == 1
    assert "--other names every task" in capsys.readouterr().err
    assert main([*words, "--other", "imdb/pppo=fedcba9"]) == 1
    assert "--other imdb/pppo is no task or row" in capsys.readouterr().err
    assert main([*words, "--other", "imdb/supervised+ppo-seed1=fedcba9"]) == 1  # did not finish
    assert "nor a finished cell of it" in capsys.readouterr().err
    cells = ["imdb/ppo-seed1=fedcba9", "imdb/zero-shot-seed0=1234567", "imdb/ppo-seed0=fedcba9"]
    assert main([*words, "--other", *cells]) == 0
    assert (
        "Ran at another commit than the other seeds of their row: at 1234567 imdb/zero-shot-seed0; "
        "at fedcba9 imdb/ppo-seed0, imdb/ppo-seed1."
    ) in read_result(file)["notes"]
    mixed = {r["method"]: r["commits"] for r in read_result(file)["rows"] if "commits" in r}
    assert mixed == {
        "ppo": {"imdb/ppo-seed0": "fedcba9", "imdb/ppo-seed1": "fedcba9"},
        "zero-shot": {"imdb/zero-shot-seed0": "1234567"},
    }
    assert not any(r.get("commit") for r in read_result(file)["rows"])
    for seed in (0, 1):
        facts = folder / "imdb" / f"ppo-seed{seed}" / "environment.json"
        facts.write_text(json.dumps({"device": "one card", "versions": {"torch": "3"}}))
    assert main([*words, "--other", "t5=fedcba9", "imdb/ppo=9876543"]) == 0
    found = read_result(file)
    rows = [r for r in found["rows"] if r.get("commit") == "9876543"]
    assert {(r["method"], r["kind"]) for r in rows} == {
        ("ppo", "scores-imdb"), ("ppo", "metrics-imdb"),
    }  # fmt: skip
    assert all(r["versions"] == {"torch": "3"} for r in rows)
    assert "At commit fedcba9: CommonGen. At commit 9876543 (torch 3" in render(found)
    for facts in folder.glob("commongen/*/environment.json"):
        facts.unlink()  # nothing asks for them where the task ran at --commit, as others did
    assert main([*words, "--other", "imdb/ppo=9876543"]) == 0


def benchmark(folder: Path) -> Path:
    """Made-up results of three rows, one cell of which has not finished."""
    rows = {
        "zero-shot": folders.row("zero-shot", tuned=False),
        "supervised": folders.row("supervised", tuned=False),
        "supervised+ppo": folders.row("supervised+ppo", start="supervised"),
        "ppo": folders.row("ppo"),
    }
    folders.write(
        folder, rows, [0, 1], lambda task, row, seed: 0.2 + 0.02 * seed + 0.1 * len(row) / 10,
        unfinished=["imdb/supervised+ppo-seed1"],
    )  # fmt: skip
    for cell in folder.glob("*/*/scores.json"):
        facts = {"device": "one card", "versions": {"torch": "2"}, "host": "h", "command": ["x"]}
        (cell.parent / "environment.json").write_text(json.dumps(facts))
    return folder


def test_tables_hold_every_seed_and_the_paper_and_say_what_is_missing(tmp_path: Path) -> None:
    found = collect(benchmark(tmp_path / "runs"), date="2026-01-02", commit="0123abc")
    file = tmp_path / "grue.json"
    file.write_text(json.dumps(found))
    read_result(file)
    scores = {r["method"]: r for r in found["rows"] if r["kind"] == "scores-commongen"}
    # ppo, seeds 0 and 1: rouge_1 is .23 and .25 at the end, on the scale from .1 to .5
    final = scores["ppo"]["task_final"]
    assert final["values"] == pytest.approx([0.325, 0.375]) and final["mean"] == pytest.approx(0.35)
    assert final["low"] < final["mean"] < final["high"]
    assert scores["ppo"]["task_budget"]["values"] == pytest.approx([0.225, 0.275])
    assert scores["ppo"]["reward_4"]["values"] == [0.4, 0.4]
    assert scores["ppo"]["drift_final"]["values"] == [6.0, 6.0]
    assert scores["supervised"]["reward_4"] is None
    half = next(r for r in found["rows"] if r["kind"] == "scores-imdb" and "+" in r["method"])
    assert half["seeds"] == [0]
    assert any("imdb/supervised+ppo-seed1" in n for n in found["notes"])
    assert "15 of 16" not in str(found["notes"]) and "13 of 14 cells" in found["notes"][0]
    assert "Not run, or not among these files: fairytaleqa, multi30k, " in str(found["notes"])
    commands = {k: next(r["command"] for r in found["rows"] if r["kind"] == f"scores-{k}")
                for k in ("commongen", "imdb")}  # fmt: skip
    assert commands["imdb"].endswith("--from .grue/smollm2 .grue/gguf")
    assert commands["commongen"].endswith("--from .grue/t5")
    paper = [r for r in found["rows"] if r["kind"] == "metrics-imdb" and r["of"] != "here"]
    assert {r["method"]: r["classifier"] for r in paper}["ppo"] == 0.605
    assert all(r["command"].startswith("none:") for r in paper)


def test_ablations_have_names_their_command_and_a_note(tmp_path: Path) -> None:
    rows = {m: folders.row(m, start="supervised") for m in ("supervised+ppo", *LAYERS)}
    rows = {"supervised": folders.row("supervised", tuned=False), **rows}
    folders.write(
        tmp_path / "runs", rows, [0, 1], lambda task, row, seed: 0.2 + 0.01 * len(row),
        tasks=["commongen"],
    )  # fmt: skip
    for cell in (tmp_path / "runs").glob("*/*/scores.json"):
        (cell.parent / "environment.json").write_text('{"device": "one card", "versions": {}}')
    found = collect(tmp_path / "runs", date="2026-01-02", commit="0123abc")
    mine = {r["method"]: r for r in found["rows"] if r["kind"] == "scores-commongen"}
    assert set(mine) == {"supervised", "supervised+ppo", *NAMES.values()}
    assert all(
        r["command"].endswith(" --ablations") == (m in NAMES.values()) for m, r in mine.items()
    )
    assert sum("Ablations" in n for n in found["notes"]) == 1
    plain = collect(benchmark(tmp_path / "plain"), date="2026-01-02", commit="0123abc")
    assert not any("Ablations" in n for n in plain["notes"])


def test_what_the_t5_has_seen_is_told_and_is_in_the_archive(tmp_path: Path) -> None:
    runs = benchmark(tmp_path / "runs")
    facts = {
        "parameters": 27_000_000, "steps": 3000, "tokens_seen": 3000 * 65_536,
        "tokens_of_texts": 15_696_159, "held_out_loss": 4.321, "seconds": 300.0,
    }  # fmt: skip
    before = collect(runs, date="2026-01-02", commit="0123abc")["notes"]
    (runs / PRETRAINED.name).write_text(json.dumps(facts))
    assert pack(runs, tmp_path / "a.tgz") > 0
    with opened(tmp_path / "a.tgz") as folder:
        (told,) = [
            n for n in collect(folder, date="2026-01-02", commit="0123abc")["notes"]
            if n not in before
        ]  # fmt: skip
    assert told == (
        "The T5: 27,000,000 parameters, span corruption for 3,000 steps of 65,536 tokens from "
        "texts of 15,696,159; loss 4.32 on texts held out."
    )


def test_an_archive_gives_the_same_tables_and_names_no_machine(tmp_path: Path) -> None:
    runs, packed_file = benchmark(tmp_path / "runs"), tmp_path / "a.tgz"
    one, two = tmp_path / "grue.json", tmp_path / "again.json"
    assert pack(runs, packed_file) > 0
    words = ["--date", "2026-01-02", "--commit", "0123abc", "--out"]
    assert main([str(runs), *words, str(one)]) == main([str(packed_file), *words, str(two)]) == 0
    assert one.read_text() == two.read_text()
    shutil.unpack_archive(packed_file, tmp_path / "back", "gztar", filter="data")
    assert "host" not in "".join(p.read_text() for p in (tmp_path / "back").rglob("*.json"))
    assert not list((tmp_path / "back").rglob("samples.jsonl"))


def test_a_task_that_the_real_runs_do_not_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"supervised": folders.row("supervised", tuned=False)}
    tasks = ["commongen", "webnlg"]
    folders.write(tmp_path / "runs", rows, [0], lambda task, row, seed: 0.2, tasks=tasks)
    out = tmp_path / "grue.json"
    words = ["--date", "2026-01-02", "--commit", "0123abc", "--out", str(out)]
    assert main([str(tmp_path / "runs"), *words]) == 1
    said = capsys.readouterr().err
    assert "runs has webnlg, and the tables here are of commongen, fairytaleqa, " in said
    assert said.count("\n") == 1 and not out.exists()
