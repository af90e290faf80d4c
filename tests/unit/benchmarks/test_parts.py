"""What travels in pieces comes back whole, or the piece that is missing or broken is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.parts import cut, join, main, packed
from tether.config.errors import UserError


@pytest.mark.parametrize("preset", [6, None])
def test_pieces_give_back_the_same_files(preset: int | None, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a" / "x.bin").write_bytes(np.random.default_rng(0).bytes(5000))
    (source / "y.json").write_text("{}")
    files = [source / "a" / "x.bin", source / "y.json"]
    archive = packed(source, files, preset)
    assert archive == packed(source, reversed(files), preset)
    pieces = cut(archive, tmp_path / "out", "some", piece=2000)
    assert [p.stat().st_size <= 2000 for p in pieces] == [True] * len(pieces) and len(pieces) > 2
    assert join(tmp_path / "out" / "some.json", tmp_path / "back") == ["a/x.bin", "y.json"]
    assert (tmp_path / "back" / "a" / "x.bin").read_bytes() == files[0].read_bytes()


def test_what_is_stored_takes_the_place_of_what_was_compressed_and_back(tmp_path: Path) -> None:
    """A name has one archive; a stored one holds the bytes of its files, and its name says so."""
    (tmp_path / "x.bin").write_bytes(np.random.default_rng(0).bytes(5000))
    listed = tmp_path / "out" / "some.json"
    for preset, ending in ((6, "tar.xz"), (None, "tar"), (1, "tar.xz")):
        archive = packed(tmp_path, [tmp_path / "x.bin"], preset)
        assert ((tmp_path / "x.bin").read_bytes() in archive) is (preset is None)
        cut(archive, tmp_path / "out", "some", piece=4000)
        there = sorted(p.name for p in (tmp_path / "out").iterdir())
        pieces = -(-len(archive) // 4000)
        assert there == ["some.json", *(f"some.{ending}-{n:02d}" for n in range(pieces))]
        assert join(listed, tmp_path / "back") == ["x.bin"]


def test_a_missing_or_broken_piece_is_named_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(np.random.default_rng(0).bytes(5000))
    pieces = cut(packed(tmp_path, [tmp_path / "x.bin"]), tmp_path / "out", "some", piece=2000)
    listed = tmp_path / "out" / "some.json"
    pieces[1].write_bytes(b"other")
    with pytest.raises(UserError, match=r"xz-01 is not the one"):
        join(listed, tmp_path / "back")
    pieces[1].unlink()
    with pytest.raises(UserError, match=r"some.tar.xz-01 is not there, and some.json names it"):
        join(listed, tmp_path / "back")
    with pytest.raises(UserError, match=r"other.json is not there"):
        join(listed.with_name("other.json"), tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_pieces_that_no_list_names_are_left_out(tmp_path: Path) -> None:
    """Those of a longer archive of the name, say; and the hundredth piece is the last."""
    (tmp_path / "x.bin").write_bytes(np.random.default_rng(0).bytes(5000))
    pieces = cut(packed(tmp_path, [tmp_path / "x.bin"]), tmp_path / "out", "some", piece=50)
    assert len(pieces) > 100
    stray = tmp_path / "out" / "some.tar.xz-999"
    stray.write_bytes(b"of another archive")
    assert join(tmp_path / "out" / "some.json", tmp_path / "back") == ["x.bin"]
    assert (tmp_path / "back" / "x.bin").read_bytes() == (tmp_path / "x.bin").read_bytes()


@pytest.mark.parametrize(
    "text", ["{", "[1]", "{}", '{"other.tar.xz-00": "0"}', '{"some.tar.xz-00/../../x": "0"}']
)
def test_a_file_that_lists_no_pieces_is_named(text: str, tmp_path: Path) -> None:
    listed = tmp_path / "some.json"
    listed.write_text(text)
    with pytest.raises(UserError, match=r"some\.json is no list of the pieces of an archive"):
        join(listed, tmp_path / "back")


def test_a_folder_goes_through_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x.txt").write_text("x")
    out, back = tmp_path / "out" / "some", tmp_path / "back"
    assert main(["split", str(tmp_path / "source"), str(out)]) == 0
    assert main(["join", f"{out}.json", "--into", str(back)]) == 0
    assert main(["split", str(tmp_path / "source"), str(out), "--stored"]) == 0
    assert out.with_name("some.tar-00").is_file() and not out.with_name("some.tar.xz-00").exists()
    (back / "x.txt").unlink()
    assert main(["join", f"{out}.json", "--into", str(back)]) == 0
    assert (back / "x.txt").read_text() == "x"
    assert main(["join", f"{out}.tar.xz-00", "--into", str(back)]) == 1
    assert capsys.readouterr().err.startswith("parts: ")
