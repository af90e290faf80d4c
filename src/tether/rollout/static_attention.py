"""Attention of one new token over keys and values at fixed addresses: for a decoding step that a
CUDA graph repeats.

Rows are padded left, so row b attends to the cache from `start[b]` to `now` and to nothing else;
there is no mask tensor, keys are never repeated for grouped queries, and what lies beyond `now` is
not read. A Triton kernel on CUDA, plain torch elsewhere (the same numbers, for tests).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without
    triton = None

NAME = "tether_static"
REFUSED = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask")
"""What some models hand to their attention and this one does not do."""


@dataclass
class Span:
    """Where a step reads: start [B] int64, now [1] int64 (the cache row of the newest token)."""

    start: Tensor
    now: Tensor


class Unsupported(Exception):
    """A model whose decoding step cannot be captured; the message is the reason."""


_SPAN: list[Span] = []


@contextmanager
def attending(config: Any, span: Span) -> Iterator[None]:
    """Within, models of this configuration attend over static keys and values."""
    before = config._attn_implementation
    _SPAN.append(span)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _SPAN.pop()


def static_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [B,H,1,D], key and value [B,K,L,D] -> [B,1,H,D]."""
    for name in REFUSED:
        if kwargs.get(name) is not None:
            raise Unsupported(f"its attention uses {name}")
    span, scale = _SPAN[-1], query.shape[-1] ** -0.5 if scaling is None else scaling
    one = attend if query.is_cuda and triton is not None else attend_in_torch
    return one(query[:, :, 0], key, value, span.start, span.now, scale)[:, None], None


AttentionInterface.register(NAME, static_attention)


def attend_in_torch(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor, now: Tensor, scale: float
) -> Tensor:
    """q [B,H,D], k and v [B,K,L,D] -> [B,H,D]; softmax in fp32."""
    b, h, d = q.shape
    at = torch.arange(k.shape[2], device=k.device)
    there = (at >= start[:, None]) & (at <= now)
    x = (q.view(b, k.shape[1], -1, d) @ k.transpose(2, 3)).float() * scale
    p = x.masked_fill(~there[:, None, None], float("-inf")).softmax(-1)
    return (p.to(v.dtype) @ v).reshape(b, h, d)


if triton is not None:

    @triton.jit
    def _attend(
        q, k, v, out, start, now, scale, q_row, q_head, k_row, k_head, k_token,
        GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, DIM: tl.constexpr,
        BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        b, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
        scale = tl.cast(scale, tl.float32)  # a compiler may hand it over in double precision
        first, last = tl.load(start + b), tl.load(now) + 1
        r, d = tl.arange(0, ROWS), tl.arange(0, DIM)
        wide = d < D
        ours = (r < GROUP)[:, None] & wide[None, :]
        queries = tl.load(
            q + b * q_row + (head * GROUP + r)[:, None] * q_head + d[None, :], mask=ours, other=0.0
        )
        most = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, DIM], tl.float32)
        base = b * k_row + head * k_head
        for i in range(first // BLOCK * BLOCK, last, BLOCK):
            n = i + tl.arange(0, BLOCK)
            there = (n >= first) & (n < last)
            at = base + n[:, None] * k_token + d[None, :]
            inside = there[:, None] & wide[None, :]
            keys = tl.load(k + at, mask=inside, other=0.0)
            x = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
            x = tl.where(there[None, :], x, float("-inf"))
            new = tl.maximum(most, tl.max(x, 1))
            p = tl.exp(x - new[:, None])
            shrink = tl.exp(most - new)
            values = tl.load(v + at, mask=inside, other=0.0)
            total = total * shrink + tl.sum(p, 1)
            acc = acc * shrink[:, None]
            acc += tl.dot(p.to(values.dtype), values, input_precision=PRECISION)
            most = new
        acc = acc / total[:, None]
        heads = tl.num_programs(1) * GROUP
        tl.store(
            out + (b * heads + head * GROUP + r)[:, None] * D + d[None, :],
            acc.to(out.dtype.element_ty), mask=ours,
        )  # fmt: skip


def attend(q: Tensor, k: Tensor, v: Tensor, start: Tensor, now: Tensor, scale: float) -> Tensor:
    """`attend_in_torch` as one kernel: a program a row and key head."""
    b, h, d = q.shape
    heads = k.shape[1]
    group = h // heads
    out = torch.empty((b, h, d), dtype=q.dtype, device=q.device)
    _attend[(b, heads)](
        q, k, v, out, start, now, scale,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), k.stride(2),
        GROUP=group, ROWS=max(16, 1 << math.ceil(math.log2(group))), D=d,
        DIM=max(16, 1 << math.ceil(math.log2(d))), BLOCK=16, PRECISION="ieee", num_warps=1,
    )  # fmt: skip
    return out
