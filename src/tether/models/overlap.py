"""Averages that are taken while the device goes on; who is about to write the weights, or to read
the average, calls `finish` first.

`Overlap`: in CPU memory. The weights are copied to page-locked memory on a stream of their own and
averaged by a thread. `Aside`: on the device, on a stream of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class Aside:
    """Beside the next forward pass, which leaves most of the memory's bandwidth unused."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._done: torch.cuda.Event | None = None

    @torch.no_grad()
    def start(self, target: Sequence[Tensor], source: Sequence[Tensor], by: float) -> None:
        """target <- target + by (source - target), later. Lists of one CUDA device, fp32."""
        self.finish()
        device = target[0].device
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            torch._foreach_lerp_(target, source, by)  # in place: no memory of this stream's own
            self._done = torch.cuda.Event()
            self._done.record(self._stream)

    def finish(self) -> None:
        """What is launched from here on, on the current stream, comes after; the host does not
        wait."""
        if self._done is not None and self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_event(self._done)
