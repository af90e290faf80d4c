"""Adafactor as T5 trains, without asking the device for anything.

Shazeer and Stern 2018, arXiv 1804.04235: factored second moments, updates clipped by their root
mean square, steps relative to the size of a tensor, no first moment. `transformers`' Adafactor
computes the same and compares the size of each tensor with a bound in Python, one wait for the
device a tensor and a step; torch's reads it back too. Here tensors of one shape are updated
together, so that a small model's step is some hundred launches instead of thousands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

DECAY = 0.8
"""The second moments forget as 1 - step^-.8."""
OF_SQUARES, OF_SIZE = 1e-30, 1e-3
"""Least squared gradient, and least size of a tensor (the paper's epsilon 1 and 2)."""
CLIP = 1.0
"""Largest root mean square of an update before the learning rate."""


class Adafactor(torch.optim.Optimizer):
    """Every parameter needs a gradient at every step, and is fp32.

    Args:
        lr: times the root mean square of each tensor.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.steps = 0
        shapes: dict[torch.Size, list[Tensor]] = {}
        for p in (p for g in self.param_groups for p in g["params"]):
            shapes.setdefault(p.shape, []).append(p)
        self.alike = list(shapes.values())
        self.moments: list[tuple[Tensor, ...]] = [_zeros(ps) for ps in self.alike]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of all parameters; a closure is not called."""
        self.steps += 1
        keep = 1.0 - self.steps**-DECAY
        lr = float(self.param_groups[0]["lr"])
        for params, moments in zip(self.alike, self.moments, strict=True):
            grads = torch.stack([p.grad for p in params if p.grad is not None])
            squares = grads.square().add_(OF_SQUARES)
            if len(moments) == 2:
                rows, columns = moments
                rows.lerp_(squares.mean(dim=-1), 1.0 - keep)
                columns.lerp_(squares.mean(dim=-2), 1.0 - keep)
                share = (rows / rows.mean(dim=-1, keepdim=True)).rsqrt_()
                update = grads.mul_(share.unsqueeze(-1)).mul_(columns.rsqrt().unsqueeze(-2))
            else:
                moments[0].lerp_(squares, 1.0 - keep)
                update = grads.mul_(moments[0].rsqrt())
            update.div_((_rms(update) / CLIP).clamp_(min=1.0))
            update.mul_(_rms(torch.stack(params)).clamp_(min=OF_SIZE).mul_(lr))
            for p, u in zip(params, update.unbind(), strict=True):
                p.sub_(u)


def _zeros(params: list[Tensor]) -> tuple[Tensor, ...]:
    """Second moments of tensors of a shape: of rows and columns, or of every number of a vector."""
    like = torch.zeros_like(torch.stack([p.detach() for p in params]))
    return (like[..., 0].clone(), like[..., 0, :].clone()) if like.dim() > 2 else (like,)


def _rms(stacked: Tensor) -> Tensor:
    """Root mean square of each tensor of a stack [n, ...], with as many dimensions."""
    dims = tuple(range(1, stacked.dim()))
    found: Tensor = torch.linalg.vector_norm(stacked, dim=dims, keepdim=True)
    return found / stacked[0].numel() ** 0.5
