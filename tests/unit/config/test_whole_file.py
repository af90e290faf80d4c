"""A file is whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
