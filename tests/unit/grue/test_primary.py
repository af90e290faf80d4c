"""Declared comparisons: how they are named, how they count, and whether they can be decided."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.grue.folders import row, write
from tether.config.errors import UserError
from tether.reports.grue.comparing import comparisons
from tether.reports.grue.results import read
from tether.studies.grue import run as running
from tether.studies.grue.anchors import Examples
from tether.studies.grue.cells import jobs
from tether.studies.grue.declaration import declare
from tether.studies.grue.planning import Asked, plan_of
from tether.studies.grue.primary import pairs_of
from tether.studies.grue.run import Ready

LABELS = ["ppo", "nlpo", "mine.py:held", "mine.py:held+ppo", "ppo (reward meteor, KL to raw)"]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("nlpo:ppo", [("nlpo", "ppo")]),
        (" nlpo : ppo , ppo:nlpo ", [("nlpo", "ppo"), ("ppo", "nlpo")]),
        ("mine.py:held:ppo", [("mine.py:held", "ppo")]),
        ("ppo:mine.py:held,nlpo:ppo", [("ppo", "mine.py:held"), ("nlpo", "ppo")]),
        ("mine.py:held:mine.py:held+ppo", [("mine.py:held", "mine.py:held+ppo")]),
        (
            "ppo (reward meteor, KL to raw):ppo,ppo:mine.py:held",
            [("ppo (reward meteor, KL to raw)", "ppo"), ("ppo", "mine.py:held")],
        ),
        ("", []),
    ],
)
def test_names_may_hold_colons_and_commas(text: str, pairs: list[tuple[str, str]]) -> None:
    assert pairs_of(text, LABELS) == pairs
    assert pairs_of(pairs, LABELS) == pairs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ppo", "--primary: 'ppo' is no comparison; write METHOD:AGAINST with two of the rows ppo"),
        ("ppo:", "'ppo:' is no comparison"),
        ("ppo:nlpo,", "'' is no comparison"),
        ("other.py:f:ppo", "'other.py:f:ppo' is no comparison"),
        ("npo:ppo", "unknown method 'npo' in --primary; did you mean"),
        ("ppo:ppo", "compares 'ppo' with itself"),
    ],
)
def test_what_is_no_comparison(text: str, said: str) -> None:
    with pytest.raises(UserError, match="--primary") as e:
        pairs_of(text, LABELS)
    assert said in str(e.value) and "\n" not in str(e.value)


def test_a_text_of_two_meanings_is_refused() -> None:
    with pytest.raises(UserError, match=r"'a' against 'b:c'; 'a:b' against 'c'|'a:b' against 'c';"):
        pairs_of("a:b:c", ["a", "b:c", "a:b", "c"])


def made(folder: Path, seeds: int, **more: Any) -> Any:
    asked = Asked(["imdb"], ["ppo", "nlpo", "rloo"], mini=True, out=folder, seeds=seeds, **more)
    plan = plan_of(asked)
    return plan, jobs(plan), {"imdb": "stamp"}


def test_a_comparison_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    twice = "nlpo:ppo,nlpo:ppo,ppo:nlpo,rloo:ppo"
    held = declare(*made(tmp_path, 6), twice)
    assert held["primary"] == [["nlpo", "ppo"], ["rloo", "ppo"]]
    file = tmp_path / "grue.json"
    # a folder that was declared before they were counted once goes on
    old = json.loads(file.read_text())
    file.write_text(json.dumps({**old, "primary": [["nlpo", "ppo"]] * 2 + [["rloo", "ppo"]]}))
    record = tmp_path / "imdb" / "ppo-seed0" / "record.jsonl"
    record.parent.mkdir(parents=True)
    record.touch()
    for primary in ((), twice, "nlpo:ppo,rloo:ppo"):
        assert declare(*made(tmp_path, 6), primary)["primary"] == held["primary"]
    with pytest.raises(UserError, match="there are results already"):
        declare(*made(tmp_path, 6), "nlpo:ppo")
    rows = {k: row(k, tuned=k != "zero-shot") for k in ("zero-shot", "ppo", "nlpo")}
    pairs = [["nlpo", "ppo"], ["ppo", "nlpo"], ["nlpo", "ppo"]]
    folder = write(tmp_path / "r", rows, range(6), gained, primary=pairs)
    part = comparisons(read(folder))
    assert part is not None and [x[4:] for x in part.rows] == [["0.0312", "better"]]


def gained(task: str, label: str, seed: int) -> float:
    return 0.3 + 0.01 * seed + (0.05 + 0.002 * seed) * (label == "nlpo")


def test_seeds_that_cannot_decide_are_told_before_the_first_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    seen = []

    def stand_in(*_: Any, **__: Any) -> None:
        seen.append(out.getvalue())

    ready = {"imdb": Ready([], [], Examples([], [], {}, "e"), "stamp")}
    monkeypatch.setattr(running, "run_jobs", stand_in)
    monkeypatch.setattr(running, "prepare", lambda *_: ready)

    def said(seeds: int, primary: str) -> str:
        folder, methods = tmp_path / f"{seeds}{primary}", ["ppo", "nlpo", "rloo"]
        asked = Asked(["imdb"], methods, seeds=seeds, mini=True, out=folder, primary=primary)
        out.seek(0)
        out.truncate()
        running.main(asked, console=Console(file=out, width=1000))
        return str(seen[-1])

    two = "nlpo:ppo,rloo:ppo"
    assert said(6, two) == (
        "6 seeds are too few to find better or worse in 2 declared comparisons: p after Holm's "
        "correction is 0.0625 at least; 7 seeds would do (--seeds N)\n"
    )
    assert said(3, "nlpo:ppo").endswith("6 seeds would do (--seeds N)\n")
    assert said(7, two) == said(6, "nlpo:ppo") == said(1, "") == ""


def test_mistakes_are_found_before_the_anchors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "prepare", lambda *_: pytest.fail("anchors were computed"))
    for more in ({"primary": "nlpo:pppo"}, {"margin": 0.0}):
        with pytest.raises(UserError, match=r"--primary|--margin"):
            running.main(Asked(["imdb"], ["ppo", "nlpo"], mini=True, out=tmp_path, **more))


def test_a_verdict_that_is_out_of_reach_has_no_power(tmp_path: Path) -> None:
    rows = {k: row(k, tuned=k != "zero-shot") for k in ("zero-shot", "ppo", "nlpo", "rloo")}
    pairs = [["nlpo", "ppo"], ["rloo", "ppo"]]

    def uneven(task: str, label: str, seed: int) -> float:
        return gained(task, label, seed) + 0.03 * (seed % 3) * (label == "rloo")

    six = comparisons(read(write(tmp_path / "6", rows, range(6), uneven, primary=pairs)))
    assert six is not None
    assert [x[-1] for x in six.rows] == ["undecided (too few seeds for better or worse)"] * 2
    assert "6 seeds are too few" in six.note and "80 % power" not in six.note
    assert six.note.endswith("0.0625 at least; 7 seeds would do.")
    seven = comparisons(read(write(tmp_path / "7", rows, range(7), uneven, primary=pairs)))
    assert seven is not None and seven.rows[0][-1] == "better"
    # differences 0, .075, .15, 0, .075, .15, 0 have s.d. .0675; all 7 have to be above 0, which is
    # Phi(x)^7 = .8 at x = 1.861: .1256
    assert seven.rows[1][-1] == "undecided (80 % power from 0.126)"
    assert "80 % power: the true difference" in seven.note and "too few" not in seven.note
