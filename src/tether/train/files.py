"""The append-only files of a run. A checkpoint holds their lengths; resume cuts them back to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tether.records import finite, line

NAMES = ("record.jsonl", "samples.jsonl", "timing.jsonl")


class RunFiles:
    """Writes on the main process only; elsewhere every call does nothing."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes
        self._open: dict[str, Any] = {}
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered bytes: a line is in the file once `write` returns, whole or not at all.
            self._open = {n: open(folder / n, "ab", buffering=0) for n in NAMES}  # noqa: SIM115

    def _append(self, name: str, text: str) -> None:
        if self.writes:
            self._open[name].write((text + "\n").encode("utf-8"))

    def record(self, kind: str, **values: Any) -> None:
        self._append("record.jsonl", line(kind, **values))

    def record_line(self, text: str) -> None:
        self._append("record.jsonl", text)

    def sample(self, **values: Any) -> None:
        self._append(
            "samples.jsonl", json.dumps(finite(values), sort_keys=True, ensure_ascii=False)
        )

    def timing(self, **values: Any) -> None:
        self._append("timing.jsonl", json.dumps(finite(values), sort_keys=True))

    def lengths(self) -> dict[str, int]:
        """Bytes of each file, flushed to disk first, so that a checkpoint never outruns them."""
        out = {}
        for name, f in self._open.items():
            os.fsync(f.fileno())
            out[name] = f.seek(0, os.SEEK_END)
        return out

    def cut(self, lengths: dict[str, int]) -> None:
        """Back to the lengths of a checkpoint; an empty mapping (no checkpoint yet) empties them."""
        for name, f in self._open.items():
            f.truncate(lengths.get(name, 0))

    def close(self) -> None:
        for f in self._open.values():
            f.close()
