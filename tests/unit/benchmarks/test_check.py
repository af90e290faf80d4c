"""What the check of the performance files refuses, and what the table of goals says."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from benchmarks import goals, measuring
from benchmarks.check import NAMES, main, problems
from benchmarks.memory import TABLES
from benchmarks.render import main as render

ROOT = Path(__file__).resolve().parents[3]
CARD = "NVIDIA H100 80GB HBM3"
PLACES = ("--model", "m", "--train", "a", "--test", "b", "--root", "r", "--out", "o")
NEEDED = {"imdb_graph": PLACES}
"""Words without which a program does not start."""


def row(name: str = "elastic-device", **changes: Any) -> dict[str, Any]:
    return {
        "kind": "memory", "row": name, "command": f"python -m benchmarks.memory --only {name}",
        "card": CARD, "date": "2026-01-02", "seeds": [], "tethers": "elastic_reset",
        "average": "device", "weights": "all", "recompute": "no", "allocated_gib": 6.0,
        "reserved_gib": 7.5, "extra_gib": 0.5, "before_gib": 0.0, "whole_s": 1.0,
        "spread_s": [0.9, 1.0, 1.1, 1.2], **changes,
    }  # fmt: skip


def result(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "name": "memory", "page": measuring.PAGE, "date": "2026-01-02", "card": CARD,
        "commit": "0123abc", "versions": {"python": "3.12", "torch": "2.11", "transformers": "5"},
        "notes": [], "tables": TABLES, "rows": list(rows) or [row()], **changes,
    }  # fmt: skip


def repository(folder: Path, found: dict[str, Any] | None, page: str = "") -> Path:
    (folder / "docs").mkdir()
    (folder / "benchmarks" / "results").mkdir(parents=True)
    places = "".join(f"<!-- generated: {n} -->\n<!-- end -->\n" for n in (goals.NAME, "memory"))
    (folder / measuring.PAGE).write_text(f"# Performance\n{page}\n{places}")
    if found is not None:
        file = folder / "benchmarks" / "results" / "memory.json"
        file.write_text(json.dumps(found))
    render(["--root", str(folder)])
    return folder


def test_a_sound_file_and_its_page_pass(tmp_path: Path, capsys: Any) -> None:
    root = repository(tmp_path, result(), "32-token prompts, 64 completions, GPT-2 124M, bf16")
    assert list(problems(root)) == []
    assert main(["--root", str(root)]) == 0
    assert f"1 of {len(NAMES)} files" in capsys.readouterr().out
    missing = list(problems(root, complete=True))
    assert "rollout.json: not yet run" in missing
    assert "memory.json: row elastic-cpu is not yet run" in missing
    assert not any("elastic-device is not" in m for m in missing)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (result(card=measuring.TINY), "says nothing about speed"),
        (result(row(card="a CPU")), "row elastic-device: measured on 'a CPU'"),
        (result(commit="0123abc+"), "no hash of a clean tree"),
        (result(commit="unknown"), "no hash of a clean tree"),
        (result(versions={"python": "3", "torch": "2"}), "versions lack transformers"),
        (result(date="2999-01-01"), "is to come"),
        (result(page="docs/results.md"), "its page is docs/results.md"),
        (result(row(), row()), "a name of its own"),
        (result(row(spread_s=[2.0, 1.0])), "spread_s must be smallest"),
        (result(row(spread_s=1.0)), "spread_s must be smallest"),
        (result(row(command="tether train ppo")), "not one of python -m benchmarks.memory"),
        (result(row(command="python -m benchmarks.memory --tiny")), "of tiny shapes"),
        (result(row(command="python -m benchmarks.memory --only x")), "cannot be read: .*'x'"),
        (result(row(command="python -m benchmarks.memory --bogus")), "no option and no setting"),
        (result(row(extra_gib="")) | {"seeds": 1}, "unknown key 'seeds'"),
    ],
)
def test_what_is_refused(tmp_path: Path, found: dict[str, Any], message: str) -> None:
    root = repository(tmp_path, found)
    assert any(re.search(message, p) for p in problems(root)), list(problems(root))


def test_a_row_without_a_spread_is_refused(tmp_path: Path) -> None:
    table = TABLES[0] | {"columns": {"allocated_gib": "GiB"}}
    bare = {k: v for k, v in row().items() if k != "spread_s"}
    root = repository(tmp_path, result(bare, tables=[table]))
    assert list(problems(root)) == ["memory.json, row elastic-device: no spread"]


@pytest.mark.parametrize(
    "text", ["a step takes 1.5 ms", "6 times faster", "12 GiB", "790 TFLOP/s", "under 1 %", "3× it"]
)
def test_a_figure_written_by_hand_is_found(tmp_path: Path, text: str) -> None:
    root = repository(tmp_path, None, text)
    (found,) = problems(root)
    assert "stands outside the generated places" in found


def test_a_page_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    root = repository(tmp_path, result())
    page = root / measuring.PAGE
    page.write_text(page.read_text().replace("6.000", "5.000"))
    assert list(problems(root)) == [
        "docs/performance.md differs from its result files: run python -m benchmarks.render"
    ]


def cells(text: str, goal: str) -> list[str]:
    line = next(x for x in text.splitlines() if goal in x)
    return [c.strip() for c in line.strip("|").split("|")]


def test_goals_are_read_from_the_files() -> None:
    memory = result(row(), row("elastic-cpu", extra_gib=0.25))
    text = goals.render([memory], "Not yet run.\n")
    peak = cells(text, "peak memory")
    assert peak[3:5] == ["6.000 GiB", "yes"]
    assert peak[5:] == [
        "NVIDIA H100 80GB HBM3, 2026-01-02",
        "`python -m benchmarks.memory --only elastic-device`",
    ]
    assert cells(text, "extra GPU memory")[3:5] == ["0.250 GiB", "no: 2.50 times it"]
    assert cells(text, "whole PPO step")[3] == "Not yet run."


def test_goals_of_a_ratio_and_of_the_fastest_way() -> None:
    def of(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            "rows": [{"card": "c", "date": "d", "command": "x", **r} for r in rows],
        }

    text = goals.render(
        [
            of("vs_trl", {"row": "grpo-hf", "ratio": 3.0}, {"row": "ppo", "ratio": 15.0}),
            of(
                "update",
                {"row": "gpt2-whole-64", "model": "gpt2", "ms": 90.0},
                {"row": "gpt2-compiled-64", "model": "gpt2", "ms": 40.0},
            ),
            of(
                "rollout",
                {"row": "gpt2-1024x64-graph", "step_ms": 2.0},
                {"row": "gpt2-1024x512-graph", "step_ms": 3.0},
                {"row": "smollm2-1024x512-graph", "step_ms": 3.0},
            ),
        ],
        "Not yet run.",
    )
    assert cells(text, "whole GRPO step")[3:5] == ["3.000 times", "no: 0.50 of it"]
    assert cells(text, "whole PPO step")[3:5] == ["15.00 times", "yes"]
    assert cells(text, "tokens), GPT-2")[3:5] == ["40.00 ms", "yes"]
    assert cells(text, "GPT-2, batch 1024")[3:5] == ["1.500", "-"]
    assert cells(text, "SmolLM2, batch 1024")[3] == "Not yet run."


@pytest.mark.parametrize(
    ("nothing", "share", "interval", "told"),
    [
        ([-0.4, 0.5], 0.6, [0.2, 0.9], "yes"),
        ([-0.4, 0.5], 0.6, [0.2, 1.2],
         "undecided: between 0.20 and 1.20 %, and a step against itself up to 0.50"),
        ([-4.0, 0.5], 0.4, [0.2, 0.9],
         "undecided: between 0.20 and 0.90 %, and a step against itself up to 4.00"),
        ([-4.0, 0.5], 4.5, [3.9, 5.0],
         "undecided: between 3.90 and 5.00 %, and a step against itself up to 4.00"),
        ([-4.0, 0.5], 4.5, [4.1, 5.0], "no: 4.50 times it"),
    ],
)  # fmt: skip
def test_a_share_counts_as_far_as_its_interval_and_an_equal_step_allow(
    nothing: list[float], share: float, interval: list[float], told: str
) -> None:
    rows: list[dict[str, Any]] = [
        {"row": "ema-step-device", "share_percent": share, "interval_percent": interval},
        {"row": "nothing", "interval_percent": nothing},
    ]
    found = {
        "name": "overhead",
        "rows": [{"card": "c", "date": "d", "command": "x"} | r for r in rows],
    }
    text = goals.render([found], "Not yet run.")
    assert cells(text, "share of a step")[4] == told


@pytest.mark.parametrize(
    ("n", "places"), [(1, (0, 0)), (5, (0, 4)), (6, (0, 5)), (15, (3, 11)), (20, (5, 14))]
)
def test_interval_of_a_median(n: int, places: tuple[int, int]) -> None:
    """Against scipy's sign test: the narrowest pair that it leaves."""
    values = [float(x) for x in range(n)]
    assert measuring.median_interval(values[::-1]) == [values[p] for p in places]
    if n >= 6:  # one further in would be refused at 5 %
        low = places[0]
        assert scipy.stats.binomtest(low, n).pvalue <= 0.05
        assert scipy.stats.binomtest(low + 1, n).pvalue > 0.05


def test_a_step_against_itself_of_another_commit_decides_nothing() -> None:
    told = {"card": "c", "date": "d", "command": "x", "interval_percent": [0.1, 0.2]}
    rows = [
        told | {"row": "ema-step-device", "share_percent": 0.15},
        told | {"row": "nothing", "commit": "abcdef0", "versions": {}},
    ]
    text = goals.render([{"name": "overhead", "rows": rows}], "Not yet run.")
    assert "is of another commit" in cells(text, "share of a step")[4]


def test_every_goal_names_a_row_that_its_program_writes() -> None:
    for g in goals.GOALS:
        names = importlib.import_module(f"benchmarks.{g.file}").every_row()
        rows = {n: {"row": n, "model": n.split("-")[0], "ms": 1.0} for n in names}
        assert g.pick(rows) is not None, g.what


def test_commands_that_the_programs_write_can_be_read() -> None:
    for name in NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        assert len(set(module.every_row())) == len(module.every_row())
        measuring.given(module.parser(), NEEDED.get(name, []))


def test_this_repository_passes() -> None:
    code = (
        "import sys, benchmarks.check as c; bad = c.main([]); "
        "sys.exit(bad or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
