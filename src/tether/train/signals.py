"""First Ctrl-C or SIGTERM: finish the update and save. Second: out at once (B27)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """Raised after the run has been saved; `code` is the exit status (130 or 143)."""

    def __init__(self, code: int, folder: object) -> None:
        super().__init__(f"stopped and saved; `tether resume {folder}` goes on")
        self.code = code


class StopRequest:
    """Context manager that turns the first signal into a flag which the loop reads."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.seconds_left: float | None = None
        """How long an update takes, told by the loop; shown when a signal arrives."""
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
        took = "" if self.seconds_left is None else f" (an update takes {self.seconds_left:.0f} s)"
        text = f"\nfinishing this update{took}, then saving; once more to stop at once\n"
        try:
            os.write(sys.stderr.fileno(), text.encode())
        except (OSError, ValueError, AttributeError):  # a notebook's stream, or a closed one
            os.write(2, text.encode())

    @property
    def code(self) -> int | None:
        return None if self.signum is None else 128 + self.signum
