"""A failed run of a study is mended by the study's command, whatever its own message advises."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest
from rich.console import Console

from tether.config.errors import UserError
from tether.config.whole_file import write_whole
from tether.studies.advice import of_study
from tether.studies.watch import Left
from tether.studies.workers import Pool
from tether.train.disk import guarded
from tether.train.files import RunFiles
from tether.train.lock import writing


def full(folder: Path) -> None:
    with guarded("record.jsonl", folder):
        raise OSError(errno.ENOSPC, "No space left on device")


def shorter(folder: Path) -> None:
    RunFiles(folder).cut({"record.jsonl": 10})


def taken(folder: Path) -> None:
    with writing(folder), writing(folder):
        pass


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (full, "free some space, then the same command with --retry"),
        (shorter, "restore it, or delete {} and give the same command with --retry"),
        (taken, "stop it and the same command with --retry"),
    ],
)
def test_the_advice_of_a_run(fail, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as e:
        fail(tmp_path)
    found = of_study(f"tether: {e.value}", tmp_path)
    assert found.endswith(said.format(tmp_path))
    assert "tether resume" not in found and "--name" not in found


def test_a_worker_that_failed(tmp_path: Path) -> None:
    from types import SimpleNamespace

    log = tmp_path / "a.log"
    write_whole(log, "update 1\ntether: disk full: free some space, then `tether resume x/a`\n")
    job = SimpleNamespace(name="a", method="m", seed=0, folder=Path("x/a"), log=log)
    watch = SimpleNamespace(look=lambda: None, ended=False, updates=1)
    process = SimpleNamespace(poll=lambda: 2, returncode=2, pid=0)
    out = io.StringIO()
    pool = Pool(tmp_path, Console(file=out, width=300), {}, left=Left(1))
    pool.running.append(SimpleNamespace(job=job, slot={}, watch=watch, process=process))  # type: ignore[arg-type]
    pool.collect()
    assert pool.failures["a"]["error"].endswith("then the same command with --retry")
    assert "then the same command with --retry" in out.getvalue()
