"""Batches that a process of their own makes ahead of the device.

A thread would not do: launching kernels and making batches are both Python, and a thread that
computes takes the interpreter from one that launches for milliseconds at every launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

Pair = tuple[torch.Tensor, torch.Tensor]
AHEAD = 8
"""Batches that wait for the device at most."""


class Made(IterableDataset[Pair]):
    """What a function makes, as tensors."""

    def __init__(self, make: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Pair]:
        for ids, labels in self.make():
            yield torch.from_numpy(ids), torch.from_numpy(labels)


def ahead(
    make: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]], device: torch.device
) -> Iterator[Pair]:
    """The pairs of `make()`, in order, on the device as int64, without a wait for the copy.

    The process is forked here, so call this before the device is first used. What fails in it is
    raised where the batch is asked for.
    """
    loader: Any = DataLoader(
        Made(make), batch_size=None, num_workers=1, prefetch_factor=AHEAD,
        pin_memory=device.type == "cuda", multiprocessing_context="fork",
    )  # fmt: skip
    source = iter(loader)  # starts the process, whatever is asked of it later
    return (
        (ids.to(device, non_blocking=True).long(), labels.to(device, non_blocking=True).long())
        for ids, labels in source
    )
