"""Folders as files of a limited size, and back: what travels to a machine that is reached through
small transfers, and what comes home.

    python -m benchmarks.parts split FOLDER OUT/NAME        # OUT/NAME.tar.xz-00, -01 ...
    python -m benchmarks.parts join OUT/NAME.tar.xz-* --into FOLDER

An archive is cut into pieces of at most `PIECE` bytes; beside the pieces lies `NAME.json` with the
sha256 of every piece, so that one that is missing or broken is named before anything is unpacked.
The same files give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tether.config.errors import UserError

PIECE = 15 * 2**20
"""Bytes of a piece."""


def packed(folder: Path, files: Iterable[Path], preset: int = 6) -> bytes:
    """An archive of some files below a folder, in the order of their names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(set(files)):
            data = file.read_bytes()
            info = tarfile.TarInfo(file.relative_to(folder).as_posix())
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return lzma.compress(buffer.getvalue(), preset=preset)


def remove(out: Path, name: str) -> None:
    """An archive of that name, if there is one."""
    (out / f"{name}.json").unlink(missing_ok=True)
    for old in out.glob(f"{name}.tar.xz-*"):
        old.unlink()


def cut(archive: bytes, out: Path, name: str, piece: int = PIECE) -> list[Path]:
    """Write an archive as pieces; those of an earlier archive of the name go."""
    out.mkdir(parents=True, exist_ok=True)
    remove(out, name)
    made: dict[str, str] = {}
    for number, start in enumerate(range(0, len(archive), piece)):
        file = out / f"{name}.tar.xz-{number:02d}"
        file.write_bytes(archive[start : start + piece])
        made[file.name] = sha256(file)
    (out / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return [out / n for n in made]


def join(pieces: Sequence[Path], into: Path) -> list[str]:
    """Unpack the pieces of one archive; the names of its files.

    Raises UserError: a piece is missing, or is not what its list says.
    """
    names = {p.name.rpartition(".tar.xz-")[0] for p in pieces}
    if len(names) != 1 or "" in names:
        raise UserError(f"pieces of one archive (NAME.tar.xz-NN) are wanted, not {sorted(names)}")
    found = {p.name: p for p in pieces}
    listed = pieces[0].with_name(f"{names.pop()}.json")
    if not listed.is_file():
        raise UserError(f"{listed} is not there: it says which pieces there are")
    stated_of = json.loads(listed.read_text(encoding="utf-8"))
    for name, stated in stated_of.items():
        if name not in found:
            raise UserError(f"the piece {name} is not there")
        if sha256(found[name]) != stated:
            raise UserError(f"the piece {found[name]} is not the one that {listed.name} names")
    archive = b"".join(found[n].read_bytes() for n in stated_of)
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as tar:
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
    back = actions.add_parser("join", help="unpack pieces")
    back.add_argument("pieces", type=Path, nargs="+")
    back.add_argument("--into", type=Path, required=True)
    given = p.parse_args(words)
    try:
        if given.action == "split":
            files = [f for f in given.folder.rglob("*") if f.is_file()]
            out = given.out
            made = cut(packed(given.folder, files), out.parent, out.name, given.mib * 2**20)
            print("\n".join(f"{p} {p.stat().st_size:,}" for p in made))
        else:
            print(f"{len(join(given.pieces, given.into))} files in {given.into}")
    except UserError as e:
        print(f"parts: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
