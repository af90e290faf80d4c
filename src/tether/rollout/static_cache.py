"""Keys and values at fixed addresses, for models of transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class FixedLayer(CacheLayerMixin):
    """One layer's keys and values [B,K,L,D]; a step writes row `now` and returns all of them."""

    is_sliding = False
    is_compileable = True

    def __init__(self, keys: Tensor, values: Tensor, now: Tensor) -> None:
        self.keys, self.values, self.now = keys, values, now
        self.is_initialized = True
        self.dtype, self.device = keys.dtype, keys.device

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """They exist from the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.now, key_states)
        self.values.index_copy_(2, self.now, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, *args: Any) -> tuple[int, int]:
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        return 0  # positions are given by whoever steps

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class FixedCache(Cache):
    """`layers` of one model."""

    def __init__(self, layers: list[FixedLayer]) -> None:
        super().__init__(layers=layers)

    @classmethod
    def like(cls, cache: Any, rows: int, length: int, now: Tensor) -> FixedCache:
        """Room for `rows` rows of `length` tokens, shaped as a prompt's cache. The layers lie in
        one block, keys and values of a layer side by side."""
        shapes = [(x.keys.shape, x.values.shape) for x in cache.layers]
        first = cache.layers[0].keys
        layers = []
        for k, v in shapes:
            keys = first.new_zeros((rows, k[1], length, k[3]))
            values = first.new_zeros((rows, v[1], length, v[3]))
            layers.append(FixedLayer(keys, values, now))
        return cls(layers)

    @torch.no_grad()
    def take(self, cache: Any, rows: Tensor) -> None:
        """Keys and values of prompts, row `rows[b]` of `cache` into row b."""
        for mine, theirs in zip(self.layers, cache.layers, strict=True):
            width = theirs.keys.shape[2]
            mine.keys[:, :, :width].copy_(theirs.keys.index_select(0, rows))
            mine.values[:, :, :width].copy_(theirs.values.index_select(0, rows))

    @property
    def bytes(self) -> int:
        return sum(x.keys.nbytes + x.values.nbytes for x in self.layers)
