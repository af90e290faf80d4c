"""Projections that read the same input, computed as one matrix product without a copy.

`lay_together` puts the weights of q/k/v and of gate/up side by side in memory: the parameters stay
the same objects, now views of one block, and whoever writes them in place (optimizer, resets,
swaps) writes the block. `together` then computes each block at once, for as long as a decoding step
is being recorded. Training and scoring use the modules as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tether.models.head import output_embedding

GROUPS = (
    ("q_proj", "k_proj", "v_proj"),
    ("q", "k", "v"),
    ("query", "key", "value"),
    ("gate_proj", "up_proj"),
    ("wi_0", "wi_1"),
)


@torch.no_grad()
def lay_together(module: nn.Module) -> int:
    """Before anyone else holds the parameters' memory. Returns how many groups lie together."""
    seen: set[int] = set()
    shared = {id(p) for p in _shared(module)}
    count = 0
    for linears in _groups(module):
        params = [p for x in linears for p in (x.weight, x.bias) if p is not None]
        if any(id(p) in seen or id(p) in shared for p in params):
            continue
        seen |= {id(p) for p in params}
        _block([x.weight for x in linears])
        if linears[0].bias is not None:
            _block([x.bias for x in linears])
        count += 1
    _pad_head(module)
    return count


class Together:
    """A context in which groups whose weights lie together are computed at once.

    Made once and entered often: a compiler guards the identity of what it finds on a module, so
    fresh objects in every step would be compiled anew, now and then, in the middle of a recording.
    """

    def __init__(self, module: nn.Module) -> None:
        self.groups = 0
        self._forwards: list[tuple[Any, Any]] = []
        for linears in _groups(module):
            weight = _joined([x.weight for x in linears])
            bias = None if linears[0].bias is None else _joined([x.bias for x in linears])
            if weight is None or (bias is None and linears[0].bias is not None):
                continue
            one = _Together(weight, bias, [x.out_features for x in linears])
            self._forwards.append((linears[0], one.first))
            self._forwards += [(x, _Later(one, n)) for n, x in enumerate(linears[1:], 1)]
            self.groups += 1

    def __enter__(self) -> Together:
        for module, forward in self._forwards:
            module.forward = forward
        return self

    def __exit__(self, *_: object) -> None:
        for module, _forward in self._forwards:
            del module.forward


@dataclass
class _Together:
    weight: Tensor
    bias: Tensor | None
    sizes: list[int]
    outputs: list[Tensor] = field(default_factory=list)

    def first(self, x: Tensor) -> Tensor:
        self.outputs = list(linear(x, self.weight, self.bias).split(self.sizes, -1))
        return self.outputs[0]


class _Later:
    """The others of a group are called with the same input, after the first."""

    def __init__(self, group: _Together, number: int) -> None:
        self.group, self.number = group, number

    def __call__(self, x: Tensor) -> Tensor:
        return self.group.outputs[self.number]


ROWS = 64
"""A vocabulary that is no multiple of this (GPT-2: 50,257) keeps matrix products off the fast
kernels; rows of zeros behind the embedding's own make it one."""


def _pad_head(module: nn.Module) -> None:
    head = output_embedding(module)
    if head is None or len(head.weight) % ROWS == 0:
        return
    weight = head.weight
    block = weight.new_zeros((-(-len(weight) // ROWS) * ROWS, weight.shape[1]))
    block[: len(weight)] = weight.data
    weight.data = block[: len(weight)]


def padded_head(module: nn.Module) -> Tensor | None:
    """The output embedding's weight with the rows behind it, where `lay_together` put some."""
    head = output_embedding(module)
    return None if head is None else padded(head.weight)


def padded(weight: Tensor) -> Tensor | None:
    """An output embedding [V,H] with the rows behind it, or None where there are none."""
    if weight.dim() != 2 or hasattr(weight, "to_local"):
        return None
    rows = -(-len(weight) // ROWS) * ROWS
    ours = weight.untyped_storage().nbytes() == rows * weight.shape[1] * weight.element_size()
    if rows == len(weight) or not ours or weight.storage_offset() or not weight.is_contiguous():
        return None
    view: Tensor = weight.detach().as_strided((rows, weight.shape[1]), weight.stride())
    return view


CROSS = ("EncDecAttention", "encoder_attn", "crossattention")
"""Attention whose keys and values come of another input than its queries."""


def _groups(module: nn.Module) -> Iterator[list[Any]]:
    for path, parent in module.named_modules():
        if path.rsplit(".", 1)[-1] in CROSS:
            continue
        for names in GROUPS:
            found = [getattr(parent, n, None) for n in names]
            if not all(type(x) is nn.Linear for x in found):
                continue
            a = found[0]
            alike = all(
                x.in_features == a.in_features
                and x.weight.dtype == a.weight.dtype
                and x.weight.device == a.weight.device
                and x.weight.requires_grad == a.weight.requires_grad
                and (x.bias is None) == (a.bias is None)
                and not x._forward_hooks
                and not x._forward_pre_hooks
                for x in found
            )
            if alike:
                yield found


def _shared(module: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters that stand in several places (tied weights)."""
    seen: dict[int, int] = {}
    for m in module.modules():
        for p in m._parameters.values():
            if p is not None:
                seen[id(p)] = seen.get(id(p), 0) + 1
    for p in module.parameters():
        if seen[id(p)] > 1:
            yield p


def _block(parts: list[nn.Parameter]) -> None:
    block = torch.cat([p.data for p in parts])
    at = 0
    for p in parts:
        p.data = block[at : at + len(p)]
        at += len(p)


def _joined(parts: list[nn.Parameter]) -> Tensor | None:
    """All of them as one view, or None where they do not follow each other in memory."""
    first, storage = parts[0], parts[0].untyped_storage().data_ptr()
    at = first.storage_offset()
    for p in parts:
        if not p.is_contiguous() or p.untyped_storage().data_ptr() != storage:
            return None
        if p.storage_offset() != at:
            return None
        at += p.numel()
    rows = sum(len(p) for p in parts)
    view: Tensor = first.detach().as_strided((rows, *first.shape[1:]), first.stride())
    return view
