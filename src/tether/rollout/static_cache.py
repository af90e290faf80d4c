"""Keys and values at fixed addresses, for models of transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache


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

    def get_seq_length(self) -> Any:
        return self.now  # [1] on the device: models add it to the positions of a step

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class EncoderLayer(FixedLayer):
    """Keys and values of an encoder's states: written with the prompts, then only read."""

    def get_seq_length(self) -> int:
        return int(self.keys.shape[2])


class FixedCache(Cache):
    """`layers` of one model."""

    def __init__(self, layers: list[FixedLayer]) -> None:
        super().__init__(layers=layers)

    @classmethod
    def like(
        cls, cache: Any, rows: int, length: int, now: Tensor, kind: type[FixedLayer] = FixedLayer
    ) -> FixedCache:
        """Room for `rows` rows of `length` tokens, with the heads and sizes of a prompt's cache."""
        layers = []
        for x in cache.layers:
            keys, values = (
                t.new_zeros((rows, t.shape[1], length, t.shape[3])) for t in (x.keys, x.values)
            )
            layers.append(kind(keys, values, now))
        return cls(layers)

    @torch.no_grad()
    def take(self, cache: Any, rows: Tensor) -> None:
        """Keys and values of prompts, row `rows[b]` of `cache` into row b."""
        for mine, theirs in zip(self.layers, cache.layers, strict=True):
            width = theirs.keys.shape[2]
            mine.keys[:, :, :width].copy_(theirs.keys.index_select(0, rows))
            mine.values[:, :, :width].copy_(theirs.values.index_select(0, rows))


class Kept:
    """What a reader keeps of its prompts and tokens, as the model wants it handed over."""

    def __init__(self, cache: Any, rows: int, length: int, now: Tensor) -> None:
        self.cross: FixedCache | None = None
        if not isinstance(cache, EncoderDecoderCache):
            self.tokens = FixedCache.like(cache, rows, length, now)
            self.handed: Any = self.tokens
            return
        self.tokens = FixedCache.like(cache.self_attention_cache, rows, length, now)
        wide = cache.cross_attention_cache.layers[0].keys.shape[2]
        if wide == length:
            raise ValueError("the two caches must differ in length")
        self.cross = FixedCache.like(cache.cross_attention_cache, rows, wide, now, EncoderLayer)
        self.handed = EncoderDecoderCache(self.tokens, self.cross)
        self.handed.is_updated = dict.fromkeys(range(len(self.cross.layers)), True)

    def take(self, cache: Any, rows: Tensor) -> None:
        if self.cross is None:
            self.tokens.take(cache, rows)
        else:
            self.tokens.take(cache.self_attention_cache, rows)
            self.cross.take(cache.cross_attention_cache, rows)
