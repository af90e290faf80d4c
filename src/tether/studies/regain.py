"""Slots that were given up where runs wanted more memory than a device has are used again where it
has room: another program has ended, or a large run has.

There is room when as much is free as the largest run of the study took so far, and a third more,
and every run on the device has come to its first update, with which it has taken most of what it
takes. What was too little once has to be twice as much the next time. Only GPUs are asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tether.studies.crowding import Slots, place
from tether.studies.devices import Slot, device_of, free_memory

EVERY = 15.0
"""Seconds between questions to the devices."""
SHARE, MORE = 4 / 3, 2**30
"""A process takes more than its tensors did at most: what its allocator keeps and the graphs that
it has recorded hold, as a share; the device's own context, in bytes."""


@dataclass
class Regain:
    """When a device may have a run more again."""

    slots: Slots
    _peaks: dict[str, int] = field(default_factory=dict)
    """Run -> bytes that its tensors took at most."""
    _began: dict[str, float] = field(default_factory=dict)
    """Run -> when it was last begun, as files are dated."""
    _asked: float = float("-inf")
    _free: dict[str, int] = field(default_factory=dict)
    """Device -> what was free when it got its last slot back."""
    _least: dict[str, int] = field(default_factory=dict)
    """Device -> what has to be free, since less was too little."""

    def began(self, name: str) -> None:
        self._began[name] = time.time()

    def note(self, name: str, folder: Path) -> bool:
        """Note what a run has taken. True: it has come to its first update since it began."""
        file = folder / "timing.jsonl"
        try:
            lines, written = file.read_bytes().splitlines(), file.stat().st_mtime
        except OSError:
            return False
        for line in lines:
            with suppress(ValueError, LookupError, TypeError):  # the last may be half written
                self._peaks[name] = max(
                    self._peaks.get(name, 0), int(json.loads(line)["peak_bytes"])
                )
        return bool(lines) and written > self._began.get(name, 0.0)

    def crowded(self, device: str) -> None:
        """A run was out of memory on it."""
        if (free := self._free.pop(device, None)) is not None:
            self._least[device] = 2 * free

    def look(self, running: Iterable[tuple[str, Slot, Path]]) -> list[str]:
        """Give slots back where there is room, one a device. Returns what is to be said of it."""
        lacking = self.slots.lacking()
        if not lacking or time.monotonic() - self._asked < EVERY:
            return []
        self._asked = time.monotonic()
        going = [(device_of(slot), self.note(name, folder)) for name, slot, folder in running]
        took = max(self._peaks.values(), default=0)
        unused = {device_of(slot) for slot in self.slots.free}
        said = []
        for device in lacking:
            early = any(d == device and not measured for d, measured in going)
            if not took or early or device in unused:
                continue
            free = free_memory(device)
            if free is None or free < max(took * SHARE + MORE, self._least.get(device, 0)):
                continue
            self._free[device] = free
            self.slots.regain(device)
            said.append(
                f"{place(device)} has {free / 2**30:.1f} GiB free, where a run took at most "
                f"{took / 2**30:.1f}: {self.slots.count[device]} run at a time from now on"
            )
        return said
