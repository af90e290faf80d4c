"""A linear layer with one adapter, in three matrix products that read and write as little as they
can: y = W x + b, then y += scale * B (A x) where y lies.

peft computes the adapter in the type of its weights, and adds it to a copy of y: with fp32 adapters
beside bf16 weights 10 bytes a number of x and 30 a number of y are read and written, where 2 and 4
do. Everything that this layer does not do (several adapters, dropout, variants, quantised layers,
hooks that keep y) is left to peft's own.

Source of the formula: Hu et al. 2021, arXiv 2106.09685, section 4.1.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules.module import _has_any_global_hook


class AdaptedLinear(Linear):
    """peft's layer with another forward pass; `adopt` makes one of it."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """x [..., in] -> [..., out]."""
        name = None if args or kwargs else self._plain(x)
        if name is None:
            out: Tensor = super().forward(x, *args, **kwargs)
            return out
        rows = x.reshape(-1, x.shape[-1])
        y: Tensor = self.base_layer(rows)
        inner = linear(rows, self.lora_A[name].weight)
        # in place: nothing else has y, and a linear layer's backward pass does not read it
        y = y.addmm_(inner, self.lora_B[name].weight.t(), alpha=float(self.scaling[name]))
        return y.view(*x.shape[:-1], y.shape[-1])

    def _plain(self, x: Tensor) -> str | None:
        """The name of the one adapter that is added as above; None = as peft does it."""
        base, names = self.base_layer, self.active_adapters
        if self.disable_adapters or self.merged or len(names) != 1 or x.dim() < 2 or x.is_meta:
            return None
        name: str = names[0]
        if name not in self.lora_A or name in self.lora_variant:
            return None
        parts = (base, self.lora_A[name], self.lora_B[name])
        if not all(type(m) is nn.Linear and not _watched(m) for m in parts) or _watched():
            return None
        if parts[1].bias is not None or parts[2].bias is not None:
            return None
        weights = [m.weight for m in parts]
        alike = all(w.dtype == x.dtype and not hasattr(w, "to_local") for w in weights)
        silent = type(self.lora_dropout[name]) is nn.Identity
        return name if alike and silent and not torch.is_autocast_enabled(x.device.type) else None


def _watched(module: nn.Module | None = None) -> bool:
    """Whether somebody else is given what the module (any module) computes, or computes it."""
    if module is None:
        return _has_any_global_hook()
    hooks = (
        module._forward_hooks, module._forward_pre_hooks,
        module._backward_hooks, module._backward_pre_hooks,
    )  # fmt: skip
    return any(hooks) or "forward" in vars(module)


def adopt(adapted: nn.Module) -> int:
    """Let the layers of a peft model that can be such be such. Returns how many are."""
    count = 0
    for module in adapted.modules():
        if type(module) is Linear and type(module.base_layer) is nn.Linear:
            module.__class__ = AdaptedLinear
            count += 1
    return count
