"""The few verbs of a process group; in a single process each is the identity.

Nothing here starts a group: `torch.distributed` is used where it is already initialised.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def _group() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Number of this process, 0 where there is no group."""
    return dist.get_rank() if _group() else 0


def world_size() -> int:
    """Number of processes, 1 where there is no group."""
    return dist.get_world_size() if _group() else 1


def main_process() -> bool:
    """True on the one process that writes files."""
    return rank() == 0


def total(x: Tensor) -> Tensor:
    """Sum over ranks, a new tensor on the device of `x`; the argument itself stays as it is.

    Every statistic of a method goes through here. Booleans are counted.
    """
    if not _group():
        return x
    out = x.detach().to(torch.int64) if x.dtype == torch.bool else x.detach().clone()
    if dist.get_backend() == "nccl" and not out.is_cuda:
        out = out.cuda()
    dist.all_reduce(out)
    return out.to(x.device)


def barrier() -> None:
    """Wait until every rank is here."""
    if _group():
        dist.barrier()


def broadcast_object(value: Any) -> Any:
    """The main process's value, on every rank."""
    if not _group():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
