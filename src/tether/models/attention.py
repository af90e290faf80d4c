"""Passes that stay clear of a fault of cuDNN's attention.

With an attention mask, which a padded batch has, its backward pass on an H100 or H200 gives NaN
where the keys are half a tile more than whole tiles of 128 and a row's scores are all below about
-88: the other half of the tile is scored 0 instead of not at all (torch 2.11 to 2.13,
pytorch/pytorch issue 196678). Such a pass takes another of torch's kernels, scoring like the
update, so that log-probs of both are of one kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.backends.cuda import cudnn_sdp_enabled, enable_cudnn_sdp

TILE = 128
"""Keys that the kernel takes at once."""


def spoilt(length: int) -> bool:
    """Whether cuDNN's gradient over so many keys may be NaN."""
    return length % TILE == TILE // 2


class _Switch:
    """The setting is one of the whole process, and passes run in several threads: it comes back
    when the last pass that wanted it off has ended."""

    def __init__(self) -> None:
        self._lock, self._within, self._before = threading.Lock(), 0, True

    def off(self) -> None:
        with self._lock:
            if not self._within:
                self._before = cudnn_sdp_enabled()
                enable_cudnn_sdp(False)
            self._within += 1

    def back(self) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                enable_cudnn_sdp(self._before)


_SWITCH = _Switch()


@contextmanager
def sound(*lengths: int) -> Iterator[None]:
    """Within, attention over keys of these lengths has finite gradients."""
    if not any(spoilt(n) for n in lengths):
        yield
        return
    _SWITCH.off()
    try:
        yield
    finally:
        _SWITCH.back()
