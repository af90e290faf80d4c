"""Two tasks from end to end: killed, started again, measured, reported."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.forked import launch
from tether.analysis.grue import on_scale
from tether.config.errors import UserError
from tether.records import read_lines
from tether.reports.grue.results import read
from tether.studies.grue.declaration import declare
from tether.studies.grue.run import Asked, jobs, plan_of, prepare, with_test_rows
from tether.studies.warm import Fork
from tether.train.lock import held

WORDS = [
    *("--mini", "--tasks", "commongen,imdb", "--updates", "2", "--evaluation.every", "1"),
    *("--evaluation.prompts", "6", "--evaluation.test_prompts", "6"),
    *("--evaluation.human_rows", "6", "--evaluation.samples", "2"),
    *("--batch.prompts", "8", "--sampling.max_new_tokens", "8", "--checkpoint.every", "1"),
]
CELLS = [
    f"{task}/{run}"
    for task in ("commongen", "imdb")
    for run in ("zero-shot", "supervised-seed0", "supervised-ppo-seed0", "supervised-nlpo-seed0")
]


SETTINGS = """
methods:
  supervised+nlpo: {tethers: {nlpo_mask: {refresh: {n: 1}}}}
"""


def start(folder: Path) -> Fork:
    settings = folder.with_name("settings.yaml")
    settings.write_text(SETTINGS)
    words = ["-m", "tether", "grue", "run", *WORDS]
    words += ["--out", str(folder), "--settings", str(settings)]
    return launch(words, folder.with_name("log"), folder=folder.parent, env={})


def ended(folder: Path, name: str) -> bool:
    record = folder / name / "record.jsonl"
    return record.is_file() and any(x["kind"] == "end" for x in read_lines(record))


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    first = start(folder)
    deadline = time.monotonic() + 200
    while not ended(folder, "commongen/supervised-seed0"):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    # the kernel asks the workers to stop, and each finishes its update
    _until_alone(folder)
    kept = [c for c in CELLS if ended(folder, c)]
    assert "commongen/supervised-seed0" in kept and len(kept) < len(CELLS)
    before = {c: (folder / c / "record.jsonl").stat() for c in kept}
    stamps = {p: p.read_bytes() for p in sorted((folder / "anchors").iterdir())}
    assert len(stamps) == 2  # written before the first run

    log = folder.with_name("log")
    log.unlink()
    code = start(folder).wait()
    out = log.read_text()
    assert code == 0, out
    lines = [x for x in out.splitlines() if ": finished; " in x]
    done = {x.split(":")[0] for x in lines}
    assert done and done < set(CELLS) and done.isdisjoint(kept)
    assert all("runs, " in x and x.endswith("left") for x in lines)
    for cell, was in before.items():
        now = (folder / cell / "record.jsonl").stat()
        assert (now.st_ino, now.st_mtime_ns) == (was.st_ino, was.st_mtime_ns), cell
    assert {p: p.read_bytes() for p in stamps} == stamps

    r = read(folder)
    assert r.missing == () and not r.failures and r.cells == len(CELLS)
    for task in r.tasks:
        for label, by_seed in task.cells.items():
            final = by_seed[0].at("final")
            assert final is not None, label
            scaled = on_scale(task.anchors, final.measured.values, task.perplexity)
            assert 0 < scaled["perplexity"] <= 1
            assert all(len(v) == 6 for v in final.measured.left_out.values())
    assert "Leaderboard" in out and (folder / "leaderboard.html").is_file()
    _starts_are_shared(folder)
    _same_examples(folder)


def _until_alone(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while any(held(folder / c) for c in CELLS):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _starts_are_shared(folder: Path) -> None:
    for task in ("commongen", "imdb"):
        for run in ("supervised-ppo-seed0", "supervised-nlpo-seed0"):
            environment = json.loads((folder / task / run / "environment.json").read_text())
            config = (folder / task / run / "config.yaml").read_text()
            assert str(folder / task / "supervised-seed0" / "policy") in config
            assert environment["initial_weights"]


def _same_examples(folder: Path) -> None:
    for task in ("commongen", "imdb"):
        seen = set()
        for cell in (c for c in CELLS if c.startswith(task)):
            rows = read_lines(folder / cell / "samples.jsonl")
            test = {(x["row"], x["prompt"]) for x in rows if x["split"] == "test"}
            assert len(test) == 6
            seen.add(frozenset(test))
        assert len(seen) == 1


def test_what_was_declared_stays_and_the_rest_may_grow(tmp_path: Path) -> None:
    def cells(*methods: str, tasks: tuple[str, ...] = ("commongen",), **more: Any) -> Any:
        plan = plan_of(Asked(tasks, methods, mini=True, out=tmp_path / "o", **more))
        return plan, jobs(plan), dict.fromkeys(tasks, "stamp")

    file = tmp_path / "o" / "grue.json"
    declare(*cells("ppo", "nlpo"), [("nlpo", "ppo")])
    declare(*cells("ppo", "nlpo"), [("ppo", "nlpo")])  # nothing has run yet
    record = tmp_path / "o" / "commongen" / "ppo-seed0" / "record.jsonl"
    record.parent.mkdir(parents=True)
    record.touch()
    with pytest.raises(UserError, match="there are results already"):
        declare(*cells("ppo", "nlpo"), [("nlpo", "ppo")])
    with pytest.raises(UserError, match="with budgets"):
        declare(*cells("ppo", budgets=[3.0]))
    declare(*cells("rloo", tasks=("imdb",), seeds=2))
    grown = json.loads(file.read_text())
    assert grown["tasks"] == ["commongen", "imdb"] and grown["seeds"] == [0, 1]
    assert list(grown["rows"]) == ["zero-shot", "ppo", "nlpo", "rloo"]
    assert grown["primary"] == [["ppo", "nlpo"]] and len(grown["cells"]) == 3 + 3
    with pytest.raises(UserError, match="unknown method 'npo' in --primary"):
        declare(*cells("ppo", tasks=("totto",))[:2], {}, [("npo", "ppo")])


def test_rows_are_held_out_where_a_set_has_no_test_split(tmp_path: Path) -> None:
    file = tmp_path / "commongen.jsonl"
    rows = [{"concepts": [f"c{i}", "dog"], "references": [f"a dog and c{i}"]} for i in range(20)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    asked = Asked(["commongen"], ["ppo"], mini=True, data=tmp_path, out=tmp_path / "o")
    plan = with_test_rows(plan_of(asked))
    data = jobs(plan)[0][1].settings.data
    assert (data.path, data.test_rows, data.validation_rows) == (str(file), 5, 5)
    ready = prepare(plan, jobs(plan), Console(quiet=True))
    assert len(ready["commongen"].examples) == 5
