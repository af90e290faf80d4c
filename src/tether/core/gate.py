"""Threads that use the device beside the main one, and recordings of it: never both at once.

While a CUDA graph is recorded, memory that any other thread asks of the device, or a wait for it,
makes the recording invalid (`cudaStreamCaptureModeGlobal`). Rewards are scored and averages taken
in threads; they come in through `beside`, and a recording waits until they are through.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_changed = threading.Condition()
_beside = 0
_alone = False
_mine = threading.local()


@contextmanager
def _within(what: str) -> Iterator[None]:
    """Raises RuntimeError where this thread is within one already: it would wait for itself."""
    if (outer := getattr(_mine, "what", None)) is not None:
        raise RuntimeError(f"{what} within {outer}: one thread would wait for itself")
    _mine.what = what
    try:
        yield
    finally:
        _mine.what = None


@contextmanager
def beside() -> Iterator[None]:
    """Around the work of a thread; waits while something is recorded."""
    global _beside
    with _within("work beside the main thread"):
        with _changed:
            _changed.wait_for(lambda: not _alone)
            _beside += 1
        try:
            yield
        finally:
            with _changed:
                _beside -= 1
                _changed.notify_all()


@contextmanager
def alone() -> Iterator[None]:
    """Around a recording, in the main thread; waits for the threads that are at work."""
    global _alone
    with _within("a recording"):
        with _changed:
            _changed.wait_for(lambda: not _alone)
            _alone = True  # who comes now waits, or a busy pool would never let it begin
            try:
                _changed.wait_for(lambda: not _beside)
            except BaseException:
                _alone = False
                _changed.notify_all()
                raise
        try:
            yield
        finally:
            with _changed:
                _alone = False
                _changed.notify_all()
