"""Files of a benchmark that were cut or changed: one cell fewer, or one line that says the mend."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.grue.folders import row, stamp, write
from tether.cli.main import main as tether
from tether.config.errors import UserError
from tether.config.json_file import digest
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.reports.grue.results import finished, read
from tether.reports.grue.write import notes
from tether.studies.grue.anchors import Examples, store
from tether.studies.grue.cells import jobs
from tether.studies.grue.declaration import declare, declared
from tether.studies.grue.planning import Asked, plan_of
from tether.studies.grue.run import Ready, _record, measure
from tether.studies.grue.scoring import measured
from tether.studies.watch import Watch
from tether.studies.workers import run_jobs

ROWS = {"zero-shot": row("zero-shot", tuned=False), "ppo": row("ppo"), "nlpo": row("nlpo")}
CELL = "imdb/ppo-seed0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "c", ROWS, [0], lambda task, label, seed: 0.3)


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


STAMP = stamp("imdb")
SOUND = {"names": ["final"], "policy": "exported", "update": 4, "drift": 1, "reward": 1,
         "perplexity": 1, "values": {"rouge_1": 0.3, "perplexity": 1}, "left_out": {}}  # fmt: skip
WRONG: list[dict[str, Any]] = [
    {"values": {"rouge_1": None}},
    {"values": {"rouge_1": "a"}},
    {"values": {"rouge_1": float("nan")}},
    {"values": {"rouge_1": 0.3, "perplexity": 0}},
    {"values": {"rouge_1": 0.3, "rouge_9": 0.3}},
    {"values": [0.3]},
    {"left_out": {"rouge_1": [0.1, 0.2, 0.3]}},
    {"left_out": {"rouge_1": [0.1, "b"]}},
    {"left_out": {"rouge_9": [0.1, 0.2]}},
    {"left_out": {"rouge_1": 3}},
    {"perplexity": "a"},
    {"perplexity": 0},
    {"drift": "a"},
    {"reward": []},
    {"names": 3},
    {"names": [3]},
    {"parts": 3},
    {"parts": {"chrf": {"x": "a"}}},
]
SCORES = ['{"a', "{}", "[]", "", "null", json.dumps({"anchors": STAMP}),
          json.dumps({"anchors": STAMP, "weights": []}),
          json.dumps({"anchors": STAMP, "weights": [{}]}),
          *(json.dumps({"anchors": STAMP, "weights": [SOUND | w]}) for w in WRONG)]  # fmt: skip


@pytest.mark.parametrize("text", SCORES)
def test_scores_that_are_damaged_are_as_none(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read(folder).tasks[1]

    def sound() -> bool:
        return measured(folder / CELL, STAMP, found.anchors, found.examples)

    assert sound()
    file = folder / CELL / "scores.json"
    file.write_text(text)
    assert not sound()  # so `grue run` measures it again
    r = read(folder)
    assert r.missing == (CELL,)
    said = next(n for n in notes(r) if n.startswith(f"{CELL} counts as unfinished: {file} is dam"))
    assert "the same `tether grue run` measures the cell again" in said
    assert tether(["grue", "report", str(folder)]) == 0
    assert "nlpo" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["end", "half", "empty", "line", "lost", "start"])
def test_a_record_that_was_changed_is_no_sound_run(damage: str, folder: Path) -> None:
    file = folder / CELL / "record.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    if damage == "lost":
        file.unlink()
    else:
        left = {"end": lines[:-1], "half": [*lines[:-1], lines[-1][:9]], "empty": [],
                "line": [lines[0], "{]\n", *lines[1:]], "start": lines[1:]}  # fmt: skip
        file.write_text("".join(left[damage]))
    r = read(folder)
    assert r.missing == (CELL,) and r.tasks[1].cells["nlpo"]
    said = next(n for n in notes(r) if n.startswith(f"{CELL} counts as unfinished: {file}"))
    assert f"or delete {folder / CELL}: the same `tether grue run --retry` trains it again" in said
    assert tether(["grue", "report", str(folder)]) == 0


def test_an_archive_of_the_scores_alone_is_read(folder: Path) -> None:
    for file in folder.glob("*/*/record.jsonl"):
        file.unlink()
    assert read(folder).missing == ()


def test_where_nothing_else_has_finished_the_damaged_file_is_named(tmp_path: Path) -> None:
    others = [f"{t}/{x}-seed0" for t in ("commongen", "imdb") for x in ROWS]
    others.remove(CELL)
    folder = write(tmp_path, ROWS, [0], lambda *_: 0.3, unfinished=others)
    cut(folder / CELL / "scores.json", 20)
    with pytest.raises(UserError, match=r"no cell has finished yet \(.*scores\.json is damaged"):
        read(folder)


SHARED = {
    "grue.json": "repeat the `tether grue run` commands of this folder",
    "anchors/imdb.json": "the same `tether grue run` computes it again",
    "failures.json": "delete it: it lists the runs that failed, which are then repeated",
    "unmeasured.json": "delete it: the next `tether grue run` writes it again",
}


@pytest.mark.parametrize("text", ["[]", "{}", "", '{"a', "7", '{"rows": []}', '{"x": 1}'])
@pytest.mark.parametrize("name", SHARED)
def test_a_shared_file_that_is_damaged_is_one_line(
    name: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text(text)
    sound = name == "unmeasured.json" and text.startswith('{"') and text.endswith("}")
    sound |= text == "{}" and name in ("failures.json", "unmeasured.json")
    code = tether(["grue", "report", str(folder)])
    said = capsys.readouterr().err.strip()
    assert code == (0 if sound else 2)
    if not sound:
        assert f"{folder / name} is damaged (" in said and SHARED[name] in said
        assert "\n" not in said


def test_damaged_parts_of_a_declaration(folder: Path) -> None:
    file = folder / "grue.json"
    whole = json.loads(file.read_text())
    wrong = [
        *(("cells", x) for x in ([{}], 3, [3], [{**whole["cells"][0], "label": "gone"}])),
        *(("rows", x) for x in ({"a": {"b": 1}}, [], None)),
        *(("margin", x) for x in ("x", 0, None)),
        *(("seeds", x) for x in (3, "abc", ["a"])),
        *(("budgets", x) for x in ([], ["a"], [0], 4)),
        *(("primary", x) for x in ([["ppo", "gone"]], [["ppo"]], "ppo", [3])),
        *(("anchors", x) for x in ([], 3)),
        ("tasks", "imdb"),
    ]
    for key, value in wrong:
        file.write_text(json.dumps({**whole, key: value}))
        for reader in (read, declared):
            if (key, value) != ("rows", {"a": {"b": 1}}) or reader is read:
                with pytest.raises(UserError, match=r"grue\.json is damaged") as e:
                    reader(folder)
                assert "\n" not in str(e.value)


def test_anchors_that_were_edited_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ends that all scores are mapped by; the scores of a report would move without a word."""
    file = folder / "anchors" / "imdb.json"
    whole = json.loads(file.read_text())
    whole["metrics"][0]["ceiling"] = 0.9
    file.write_text(json.dumps(whole))
    said = f"{file} was changed after it was written (its hash is another): restore it, or delete"
    assert tether(["grue", "report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    with pytest.raises(UserError, match="was changed after it was written"):
        store(folder, "imdb", [], Examples(["p"], [["r"]], {}, "e"))
    # with a hash that fits, it is not that under which the cells were measured
    whole["sha256"] = digest({k: v for k, v in whole.items() if k != "sha256"})
    file.write_text(json.dumps(whole))
    with pytest.raises(UserError, match=r"imdb\.json holds other anchors than those that .*grue\."):
        read(folder)


@pytest.mark.parametrize("text", ["a: [", "- 3\n", "", b"\xff\xfe\x00"])
def test_a_damaged_config_of_a_run_is_one_line(
    text: str | bytes, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / CELL / "config.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert tether(["grue", "report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"{file} is damaged (" in error and "or delete it" in error and error.count("\n") == 1


def test_a_config_that_was_cut_is_no_other_run(tmp_path: Path) -> None:
    _, made = mini(tmp_path)
    config = made[1][1].folder / "config.yaml"
    config.parent.mkdir(parents=True)
    write_yaml(config, dump(made[1][1].settings))
    mini(tmp_path)
    cut(config, 100)
    with pytest.raises(UserError, match=r"config\.yaml is damaged \(it was cut\): restore it"):
        mini(tmp_path)


def mini(folder: Path) -> tuple[Any, Any]:
    plan = plan_of(Asked(["imdb"], ["ppo"], mini=True, out=folder))
    return plan, jobs(plan)


def test_before_anything_runs(tmp_path: Path) -> None:
    plan, made = mini(tmp_path)
    for name, text in (("grue.json", "{}"), ("grue.json", "[]"), ("grue.json", '{"mini')):
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=r"grue\.json is damaged .*--primary and --margin incl"):
            declare(plan, made, {"imdb": "stamp"})
    (tmp_path / "anchors").mkdir()
    (tmp_path / "anchors/imdb.json").write_text("{}")
    with pytest.raises(UserError, match=r"imdb\.json is damaged .*computes it again"):
        store(tmp_path, "imdb", [], Examples(["p"], [["r"]], {}, "e"))
    (tmp_path / "failures.json").write_text("[]")
    with pytest.raises(UserError, match=r"failures\.json is damaged .*which are then repeated"):
        run_jobs([made[0][1]], tmp_path, workers=1, per_device=1, retry=False, console=Console())


def test_why_metrics_failed_is_written_anew(tmp_path: Path) -> None:
    _, made = mini(tmp_path)
    (tmp_path / "unmeasured.json").write_text("[")
    _record(tmp_path, made, {}, Console(file=io.StringIO()))
    assert json.loads((tmp_path / "unmeasured.json").read_text()) == {}


def test_a_damaged_record_is_told_by_the_run_too(tmp_path: Path) -> None:
    _, made = mini(tmp_path)
    record = made[1][1].folder / "record.jsonl"
    record.parent.mkdir(parents=True)
    record.write_text('{"kind": "update", "upd\n{"kind": "end"}\n')
    assert not finished(record.parent)
    failed = measure(made[1:], {"imdb": Ready([], [], Examples([], [], {}, "e"), "stamp")})
    assert f"or delete {record.parent}: the same `tether grue run --retry` trains" in failed[CELL]
    watch = Watch(record)
    watch.look()  # no traceback before the first run
    assert watch.ended and watch.updates == 0
