"""Two calls of one study: a run that the other call has begun is waited for, and is no failure."""

from __future__ import annotations

import io
import os
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from tests.runs_for_tests import make_world, settings
from tether.studies.crowding import Slots
from tether.studies.watch import Watch
from tether.studies.workers import Job, Pool, Worker
from tether.train.lock import held, writing


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
