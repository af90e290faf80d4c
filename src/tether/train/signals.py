"""First Ctrl-C or SIGTERM: finish the update and save, or leave an evaluation that a resumed run
repeats after its batch. Second: out at once (B27)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from tether.distributed.total import total, world_size


class Interrupted(Exception):
    """Raised where all that counts is saved; `code` is the exit status (130 or 143)."""

    def __init__(self, code: int, folder: object, *, saved: bool = True) -> None:
        """saved: there is a checkpoint; without one the run begins again."""
        how = ("and saved", "goes on") if saved else ("before the first update", "begins again")
        super().__init__(f"stopped {how[0]}; `tether resume {folder}` {how[1]}")
        self.code = code


class StopRequest:
    """Context manager that turns the first signal into a flag which the loop reads."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.seconds_left: float | None = None
        """How long an update takes, told by the loop; shown when a signal arrives."""
        self._batches: list[float] | None = None
        """In an evaluation that may be left between batches: when the last two ended."""
        self._old: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for s in (signal.SIGINT, signal.SIGTERM):
                self._old[s] = signal.signal(s, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for s, old in self._old.items():
            signal.signal(s, old)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            # Nothing is flushed or joined: the last checkpoint stands, resume repeats the update.
            os._exit(128 + signum)
        self.signum = signum
        text = f"\n{self._what()}; once more to stop at once\n"
        try:
            os.write(sys.stderr.fileno(), text.encode())
        except (OSError, ValueError, AttributeError):  # a notebook's stream, or a closed one
            os.write(2, text.encode())

    def _what(self) -> str:
        """What happens now, and how long it takes as far as that is known."""
        took = ""
        if self._batches is None:
            if self.seconds_left is not None:
                took = f" (an update takes {self.seconds_left:.0f} s)"
            return f"finishing this update{took}, then saving"
        if len(self._batches) == 2:
            took = f" (the last took {self._batches[1] - self._batches[0]:.1f} s)"
        return f"stopping after this batch of the evaluation{took}, which is repeated at resume"

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """What is done here is done again when the run goes on, so one process may leave it at any
        batch; several have different numbers of batches, and leave together."""
        self._batches = [] if world_size() == 1 else None
        try:
            yield
        finally:
            self._batches = None

    def batch(self) -> bool:
        """Told between the batches of an evaluation. True: it may be left here."""
        if self._batches is not None:
            self._batches = [*self._batches[-1:], time.perf_counter()]
        return self._batches is not None

    def agreed(self) -> int:
        """The signal's exit code, the same on every rank, or 0. Called by all of them."""
        codes = total(torch.tensor([self.code == 130, self.code == 143]).long())
        return 143 if codes[1] else 130 if codes[0] else 0

    @property
    def code(self) -> int | None:
        return None if self.signum is None else 128 + self.signum
