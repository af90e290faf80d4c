"""Runs that share a device and together want more memory than it has.

What a run needs at most is not known before its first updates. So a run that ends out of memory
beside others is no failure: it begins again, from its newest checkpoint, where fewer run at a time
(`studies/regain.py`: until there is room). One that had the device for itself has failed.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tether.config.errors import OUT_OF_MEMORY
from tether.studies.devices import Slot, device_of

SECONDS = 60.0
"""For so long after another has ended, a run counts as beside it: an error takes a while to end a
process, and several that take turns in running out of memory end one after the other."""


@dataclass
class Slots:
    """Which processes may run at once, and on which devices."""

    free: deque[Slot]
    count: Counter[str] = field(init=False)
    """Device -> runs that may share it."""
    _beside: dict[str, float] = field(default_factory=dict)
    """Run -> when another was last seen on its device."""
    _taken: dict[str, list[Slot]] = field(default_factory=dict)
    """Run -> the slots that were given up for it."""

    def __post_init__(self) -> None:
        self.count = Counter(device_of(s) for s in self.free)

    def lacking(self) -> list[str]:
        """Devices of which slots were given up."""
        return sorted({device_of(s) for given_up in self._taken.values() for s in given_up})

    def regain(self, device: str) -> None:
        """One of the slots that a device lacks is there again."""
        for given_up in self._taken.values():
            for slot in given_up:
                if device_of(slot) == device:
                    given_up.remove(slot)
                    self.count[device] += 1
                    self.free.append(slot)
                    return

    def look(self, running: Iterable[tuple[str, Slot]]) -> None:
        """Note which of the runs (name, slot) share a device now."""
        now = time.monotonic()
        pairs = [(name, device_of(slot)) for name, slot in running]
        there = Counter(device for _, device in pairs)
        for name, device in pairs:
            if there[device] > 1:
                self._beside[name] = now

    def began(self, name: str) -> None:
        """A run begins: whom it shared a device with before does not count."""
        self._beside.pop(name, None)

    def ended(self, name: str, slot: Slot, status: int | None) -> bool:
        """A run has ended and its slot is free. True: it ran out of memory beside others and is to
        begin again; its device then has one slot less, if it has another."""
        shared = time.monotonic() - self._beside.pop(name, float("-inf")) < SECONDS
        again = status == OUT_OF_MEMORY and shared
        device = device_of(slot)
        if again and self.count[device] > 1:
            self.count[device] -= 1
            self._taken.setdefault(name, []).append(slot)
            return True
        self.free.append(slot)
        if status == OUT_OF_MEMORY and not again:  # too large even alone: the others were not
            for given_up in self._taken.pop(name, ()):
                self.count[device_of(given_up)] += 1
                self.free.append(given_up)
        return again


def place(device: str) -> str:
    """A device as lines call it."""
    return f"GPU {device}" if device else "this machine"


def told(slots: Slots, slot: Slot) -> str:
    """What a line says of a run that begins again."""
    device = device_of(slot)
    return (
        f"out of memory beside other runs: it begins again, and at most {slots.count[device]} run "
        f"at a time on {place(device)} from now on (--per-device)"
    )
