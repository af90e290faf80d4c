"""Two tasks from end to end: killed, started again, measured, reported."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.forked import launch
from tether.analysis.grue import on_scale
from tether.config.errors import UserError
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.records import read_lines
from tether.reports.grue.results import read
from tether.studies.grue import run as running
from tether.studies.grue.declaration import declare
from tether.studies.grue.mini import PRAISE
from tether.studies.grue.planning import Asked, plan_of, with_test_rows
from tether.studies.grue.run import jobs, prepare
from tether.studies.warm import Fork
from tether.train.lock import held

WORDS = [
    *("--mini", "--tasks", "commongen,imdb", "--updates", "2", "--evaluation.every", "1"),
    *("--evaluation.prompts", "6", "--evaluation.test_prompts", "6"),
    *("--evaluation.human_rows", "6", "--evaluation.samples", "2"),
    *("--batch.prompts", "8", "--sampling.max_new_tokens", "8", "--checkpoint.every", "1"),
    *("--after", "all", "--after.samples", "16", "--after.prompts", "2", "--after.shares", "[0,1]"),
]
CELLS = [
    f"{task}/{run}"
    for task in ("commongen", "imdb")
    for run in ("zero-shot", "supervised-seed0", "supervised-ppo-seed0", "supervised-nlpo-seed0")
]

FREE = [f"{task}/supervised-baselines-seed0" for task in ("commongen", "imdb")]


READING = {**PRAISE, "reads": "prompt_and_completion", "squash": "tanh", "scale": 0.1}
SETTINGS = {
    "methods": {"supervised+nlpo": {"tethers": {"nlpo_mask": {"refresh": {"n": 1}}}}},
    "tasks": {
        "imdb": {
            "all": {
                "data": {"max_prompt_tokens": 16, "too_long": "truncate_left"},
                "rewards": {"praise": READING},
            },
            "parts": {"praise": {"kind": "preference", "model": READING, "maximum": 1.0}},
        }
    },
}
"""IMDB's metric is its reward, and reads prompts that are cut."""


def start(folder: Path) -> Fork:
    settings = folder.with_name("settings.yaml")
    write_yaml(settings, SETTINGS)
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
    assert done and done < {*CELLS, *FREE} and done.isdisjoint(kept)
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
            if task.name == "imdb":
                assert final.measured.values["praise"] == pytest.approx(final.reward)
    assert "Leaderboard" in out and (folder / "leaderboard.html").is_file()
    _starts_are_shared(folder)
    _same_examples(folder)
    _prompts_were_cut(folder)
    _baselines_are_there(folder)


def _baselines_are_there(folder: Path) -> None:
    kinds = {
        name: {x["baseline"] for x in read_lines(folder / name / "record.jsonl")
               if x["kind"] == "baseline"}
        for name in (*FREE, *CELLS)
    }  # fmt: skip
    tuned = [c for c in CELLS if "ppo" in c or "nlpo" in c]
    assert {n for n, k in kinds.items() if k == {"best_of_n", "oracle"}} == set(FREE)
    assert {n for n, k in kinds.items() if k == {"interpolation"}} == set(tuned)
    text = (folder / "leaderboard.md").read_text()
    for task in ("commongen", "imdb"):
        assert f"### {task}: without training, from supervised" in text
    rows = [x for x in text.splitlines() if x.startswith("| best-of-n | n = 1 |")]
    assert len(rows) == 2 and all("≤ 0.00" in x for x in rows)
    assert text.count("| interpolation, supervised+nlpo | linear 0 | 0.00 |") == 2


def _until_alone(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while any(held(folder / c) for c in [*CELLS, *FREE]):
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


def _prompts_were_cut(folder: Path) -> None:
    for cell in (c for c in CELLS if c.startswith("imdb")):
        start = next(iter(read_lines(folder / cell / "record.jsonl")))
        assert start["notes"]["test"]["cut_too_long"] > 0


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
    # a second call, when the model as it is has been run
    folder = tmp_path / "o" / "commongen" / "zero-shot"
    folder.mkdir(parents=True)
    write_yaml(folder / "config.yaml", dump(jobs(plan)[0][1].settings))
    again = with_test_rows(plan_of(asked))
    assert jobs(again)[0][1].settings == jobs(plan)[0][1].settings


def test_what_is_declared_can_be_tested(tmp_path: Path) -> None:
    def cells(seeds: int) -> Any:
        plan = plan_of(Asked(["imdb"], ["ppo", "nlpo"], mini=True, out=tmp_path / "o", seeds=seeds))
        return plan, jobs(plan), {"imdb": "stamp"}

    pair = [("nlpo", "ppo")]
    with pytest.raises(UserError, match=r"at most 20 seeds, .* not 21"):
        declare(*cells(21), pair)
    declare(*cells(21))  # nothing is declared
    with pytest.raises(UserError, match="--margin must be a number above 0, not 0"):
        declare(*cells(1), [], 0.0)


def test_the_margin_stays_as_declared(tmp_path: Path) -> None:
    plan = plan_of(Asked(["imdb"], ["ppo", "nlpo"], mini=True, out=tmp_path / "o"))
    made = jobs(plan)
    declare(plan, made, {"imdb": "stamp"}, [("nlpo", "ppo")], 0.05)
    record = tmp_path / "o" / "imdb" / "ppo-seed0" / "record.jsonl"
    record.parent.mkdir(parents=True)
    record.touch()
    declare(plan, made, {"imdb": "stamp"})
    assert json.loads((tmp_path / "o" / "grue.json").read_text())["margin"] == 0.05
    with pytest.raises(UserError, match="another margin"):
        declare(plan, made, {"imdb": "stamp"}, [], 0.01)


class Queue:
    """`main` with cells that "run" at once, and metrics that this test decides on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = Asked(["imdb"], ["ppo", "nlpo"], mini=True, out=folder)
        self.scored: list[str] = []
        self.console = Console(file=io.StringIO(), width=200)
        monkeypatch.setattr(running, "_check", lambda made: None)
        monkeypatch.setattr(running, "finished", lambda folder: True)
        monkeypatch.setattr(running.scoring, "score", self.score)
        monkeypatch.setattr(running, "run_jobs", self.run_jobs)

    def score(self, folder: Path, cell: Any, *_: Any) -> bool:
        self.scored.append(cell.method.name)
        if cell.method.name == "ppo":
            raise RuntimeError("CUDA out of\nmemory")
        return True

    def run_jobs(self, jobs: Any, folder: Path, *, ended: Any, **_: Any) -> None:
        for job in jobs:
            ended(job)

    def main(self, **more: Any) -> tuple[Path, bool]:
        return running.main(self.asked, console=self.console, **more)


def test_metrics_that_fail_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(tmp_path / "o", monkeypatch)
    folder, whole = queue.main()
    assert not whole and {"zero-shot", "ppo", "nlpo"} == set(queue.scored)
    assert queue.scored.count("ppo") == 1  # not again in the same call
    failed = json.loads((folder / "unmeasured.json").read_text())
    assert failed == {"imdb/ppo-seed0": "RuntimeError: CUDA out of memory"}
    assert "imdb/ppo-seed0: its metrics FAILED" in queue.console.file.getvalue()  # type: ignore[attr-defined]
    monkeypatch.setattr(running.scoring, "score", lambda *_: True)
    assert queue.main()[1] and json.loads((folder / "unmeasured.json").read_text()) == {}


def test_metrics_can_be_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(tmp_path / "o", monkeypatch)
    folder, whole = queue.main(measuring=False)
    assert whole and queue.scored == [] and not (folder / "unmeasured.json").exists()
    running.measure_finished(queue.asked, console=queue.console)
    assert set(queue.scored) == {"zero-shot", "ppo", "nlpo"}


def test_what_has_finished_elsewhere_is_declared_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(tmp_path / "o", monkeypatch)
    folder, whole = running.measure_finished(queue.asked, console=queue.console)
    assert not whole and set(queue.scored) == {"zero-shot", "ppo", "nlpo"}
    declared = json.loads((folder / "grue.json").read_text())
    assert [c["label"] for c in declared["cells"]] == ["zero-shot", "ppo", "nlpo"]
    failed = json.loads((folder / "unmeasured.json").read_text())
    assert set(failed) == {"imdb/ppo-seed0"}
    monkeypatch.setattr(running.scoring, "score", lambda *_: True)
    assert running.measure_finished(queue.asked, console=queue.console)[1]
    monkeypatch.setattr(running, "finished", lambda folder: False)
    with pytest.raises(UserError, match="has no finished cell of this benchmark to measure"):
        running.measure_finished(queue.asked, console=queue.console)


def test_a_task_without_a_wanted_cell_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are baselines of weights that no wanted method starts from."""
    queue = Queue(tmp_path / "o", monkeypatch)
    started: list[str] = []
    monkeypatch.setattr(
        running, "run_jobs", lambda jobs, folder, **_: started.extend(j.name for j in jobs)
    )
    monkeypatch.setattr(running.scoring, "score", lambda *_: True)
    methods = ["supervised", "supervised+ppo", "ppo"]
    queue.asked = Asked(["commongen", "imdb"], methods, mini=True, out=tmp_path / "o", seeds=2,
                        after=["best_of_n"])  # fmt: skip

    def only(cell: Any) -> bool:
        pilot = cell.seed == 0 if cell.method.name == "supervised+ppo" else True
        return cell.task == "imdb" and cell.method.name != "ppo" and pilot

    folder, whole = queue.main(only=only)
    declared = json.loads((folder / "grue.json").read_text())
    assert whole and declared["tasks"] == ["imdb"] and list(declared["anchors"]) == ["imdb"]
    cells = ["zero-shot", "supervised-seed0", "supervised-ppo-seed0", "supervised-seed1"]
    assert [c["name"] for c in declared["cells"]] == [f"imdb/{c}" for c in cells]
    assert [c["name"] for c in declared["free"]] == ["imdb/supervised-baselines-seed0"]
    assert set(started) == {c["name"] for c in declared["cells"] + declared["free"]}


def test_ctrl_c_leaves_what_is_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(tmp_path / "o", monkeypatch)
    begun, stopped = threading.Event(), threading.Event()

    def slow(folder: Path, cell: Any, *_: Any) -> bool:
        queue.scored.append(cell.method.name)
        begun.set()
        stopped.wait(10)
        return True

    def interrupted(jobs: Any, folder: Path, *, ended: Any, **_: Any) -> None:
        queue.run_jobs(jobs, folder, ended=ended)
        begun.wait(10)
        threading.Timer(0.3, stopped.set).start()
        raise SystemExit(130)

    monkeypatch.setattr(running.scoring, "score", slow)
    monkeypatch.setattr(running, "run_jobs", interrupted)
    with pytest.raises(SystemExit):
        queue.main()
    assert queue.scored == ["zero-shot"]
