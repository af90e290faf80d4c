"""Lengths that stay clear of a fault of cuDNN's attention.

With an attention mask, which a padded batch has, its backward pass on an H100 or H200 gives NaN
where the keys are half a tile more than whole tiles of 128 and a row's scores are all below about
-88: the other half of the tile is scored 0 instead of not at all (torch 2.11 to 2.13,
pytorch/pytorch issue 196678). Such a pass gets a few masked places more. To switch that attention
off instead would have to hold in the backward pass (recomputed activations) and in what compilers
have kept on disk, where nobody looks at the switch.
"""

from __future__ import annotations

from typing import Any

import torch

TILE = 128
"""Keys that the kernel takes at once."""
STEP = 8
"""Masked places more: kernels want widths of a multiple of it."""
DEVICES = ("cuda",)


def spoilt(length: int) -> bool:
    """Whether cuDNN's gradient over so many keys may be NaN."""
    return length % TILE == TILE // 2


def extra_places(length: int, device: torch.device, config: Any, room: int | None = None) -> int:
    """Masked places that a pass over so many keys gets in addition.

    config: of the model; torch's kernels are in none but those whose attention is `sdpa`.
    room: positions that it has, where masked places take some; without room there are none.
    """
    kind = getattr(config, "_attn_implementation", None)
    if device.type not in DEVICES or kind != "sdpa" or not spoilt(length):
        return 0
    return STEP if room is None or length + STEP <= room else 0
