"""Runs whose files are damaged, and paths that cannot be: one line, whatever the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs_for_tests import REWARDS, make_world, run, settings
from tether.cli.main import main


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = make_world(tmp_path_factory.mktemp("damaged"))
    low = {"reward": {"kind": "function", "function": f"{REWARDS}:low"}}
    return run(settings(world, rewards=low, updates=1, name="finished"))


COMMANDS = ("interpolate", "baselines", "resume", "frontier")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"garbage\n", "record.jsonl is damaged, line 1: Expecting value"),
        (b"\xff\xfe\n", "record.jsonl is damaged, line 1: 'utf-8' codec can't decode"),
        (b'{"kind": "start"}\n[1]\n', "record.jsonl is damaged, line 2: it is no mapping"),
    ],
    ids=["garbage", "binary", "another line"],
)
def test_a_damaged_record(
    command: str, content: bytes, message: str, finished: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "record.jsonl").write_bytes(content)
    assert main([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tether: {folder}/") and message in said and said.count("\n") == 1


@pytest.mark.parametrize("command", ["evaluate", "interpolate", "baselines"])
def test_an_empty_configuration(
    command: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "config.yaml").write_text("")
    assert main([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tether: {folder}/config.yaml is empty") and said.count("\n") == 1


def test_a_folder_that_cannot_be_made(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system says no only when it is tried: the path and its reason."""
    config = finished / "config.yaml"
    monkeypatch.setattr("tether.config.folder.os.access", lambda *_: True)
    words = ["train", "--config", str(config), "--name", "x", "--root", "/proc/nowhere"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said == "tether: cannot use '/proc/nowhere': No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generate RUN hi --temperature nan", "--temperature must be greater than 0"),
        ("generate RUN hi --temperature inf", "--temperature must be greater than 0"),
        ("reward-model pairs a b --temperature nan", "--temperature must be greater than 0"),
        ("frontier RUN --budgets nan", "'nan' is no list of nats greater than 0"),
    ],
)
def test_numbers_that_are_none(
    words: str, message: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.replace("RUN", str(finished)).split()) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams(closed: str, finished: Path, tmp_path: Path) -> None:
    """A caller may have closed a standard stream: the report is written all the same."""
    command = f"exec {sys.executable} -m tether frontier {finished} --folder {tmp_path}/f {closed}"
    source = Path(__file__).parents[3] / "src"
    done = subprocess.run(["sh", "-c", command], env=os.environ | {"PYTHONPATH": str(source)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f" / "frontier.svg").stat().st_size > 1000
