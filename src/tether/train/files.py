"""The append-only files of a run. A checkpoint holds their lengths; resume cuts them back to it."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.records import finite, line
from tether.train.disk import guarded

NAMES = ("record.jsonl", "samples.jsonl", "timing.jsonl")
NON_FINITE = "log/non_finite"
"""Metric of a record line: how many of its numbers were NaN or infinite and stand as null."""


class RunFiles:
    """Writes on the main process only; elsewhere every call does nothing."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes
        self._open: dict[str, Any] = {}
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered bytes: a line is in the file once `write` returns.
            self._open = {n: open(folder / n, "ab", buffering=0) for n in NAMES}  # noqa: SIM115

    def _append(self, name: str, text: str) -> None:
        """The whole line or nothing of it. Raises UserError where the disk is full."""
        if not self.writes:
            return
        # "replace": what a reward function logs may hold half of a surrogate pair
        f, left = self._open[name], memoryview((text + "\n").encode("utf-8", "replace"))
        start = f.seek(0, os.SEEK_END)
        with guarded(name, self.folder):
            try:
                while left:
                    left = left[f.write(left) :]  # a nearly full disk takes a part of it
            except OSError:
                with suppress(OSError):
                    f.truncate(start)
                raise

    def record(self, kind: str, **values: Any) -> None:
        """One record line. A number that is not finite is null, and counted (B42)."""
        bad = non_finite(values)
        if bad and "metrics" in values:
            values["metrics"] = values["metrics"] | {NON_FINITE: float(bad)}
        self._append("record.jsonl", line(kind, **values))

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
            with guarded(name, self.folder):
                os.fsync(f.fileno())
            out[name] = f.seek(0, os.SEEK_END)
        return out

    def cut(self, lengths: dict[str, int]) -> None:
        """Back to the lengths of a checkpoint; an empty mapping (no checkpoint yet) empties them.

        Raises UserError where a file is shorter than the checkpoint says: lines were lost.
        """
        for name, f in self._open.items():
            there, wanted = f.seek(0, os.SEEK_END), lengths.get(name, 0)
            if there < wanted:
                raise UserError(
                    f"{self.folder / name} has {there} bytes, its checkpoint saw {wanted}: the file"
                    " was changed or lost; restore it, or start anew with another --name"
                )
        for name, f in self._open.items():
            f.truncate(lengths.get(name, 0))

    def close(self) -> None:
        for f in self._open.values():
            f.close()


def non_finite(value: Any) -> int:
    """How many floats in a nested value are NaN or infinite."""
    if isinstance(value, float):
        return int(not math.isfinite(value))
    if isinstance(value, dict):
        return sum(map(non_finite, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(non_finite, value))
    return 0
