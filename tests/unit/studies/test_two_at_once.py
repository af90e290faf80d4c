"""Two calls of one study: a run that the other call has begun is waited for, and is no failure."""

from __future__ import annotations

import fcntl
import io
import os
import time
from collections import deque
from pathlib import Path
from threading import Event, Thread, Timer
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.runs_for_tests import make_world, settings
from tests.unit.reports.folders import point, write_run
from tether.config.errors import UserError
from tether.config.folder import run_folder
from tether.studies.crowding import Slots
from tether.studies.watch import Watch
from tether.studies.workers import Job, Pool, Worker, run_jobs
from tether.train.build import build_agent
from tether.train.lock import held, writing
from tether.train.run import train


def pool_of(tmp_path: Path, number: int) -> tuple[Pool, Job]:
    """A worker that has just ended with an error."""
    start = settings(make_world(tmp_path / "world"), name="a", updates=1)
    job = Job("a", "m", 0, start, tmp_path / "a", tmp_path / "a.yaml", tmp_path / "a.log")
    job.folder.mkdir()
    job.log.write_text("tether: another process is writing it\n")
    ended: Any = SimpleNamespace(poll=lambda: 2, returncode=2, pid=number)
    pool = Pool(tmp_path, Console(file=io.StringIO()), {}, Slots(deque()))
    pool.slots.began(job.name)
    pool.regain.began(job.name)
    pool.running.append(Worker(job, {}, ended, Watch(job.folder / "record.jsonl")))
    return pool, job


def test_what_another_call_writes_is_waited_for(tmp_path: Path) -> None:
    pool, job = pool_of(tmp_path, number=1)
    with writing(job.folder):
        pool.collect()
        assert list(pool.pending) == [job] and pool.failures == {}
        assert pool.ready(set()) is None
    assert pool.ready(set()) is job
    assert not (tmp_path / "failures.json").exists()


def test_what_failed_by_itself_has_failed(tmp_path: Path) -> None:
    pool, job = pool_of(tmp_path, number=os.getpid())
    with writing(job.folder):  # what its worker has left behind counts for nobody
        assert held(job.folder) and not held(job.folder, but=os.getpid())
        pool.collect()
    assert list(pool.failures) == ["a"] and not pool.pending


def test_what_has_ended_meanwhile_is_not_run_again(tmp_path: Path) -> None:
    """Nothing to resume from, as of a run of no updates: the folder stays as it is."""
    start = settings(make_world(tmp_path / "world"), name="a", updates=1)
    job = Job("a", "m", 0, start, tmp_path / "a", tmp_path / "a.yaml", tmp_path / "a.log")
    write_run(job.folder, "m", 0, [point(1, 1.0, 0.5)])
    record = job.folder / "record.jsonl"
    whole = record.read_text()
    record.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    locked = Event()

    def other() -> None:
        with writing(job.folder):
            locked.set()
            time.sleep(0.5)
            record.write_text(whole)

    thread = Thread(target=other)
    thread.start()
    locked.wait()
    seen: list[str] = []
    said = Console(file=io.StringIO(), width=200)
    run_jobs(
        [job], tmp_path, workers=1, per_device=1, retry=False, console=said,
        ended=lambda j: seen.append(j.name),
    )  # fmt: skip
    thread.join()
    assert seen == ["a"] and record.read_text() == whole and not job.log.exists()
    assert "a: finished in another study" in said.file.getvalue()  # type: ignore[attr-defined]


def test_looking_at_a_lock_is_in_nobodys_way(tmp_path: Path) -> None:
    """`held` has it for a moment, in which a run may want it."""
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        thread = Timer(0.05, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        thread.start()
        with writing(tmp_path):
            assert held(tmp_path)
        thread.join()


def test_a_run_that_came_while_the_model_was_loaded_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = settings(make_world(tmp_path / "world"), name="a", updates=1)
    folder = run_folder(mine)

    def slowly(*args: Any) -> Any:
        made = build_agent(*args)
        train(mine, say=lambda _: None)
        return made

    with monkeypatch.context() as m:
        m.setattr("tether.train.run.build_agent", lambda *a: m.undo() or slowly(*a))  # type: ignore[func-returns-value]
        with pytest.raises(UserError, match="already holds this run"):
            train(mine, say=lambda _: None)
    assert (folder / "record.jsonl").read_text().count('"kind": "end"') == 1
