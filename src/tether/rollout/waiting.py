"""A decoding step that reads a number of the device cannot be recorded. Seen on any device."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tether.rollout.static_attention import Unsupported

WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}
"""What the host waits for: a number, and a tensor whose size depends on its contents."""


class NoWaiting(TorchDispatchMode):
    """Within, an operation that the host would wait for raises Unsupported."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model = model

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WAITS:
            name = func.name().removeprefix("aten::")
            raise Unsupported(f"a step of {self.model} waits for the device ({name})")
        return func(*args, **(kwargs or {}))
