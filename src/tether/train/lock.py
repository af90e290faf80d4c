"""One process at a time writes a run's folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tether.config.errors import UserError

NAME = ".lock"
TRIES, PAUSE = 20, 0.01
"""`held` has the lock itself while it looks, for far less than these times this many seconds."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; the system lets it go when the process ends, however it ends.

    Raises UserError where another process has it.
    """
    with open(folder / NAME, "a+", encoding="utf-8") as f:
        try:
            _lock(f.fileno())
        except BlockingIOError as e:
            f.seek(0)
            who = f.read().strip() or "unknown"
            raise UserError(
                f"another process (number {who}) is writing {folder}: wait for it, or stop it and"
                f" `tether resume {folder}`"
            ) from e
        f.truncate(0)
        f.write(str(os.getpid()))
        f.flush()
        yield


def _lock(file: int) -> None:
    for left in reversed(range(TRIES)):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(PAUSE)


def held(folder: Path, but: int | None = None) -> bool:
    """Whether a process writes the folder now; but: number of one that does not count."""
    file = folder / NAME
    if not file.is_file():
        return False
    with open(file, encoding="utf-8") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return but is None or f.read().strip() != str(but)
    return False
