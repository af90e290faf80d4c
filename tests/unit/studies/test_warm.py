"""Forked workers: the same bits as a process of their own, and no word lost about how they end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tether.studies.warm import Warm, architectures

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, Linux only")


@pytest.fixture
def program(tmp_path: Path) -> Warm:
    file = tmp_path / "program.py"
    file.write_text(
        "import os, sys, time\n"
        "print(os.getpid(), os.getsid(0), sys.argv[1:], sys.stdin.read(), flush=True)\n"
        "if sys.argv[1] == 'sleep': time.sleep(60)\n"
        "if sys.argv[1] == 'raise': raise ValueError('no such number')\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    command = [sys.executable, "-m", "tether.studies.warm", str(file)]
    return Warm.begin(command, {**os.environ, "PYTHONPATH": str(ROOT / "src")})


def test_a_fork_reports_its_status_and_writes_its_log(program: Warm, tmp_path: Path) -> None:
    logs = [tmp_path / f"{i}.log" for i in range(4)]
    forks = [program.start(["0"], logs[0]), program.start(["3"], logs[1])]
    assert [f.wait() for f in forks] == [0, 3]
    assert logs[1].read_text().split()[:3] == [str(forks[1].pid), str(forks[1].pid), "['3']"]
    broken = program.start(["raise"], logs[2])
    assert broken.wait() == 1
    assert "ValueError: no such number" in logs[2].read_text()
    asleep = program.start(["sleep"], logs[3])
    assert asleep.poll() is None
    asleep.send_signal(signal.SIGKILL)
    assert asleep.wait() == -signal.SIGKILL
    program.end()
    assert program.process.returncode == 0


def test_a_fork_that_ends_before_anybody_looks_is_handed_out(tmp_path: Path) -> None:
    """Its beginning and its end arrive in one piece."""
    said = "import sys; sys.stdin.readline(); print('started 7\\nended 7 3', flush=True);"
    warm = Warm.begin([sys.executable, "-c", said + "sys.stdin.read()"], dict(os.environ))
    fork = warm.start(["0"], tmp_path / "log")
    assert (fork.pid, fork.wait()) == (7, 3)
    warm.end()


def test_the_death_of_the_parent_is_an_error_and_ends_the_forks(
    program: Warm, tmp_path: Path
) -> None:
    fork = program.start(["sleep"], tmp_path / "log")
    program.process.kill()
    with pytest.raises(RuntimeError, match="ended, status -9"):
        fork.wait()
    program.end()


def test_architectures_of_local_folders(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    assert architectures([str(tmp_path), str(tmp_path), "a/hub-id"]) == ["GPT2LMHeadModel"]
