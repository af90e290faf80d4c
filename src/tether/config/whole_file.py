"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file beside its place and move it there; text as UTF-8. Folders are made.

    A reader sees the former content or the new one; what was begun and failed is removed, and two
    processes that write the same file do not get into each other's way. Raises OSError that names
    the file, also where the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as e:
        if e.filename is None and e.errno is not None:  # of a write, which knows no name
            raise OSError(e.errno, e.strerror, str(path)) from e
        raise
    finally:
        part.unlink(missing_ok=True)
