"""How far the runs of a study are: read from their records, told by the pace so far."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Watch:
    """Counts the completed updates of a growing record; a resumed run may shorten it first."""

    record: Path
    offset: int = 0
    updates: int = 0
    ended: bool = False

    def look(self) -> None:
        try:
            size = self.record.stat().st_size
        except FileNotFoundError:
            return
        if size < self.offset:
            self.offset = self.updates = 0
        with open(self.record, "rb") as f:
            f.seek(self.offset)
            new = f.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.offset += len(whole)
        for text in whole.splitlines():
            # inside a JSON string the quotes would be escaped, so this is the key
            if b'"kind": "update"' in text:
                with suppress(ValueError, KeyError, TypeError):  # who reads the record says so
                    self.updates = max(self.updates, int(json.loads(text)["update"]))
            elif b'"kind": "end"' in text:
                self.ended = True


@dataclass
class Left:
    """How much of a study is still to do, and for how long at the pace so far."""

    runs: int
    began: float = field(default_factory=time.monotonic)
    ended: int = 0

    def one_less(self) -> str:
        """After a run has ended: `3 of 28 runs, 4 min left`."""
        self.ended += 1
        seconds = (time.monotonic() - self.began) / self.ended * (self.runs - self.ended)
        shown = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
        return f"{self.ended} of {self.runs} runs, {shown} left"
