"""Attention of one new token over keys and values at fixed addresses: for a decoding step that a
CUDA graph repeats.

Row b attends to the cache from `start[b]` to before `end[b]` and to nothing else: there is no mask
tensor, keys are never repeated for grouped queries, and what lies beyond `end` is not read. A
Triton kernel on CUDA, plain torch elsewhere (the same numbers, for tests).
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
REFUSED = ("sliding_window", "softcap", "s_aux", "head_mask")
"""What some models hand to their attention and this one does not do."""


@dataclass
class Span:
    """Which rows of the cache a token sees: start and end [B] int64, end exclusive."""

    start: Tensor
    end: Tensor


@dataclass
class Spans:
    """Of the tokens so far, and of an encoder's states. The two caches differ in length, which is
    how attention tells them apart."""

    tokens: Span
    encoder: Span | None = None
    encoder_length: int = -1
    calls: int | None = None
    """How often attention came here, while somebody counts."""


class Unsupported(Exception):
    """A model whose decoding step cannot be captured; the message is the reason."""


_SPANS: list[Spans] = []


@contextmanager
def attending(model: torch.nn.Module, spans: Spans) -> Iterator[None]:
    """Within, the attention of a model is over static keys and values."""
    # a decoder may hold a copy of its model's configuration
    held = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    before = {k: c._attn_implementation for k, c in held.items()}
    _SPANS.append(spans)
    for c in held.values():
        c._attn_implementation = NAME
    try:
        yield
    finally:
        for k, c in held.items():
            c._attn_implementation = before[k]
        _SPANS.pop()


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
    spans, scale = _SPANS[-1], query.shape[-1] ** -0.5 if scaling is None else scaling
    if spans.calls is not None:
        spans.calls += 1
    span = spans.tokens
    if spans.encoder is not None and key.shape[2] == spans.encoder_length:
        span = spans.encoder
    bias = kwargs.get("position_bias")
    if bias is not None:  # [1,H,1,L]: relative positions, equal for all rows
        bias = bias[0, :, 0].contiguous()
    one = attend if query.is_cuda and triton is not None else attend_in_torch
    return one(query[:, :, 0], key, value, span, scale, bias)[:, None], None


AttentionInterface.register(NAME, static_attention)


def attend_in_torch(
    q: Tensor, k: Tensor, v: Tensor, span: Span, scale: float, bias: Tensor | None = None
) -> Tensor:
    """q [B,H,D], k and v [B,K,L,D], bias [H,L] or None -> [B,H,D]; softmax in fp32."""
    b, h, d = q.shape
    at = torch.arange(k.shape[2], device=k.device)
    there = (at >= span.start[:, None]) & (at < span.end[:, None])
    x = (q.view(b, k.shape[1], -1, d).float() @ k.float().transpose(2, 3)) * scale
    if bias is not None:
        x = x + bias.float().view(k.shape[1], -1, k.shape[2])
    x = x.masked_fill(~there[:, None, None], float("-inf"))
    # Rounded where fused attention rounds, so that a bf16 model scores what it samples: shares of
    # the largest before they are divided by their sum.
    p = (x - x.amax(-1, keepdim=True)).exp()
    out = (p.to(v.dtype).float() @ v.float()) / p.sum(-1, keepdim=True)
    return out.to(v.dtype).reshape(b, h, d)


if triton is not None:

    @triton.jit
    def _attend(
        q, k, v, out, start, end, bias, scale, q_row, q_head, k_row, k_head, k_token, b_head,
        GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, DIM: tl.constexpr,
        BLOCK: tl.constexpr, PRECISION: tl.constexpr, BIASED: tl.constexpr,
    ):  # fmt: skip
        b, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
        scale = tl.cast(scale, tl.float32)  # a compiler may hand it over in double precision
        first, last = tl.load(start + b), tl.load(end + b)
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
            if BIASED:
                place = (head * GROUP + r)[:, None] * b_head + n[None, :]
                shift = tl.load(bias + place, mask=(r < GROUP)[:, None] & there[None, :], other=0.0)
                x += shift.to(tl.float32)
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


def attend(
    q: Tensor, k: Tensor, v: Tensor, span: Span, scale: float, bias: Tensor | None = None
) -> Tensor:
    """`attend_in_torch` as one kernel: a program a row and key head."""
    b, h, d = q.shape
    heads = k.shape[1]
    group = h // heads
    out = torch.empty((b, h, d), dtype=q.dtype, device=q.device)
    _attend[(b, heads)](
        q, k, v, out, span.start, span.end, q if bias is None else bias, scale,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), k.stride(2),
        0 if bias is None else bias.stride(0),
        GROUP=group, ROWS=max(16, 1 << math.ceil(math.log2(group))), D=d,
        DIM=max(16, 1 << math.ceil(math.log2(d))), BLOCK=64, PRECISION="ieee",
        BIASED=bias is not None, num_warps=2, num_stages=2,
    )  # fmt: skip
    return out
