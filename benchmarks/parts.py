"""Folders as archives in pieces of a limited size, and back: how a study whose parts run in several
places, or several times, keeps what they share.

    python -m benchmarks.parts split FOLDER OUT/NAME        # OUT/NAME.tar.xz-00, -01 ...
    python -m benchmarks.parts split FOLDER OUT/NAME --stored   # OUT/NAME.tar-00, -01 ...
    python -m benchmarks.parts join OUT/NAME.json --into FOLDER

An archive is cut into pieces of at most `PIECE` bytes; beside the pieces lies `NAME.json` with the
sha256 of every piece, so that one that is missing or broken is named before anything is unpacked.
The same files give the same bytes. Weights are stored: xz takes a minute for fifty megabytes of
them and finds nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import re
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tether.config.errors import UserError

PIECE = 15 * 2**20
"""Bytes of a piece."""
ENDINGS = {True: ".tar.xz", False: ".tar"}
"""Whether an archive is compressed -> the ending of its pieces, before their number."""
XZ = b"\xfd7zXZ\x00"
"""How a compressed archive begins."""


def packed(folder: Path, files: Iterable[Path], preset: int | None = 6) -> bytes:
    """An archive of some files below a folder, in the order of their names; compressed by xz with
    that preset, None = as it is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(set(files)):
            data = file.read_bytes()
            info = tarfile.TarInfo(file.relative_to(folder).as_posix())
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    found = buffer.getvalue()
    return found if preset is None else lzma.compress(found, preset=preset)


def remove(out: Path, name: str) -> None:
    """An archive of that name, if there is one."""
    (out / f"{name}.json").unlink(missing_ok=True)
    for ending in ENDINGS.values():
        for old in out.glob(f"{name}{ending}-*"):
            old.unlink()


def cut(archive: bytes, out: Path, name: str, piece: int = PIECE) -> list[Path]:
    """Write an archive as pieces; those of an earlier archive of the name go."""
    out.mkdir(parents=True, exist_ok=True)
    remove(out, name)
    made = _slices(archive, name, piece)
    for file, content in made.items():
        (out / file).write_bytes(content)
    (out / f"{name}.json").write_text(_list(made), encoding="utf-8")
    return [out / n for n in made]


def holds(archive: bytes, out: Path, name: str, piece: int = PIECE) -> bool:
    """Whether a folder lists the pieces of this very archive under the name."""
    listed = out / f"{name}.json"
    made = _list(_slices(archive, name, piece))
    return listed.is_file() and listed.read_bytes() == made.encode()


def _slices(archive: bytes, name: str, piece: int) -> dict[str, bytes]:
    """File of a piece -> what it holds."""
    ending = ENDINGS[archive.startswith(XZ)]
    starts = range(0, len(archive), piece)
    return {f"{name}{ending}-{n:02d}": archive[s : s + piece] for n, s in enumerate(starts)}


def _list(pieces: dict[str, bytes]) -> str:
    """The text of the list of an archive's pieces."""
    made = {n: hashlib.sha256(content).hexdigest() for n, content in pieces.items()}
    return json.dumps(made, indent=1) + "\n"


def pieces_of(listed: Path) -> dict[Path, str]:
    """Pieces that the list of an archive names, all of which lie beside it -> their sha256.

    Raises UserError: there is no such list, or the file is none.
    """
    if not listed.is_file():
        raise UserError(f"{listed} is not there: it says which pieces there are")
    try:
        stated = json.loads(listed.read_text(encoding="utf-8"))
    except ValueError:
        stated = None
    name = re.compile(re.escape(listed.stem) + r"\.tar(\.xz)?-\d+")
    if not (stated and isinstance(stated, dict) and all(map(name.fullmatch, stated))):
        raise UserError(f"{listed} is no list of the pieces of an archive")
    return {listed.with_name(n): sha for n, sha in stated.items()}


def join(listed: Path, into: Path) -> list[str]:
    """Unpack the archive whose pieces a file lists; the names of its files.

    Raises UserError: no list, a piece is missing, or is not what its list says.
    """
    pieces = pieces_of(listed)
    for piece, stated in pieces.items():
        if not piece.is_file():
            raise UserError(f"the piece {piece} is not there, and {listed.name} names it")
        if sha256(piece) != stated:
            raise UserError(f"the piece {piece} is not the one that {listed.name} names")
    archive = b"".join(p.read_bytes() for p in pieces)
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(
        fileobj=io.BytesIO(archive), mode="r:xz" if archive.startswith(XZ) else "r:"
    ) as tar:
        tar.extractall(into, filter="data")
        return tar.getnames()


def sha256(file: Path) -> str:
    """Of a file's bytes."""
    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.parts", description="see the module")
    actions = p.add_subparsers(dest="action", required=True)
    split = actions.add_parser("split", help="a folder as pieces")
    split.add_argument("folder", type=Path)
    split.add_argument("out", type=Path, help="folder and name of the pieces")
    split.add_argument("--mib", type=int, default=PIECE // 2**20, help="of a piece")
    split.add_argument("--stored", action="store_true", help="without compression")
    back = actions.add_parser("join", help="unpack pieces")
    back.add_argument("listed", type=Path, help="their list, NAME.json, which lies beside them")
    back.add_argument("--into", type=Path, required=True)
    given = p.parse_args(words)
    try:
        if given.action == "split":
            files = [f for f in given.folder.rglob("*") if f.is_file()]
            out = given.out
            archive = packed(given.folder, files, None if given.stored else 6)
            made = cut(archive, out.parent, out.name, given.mib * 2**20)
            print("\n".join(f"{p} {p.stat().st_size:,}" for p in made))
        else:
            print(f"{len(join(given.listed, given.into))} files in {given.into}")
    except UserError as e:
        print(f"parts: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
