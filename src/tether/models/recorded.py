"""Forward and backward pass of a decoder over one shape of microbatch, recorded as CUDA graphs.

A small microbatch costs more launching than computing; a recorded one launches twice. Weights are
read where they are, so what writes them in place (optimizer, resets, swaps) is seen. The gradients
come in the recording's own memory and hold until its next pass: take them before (an optimizer
that sums them apart from the weights does). No graph of an earlier pass with gradients may be alive
while a new shape is recorded: it would tie the recording to another stream.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tether.core.gate import alone
from tether.models.attention import spoilt

SHAPES = 10
"""Recordings of a kind, with or without gradients, that stay per model: there are nine widths from
N to 4 N (`filled_to`), and a last microbatch may have fewer rows. The one longest unused is
dropped."""
WIDTH = 16
"""Sequences are filled up to a multiple of this at least, so that shapes repeat."""


def filled_to(length: int) -> int:
    """The width to which a sequence is filled up: four between a power of two and the next, so that
    microbatches of all lengths from N to 4 N (of as many rows) keep their recordings. Making one
    takes five passes. Filled are less than a quarter of the places, or less than `WIDTH`; and
    `WIDTH` more where attention cannot do the width."""
    step = max(WIDTH, (1 << (length - 1).bit_length()) // 8)
    width = length + -length % step
    return width + WIDTH if spoilt(width) else width


class _States(nn.Module):
    """ids, real and position [B,L] -> last hidden states [B,L,H]."""

    def __init__(self, decoder: nn.Module, layers: Callable[[], AbstractContextManager[Any]]):
        super().__init__()
        self.decoder = decoder
        self._layers = layers

    def forward(self, ids: Tensor, real: Tensor, position: Tensor) -> Tensor:
        at = torch.arange(ids.shape[1], device=ids.device)
        before = at[None, :] <= at[:, None]
        # A place that is filled up sees itself: one that sees nothing would be NaN, and NaN times
        # a gradient of 0 is NaN.
        sees = (before & real[:, None, None, :]) | (at[None, :] == at[:, None])
        with self._layers():
            out = self.decoder(
                input_ids=ids, attention_mask=sees, position_ids=position, use_cache=False
            )
        states: Tensor = out.last_hidden_state
        return states


class Recorded:
    """Recordings of one model."""

    def __init__(
        self,
        core: Any,
        layers: Callable[[], AbstractContextManager[Any]],
        accepts: frozenset[str],
    ) -> None:
        """layers: context in which the decoder's layers run as they shall."""
        self._core, self._layers = core, layers
        self._shapes: OrderedDict[tuple[int, int, bool], Callable[..., Tensor]] = OrderedDict()
        self._pools: dict[bool, Any] = {}
        self.why_not = self._why_not(accepts)
        """Why this model's passes cannot be recorded; None where they can."""

    def _why_not(self, accepts: frozenset[str]) -> str | None:
        every = list(self._core.parameters())
        config = self._core.config
        sliding = any("sliding" in t for t in getattr(config, "layer_types", None) or ())
        if not every[0].is_cuda:
            return f"it needs CUDA, the model is on {every[0].device}"
        if getattr(config, "is_encoder_decoder", False):
            return "an encoder-decoder model has two lengths"
        if any(hasattr(p, "to_local") for p in every):
            return "the weights are sharded"
        if getattr(config, "_attn_implementation", "") != "sdpa":
            return f"the attention is {getattr(config, '_attn_implementation', None)}, not sdpa"
        if sliding and getattr(config, "sliding_window", None):
            return "the model attends within a sliding window"
        if "position_ids" not in accepts:
            return f"{type(self._core).__name__} takes no position_ids"
        if any(getattr(m, "gradient_checkpointing", False) for m in self._core.modules()):
            return "activations are recomputed (model.gradient_checkpointing)"
        return None

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """`input_ids`, `attention_mask` and `position_ids` [B,L] -> [B,L,H], with gradients where
        they are enabled; then the caller takes them before the next call with gradients."""
        ids, real = inputs["input_ids"], inputs["attention_mask"].bool()
        rows, length = ids.shape
        width = filled_to(length)
        more = width - length
        filled = tuple(pad(x, (0, more)) for x in (ids, real, inputs["position_ids"]))
        grad = torch.is_grad_enabled()
        key = (rows, width, grad)
        if key not in self._shapes:
            self._shapes[key] = self._record(filled, grad)
            kin = [k for k in self._shapes if k[-1] is grad]
            if len(kin) > SHAPES:
                del self._shapes[kin[0]]
        self._shapes.move_to_end(key)
        out = self._shapes[key](*filled)[:, :length]
        return out if grad else out.clone()  # the next pass writes over it

    def _record(self, sample: tuple[Tensor, ...], grad: bool) -> Callable[..., Tensor]:
        # A pass without gradients may come between a forward pass and its backward pass.
        if grad not in self._pools:
            self._pools[grad] = torch.cuda.graph_pool_handle()
        one = _States(self._core.get_decoder(), self._layers)
        one.train(self._core.training)
        with alone():
            made: Any = torch.cuda.make_graphed_callables(
                one, tuple(x.clone() for x in sample), allow_unused_input=True,
                pool=self._pools[grad],
            )  # fmt: skip
        call: Callable[..., Tensor] = made
        return call
