"""Logits in fp32 from bf16 states and weights.

A bf16 logit of 16 is rounded to 1/8: a log-prob then carries an error of some .03 nats before
anything is computed with it (B08). The matrix product accumulates in fp32 anyway; here it also
returns it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _Product(torch.autograd.Function):
    """x [N,H] @ weight [V,H]^T with an fp32 result; the gradient's products are bf16 again, as
    those of every other layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.mm(x, weight.t(), out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        g = grads[0].to(x.dtype)
        return (
            g @ weight if ctx.needs_input_grad[0] else None,
            g.t() @ x if ctx.needs_input_grad[1] else None,
        )


class _Logits:
    def __init__(self, weight: Tensor, rows: int) -> None:
        self.weight, self.rows = weight, rows

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if torch.is_grad_enabled():
            out: Tensor = _Product.apply(flat, self.weight)
        else:
            out = torch.mm(flat, self.weight.t(), out_dtype=torch.float32)
        return out[:, : self.rows].view(*x.shape[:-1], self.rows)


def output_embedding(module: nn.Module) -> Any:
    """The plain linear layer that makes logits, or None."""
    get = getattr(module, "get_output_embeddings", None)
    head = get() if get is not None else None
    return head if type(head) is nn.Linear and head.bias is None else None


class ExactLogits:
    """A context in which the output embedding of a bf16 model on a GPU gives fp32 logits; elsewhere
    it changes nothing. padded: its weight with rows that are no words behind it.

    Made once, it may be entered often (see `fused.Together`).
    """

    def __init__(self, module: nn.Module, padded: Tensor | None = None) -> None:
        head = output_embedding(module)
        weight = None if head is None else head.weight if padded is None else padded
        self._head: Any = None
        if (
            weight is not None
            and weight.is_cuda
            and weight.dtype != torch.float32
            and not hasattr(weight, "to_local")
        ):
            self._head, self._forward = head, _Logits(weight, head.weight.shape[0])

    def __enter__(self) -> bool:
        if self._head is not None:
            self._head.forward = self._forward
        return self._head is not None

    def __exit__(self, *_: object) -> None:
        if self._head is not None:
            del self._head.forward
