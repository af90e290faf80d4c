"""The picture of the real runs shows what their tables say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vl_convert

from benchmarks.collect_grue import NAMES, SHOWN_BUDGETS
from benchmarks.collect_imdb import ROOT, opened
from benchmarks.plot_grue import METHODS, SPAN, START, chart, domain, main, values
from tests.unit.grue import folders
from tether.reports.grue.results import read

ARCHIVE = ROOT / "benchmarks" / "records" / "grue.tgz"


def test_every_value_of_the_shipped_picture_is_in_the_tables() -> None:
    """From the archive here, from the committed result file there."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "grue.json").read_text())["rows"]
    tables = {(r["kind"], r["method"]): r for r in rows if r["kind"].startswith("scores-")}
    with opened(ARCHIVE) as folder:
        results = read(folder)
        drawn, spec = values(results), chart(results)
    assert [p["title"]["text"] for p in spec["concat"]] == [NAMES[t.name] for t in results.tasks]
    for task in results.tasks:
        mine = [v for v in drawn if v["t"] == NAMES[task.name]]
        (start,) = [v["start"] for v in mine if "start" in v]
        told = tables[f"scores-{task.name}", START]
        assert start == pytest.approx(told["reward_final"]["mean"], rel=1e-4)
        for label, name in METHODS.items():
            told = tables[f"scores-{task.name}", label]
            for budget in SHOWN_BUDGETS:
                seeds = [v["y"] for v in mine if v.get("m") == name and v["x"] == budget]
                assert seeds == pytest.approx(told[f"reward_{budget:g}"]["values"], rel=1e-4)


def test_an_axis_is_not_filled_by_chance() -> None:
    low, high = domain([0.161, 0.163])
    assert high - low == pytest.approx(SPAN) and (low + high) / 2 == pytest.approx(0.162)
    low, high = domain([0.2, 0.9])
    assert low < 0.2 and high > 0.9


def test_methods_that_have_not_run_are_not_drawn(tmp_path: Path) -> None:
    rows = {m: folders.row(m, tuned=m != START) for m in (START, "supervised+ppo", "other")}
    runs = folders.write(tmp_path / "runs", rows, [0, 1], lambda task, row, seed: 0.2 + 0.1 * seed)
    drawn = values(read(runs))
    assert {v.get("m") for v in drawn} == {None, "PPO"}
    assert vl_convert.vegalite_to_png(chart(read(runs))).startswith(b"\x89PNG")
    assert main([str(runs), "--out", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_the_page_shows_it() -> None:
    assert "](images/grue.png)" in (ROOT / "docs" / "grue.md").read_text()
