"""A full disk is one clear message, wherever it is met (B26)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from tether.config.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """No space, or over the quota. safetensors tells the number in its text only."""
    if isinstance(error, OSError):
        return error.errno in FULL
    return any(f"os error {n})" in str(error) for n in FULL)


@contextmanager
def guarded(what: str, run: Path) -> Iterator[None]:
    """Turns a full disk while `what` is written into a UserError; anything else passes.

    run: the run's folder, for the mend.
    """
    try:
        yield
    except (OSError, SafetensorError) as e:
        if not is_full(e):
            raise
        raise UserError(
            f"disk full while writing {what} of {run}; everything saved before it is intact: free "
            f"some space, then `tether resume {run}`"
        ) from e
