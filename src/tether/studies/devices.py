"""The devices that runs of a study may have: which, how many at once, and what is free on them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tether.config.errors import UserError
from tether.config.run import RunSettings

Slot = dict[str, str]
"""What a process that may run has in its environment, beside that of all."""
QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits")
MIB = 2**20


def device_of(slot: Slot) -> str:
    """As CUDA_VISIBLE_DEVICES names it; empty: the machine itself."""
    return slot.get("CUDA_VISIBLE_DEVICES", "")


def slots(runs: Sequence[RunSettings], workers: int | None, per_device: int) -> list[Slot]:
    """Environment of each process that may run at once: GPUs in turn, else plain CPU slots.

    Raises:
        UserError: for a count below 1.
    """
    if workers is not None and workers < 1:
        raise UserError(f"--workers must be at least 1, not {workers}")
    if per_device < 1:
        raise UserError(f"--per-device must be at least 1, not {per_device}")
    devices = [] if all(s.model.device == "cpu" for s in runs) else visible_devices()
    if not devices:
        return [{} for _ in range(workers or len(os.sched_getaffinity(0)))]
    count = workers or per_device * len(devices)
    return [{"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} for i in range(count)]


def visible_devices() -> list[str]:
    """NVIDIA GPUs as CUDA_VISIBLE_DEVICES names them, without importing torch."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [d.strip() for d in named.split(",") if d.strip() not in ("", "-1")]
    return [str(i) for i, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def free_memory(device: str) -> int | None:
    """Bytes that are free on a GPU now, whoever has the others; None where it cannot be asked (no
    nvidia-smi, a part of a GPU). A number is that of nvidia-smi, which counts by PCI bus."""
    if not device:
        return None
    try:
        asked = subprocess.run(QUERY, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    for line in asked.stdout.splitlines():
        index, uuid, free = (x.strip() for x in line.split(","))
        if device == index or (device.startswith("GPU-") and uuid.startswith(device)):
            return int(free) * MIB if free.isdigit() else None
    return None
