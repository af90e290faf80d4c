"""A file is whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tether.cli.main import main
from tether.config.text_values import write_yaml
from tether.config.whole_file import write_whole


def test_text_and_bytes_in_folders_that_are_not_there(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.json"
    write_whole(file, "ü\n")
    assert file.read_bytes() == "ü\n".encode()
    write_whole(file, b"\x00")
    assert file.read_bytes() == b"\x00" and list(file.parent.iterdir()) == [file]


def test_what_fails_leaves_the_former_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "b.json"
    write_whole(file, "old")

    def broken(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="no space"):
        write_whole(file, "new")
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a JSON file, of YAML and of the command: one line."""
    file = tmp_path / "grue.json"
    write_yaml(tmp_path / "config.yaml", {"old": 1})
    monkeypatch.setattr(Path, "write_bytes", full)
    for write in (lambda: write_whole(file, "new"), lambda: write_yaml(file, {"a": 1})):
        with pytest.raises(OSError, match="No space left") as e:
            write()
        assert e.value.filename == str(file) and not file.exists()
    words = ["grue", "run", "--mini", "--tasks", "imdb", "--methods", "zero-shot"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.endswith("anchors/imdb.json': No space left on device\n") and said.count("\n") == 1


def test_a_full_disk_that_knows_no_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tether.cli.main._run", full)
    assert main(["list"]) == 2
    assert capsys.readouterr().err == "tether: cannot write: No space left on device; make room\n"
