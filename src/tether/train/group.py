"""One process, or a data-parallel group started by torchrun (or accelerate launch)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def process_group() -> Iterator[None]:
    """Joins the group that the launcher's environment describes; alone it does nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or dist.is_initialized():
        yield
        return
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()
