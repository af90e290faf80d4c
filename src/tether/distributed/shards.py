"""What must happen after somebody wrote local shards."""

from __future__ import annotations

import torch
from torch import nn


def reshard(module: nn.Module) -> None:
    """Drop gathered copies of FSDP2 modules.

    After a no-grad forward the root keeps its gathered parameters; without this the next forward
    would silently read the old weights. A module that is not sharded is left alone.
    """
    if not torch.distributed.is_initialized():
        return
    for m in module.modules():
        drop = getattr(m, "reshard", None)
        if callable(drop):
            drop()
