"""The generated part of the pages: what is written, what is refused, what a check finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.render import Wrong, main, read, render, shown

ROOT = Path(__file__).resolve().parents[3]


def result(**changes: Any) -> dict[str, Any]:
    row = {
        "kind": "run",
        "command": "tether train ppo --seed 3",
        "card": "one card",
        "date": "2026-01-02",
        "seeds": [3],
        "method": "PPO | plain",
        "reward": 0.71249,
    }
    table = {
        "title": "Runs",
        "rows": ["run"],
        "columns": {"method": "Method", "reward": "Reward"},
        "text": "Final weights.",
    }
    return {
        "name": "first",
        "page": "docs/results.md",
        "date": "2026-01-02",
        "card": "one card",
        "commit": "0123abc",
        "versions": {"torch": "2.13.0"},
        "notes": ["One seed."],
        "tables": [table],
        "rows": [row],
        **changes,
    }


def repository(folder: Path, found: dict[str, Any] | None) -> Path:
    (folder / "docs").mkdir()
    (folder / "benchmarks" / "results").mkdir(parents=True)
    page = "# Results\nby hand\n\n<!-- generated: first -->\nold\n<!-- end -->\n\nafter\n"
    (folder / "docs" / "results.md").write_text(page)
    if found is not None:
        file = folder / "benchmarks" / "results" / "first.json"
        file.write_text(json.dumps(found))
    return folder


def test_writes_between_the_marks_and_nothing_else(tmp_path: Path, capsys: Any) -> None:
    root = repository(tmp_path, result())
    assert main(["--root", str(root), "--check"]) == 1
    assert "differs from its result files" in capsys.readouterr().out
    assert main(["--root", str(root)]) == 0
    text = (root / "docs" / "results.md").read_text()
    assert text.startswith(
        "# Results\nby hand\n\n<!-- generated: first -->\nMeasured on one card, "
    )
    assert text.endswith("<!-- end -->\n\nafter\n")
    assert "| PPO \\| plain | 0.712 | 3 |" in text
    assert "tether train ppo --seed 3\n    # one card, 2026-01-02" in text
    assert "old" not in text
    assert main(["--root", str(root), "--check"]) == 0
    (root / "docs" / "results.md").write_text(text.replace("0.712", "0.812"))
    assert main(["--root", str(root), "--check"]) == 1


def test_a_place_without_a_file_says_so(tmp_path: Path) -> None:
    root = repository(tmp_path, None)
    assert main(["--root", str(root)]) == 0
    assert (
        "<!-- generated: first -->\nNot yet run.\n<!-- end -->"
        in (root / "docs" / "results.md").read_text()
    )


@pytest.mark.parametrize(
    "key", ["name", "page", "date", "card", "commit", "versions", "rows", "tables", "notes"]
)
def test_a_missing_field_is_refused(tmp_path: Path, key: str) -> None:
    found = result()
    del found[key]
    file = tmp_path / "first.json"
    file.write_text(json.dumps(found))
    with pytest.raises(Wrong, match=rf"first\.json: missing {key}"):
        read(file)


@pytest.mark.parametrize("key", ["command", "card", "date", "seeds", "kind", "reward"])
def test_a_row_without_a_field_is_refused(tmp_path: Path, key: str) -> None:
    found = result()
    del found["rows"][0][key]
    file = tmp_path / "first.json"
    file.write_text(json.dumps(found))
    with pytest.raises(Wrong, match=rf"row 1: .*{key}"):
        read(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "second"}, r"its name is 'second', not 'first'"),
        ({"date": "2 January"}, r"date must be YYYY-MM-DD, not '2 January'"),
        ({"card": " "}, r"card must be text"),
        ({"extra": 1}, r"unknown key 'extra'"),
        ({"versions": {}}, r"versions must map"),
        ({"rows": []}, r"at least one row"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    file = tmp_path / "first.json"
    file.write_text(json.dumps(result(**changes)))
    with pytest.raises(Wrong, match=message):
        read(file)


def test_not_a_number_is_refused(tmp_path: Path) -> None:
    found = result()
    found["rows"][0]["reward"] = float("nan")
    file = tmp_path / "first.json"
    file.write_text(json.dumps(found))
    with pytest.raises(Wrong, match=r"NaN is no JSON number"):
        read(file)


def test_a_page_without_the_place_is_refused(tmp_path: Path, capsys: Any) -> None:
    root = repository(tmp_path, result(page="docs/other.md"))
    assert main(["--root", str(root)]) == 1
    assert "docs/other.md has no place" in capsys.readouterr().err


def test_cells() -> None:
    assert [shown(x) for x in (None, 3, 0.12345, 12.345, 12345.6, True, "a|b")] == [
        "-", "3", "0.123", "12.35", "12,346", "yes", "a\\|b",
    ]  # fmt: skip
    three = {"mean": 0.5, "values": [0.4, 0.5, 0.6], "low": None, "high": None}
    assert shown(three) == "0.500 (0.400 0.500 0.600)"
    assert shown(three | {"low": 0.25, "high": 0.75}).startswith("0.500 [0.250, 0.750] (")
    assert shown([17, None]) == "17 -" and shown([]) == "-"


def test_rows_of_several_kinds_keep_the_order_of_the_table() -> None:
    found = result()
    found["tables"][0]["rows"] = ["start", "run"]
    found["rows"].append(found["rows"][0] | {"kind": "start", "method": "initial", "seeds": []})
    lines = [x for x in render(found).splitlines() if x.startswith("| ")]
    assert lines == ["| Method | Reward | Seeds |", "| initial | 0.712 |  |",
                     "| PPO \\| plain | 0.712 | 3 |"]  # fmt: skip


def test_the_pages_of_this_repository_are_what_their_files_give() -> None:
    assert main(["--check"]) == 0


def test_rendering_imports_no_torch() -> None:
    code = (
        "import sys, benchmarks.render as r; r.main(['--check']); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
