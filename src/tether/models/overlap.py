"""Averages in CPU memory of weights on a device, taken while the device goes on.

The weights are copied to page-locked memory on a stream of their own and averaged by a thread; who
is about to write them, or to read the average, calls `finish` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from tether.core import weights as w
from tether.core.gate import beside


class Overlap:
    """At most one average is on its way; what another model kept is freed with it."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future[None] | None = None
        self._stage: w.WeightSet = {}

    def takes(self, target: Mapping[str, Tensor], source: Mapping[str, Tensor], by: float) -> bool:
        """Whether there is something to overlap: fp32 here in CPU memory, there on CUDA."""
        return 0 < by < 1 and all(
            not t.is_cuda and t.dtype == torch.float32 and source[n].is_cuda
            for n, t in target.items()
        )

    @torch.no_grad()
    def start(self, target: w.WeightSet, source: w.WeightSet, by: float) -> None:
        """target <- target + by (source - target), later."""
        self.finish()
        if self._stage.keys() != target.keys():
            self._stage = w.snapshot(target, pin=True)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        arrived = torch.cuda.Event()
        with torch.cuda.stream(stream):
            for name, t in self._stage.items():
                t.copy_(w.local(source[name]), non_blocking=True)
            arrived.record()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        self._job = self._pool.submit(_average, arrived, target, self._stage, by)

    def finish(self) -> None:
        """Waits; an exception in the thread is raised here."""
        job, self._job = self._job, None
        if job is not None:
            job.result()


def _average(
    arrived: torch.cuda.Event, target: w.WeightSet, staged: w.WeightSet, by: float
) -> None:
    with beside():
        arrived.synchronize()
    w.lerp_(target, staged, by)
