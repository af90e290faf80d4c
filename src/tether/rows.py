"""What every type with rows shares: rows are cut, and sent to a device, in all its tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor


class Rows:
    """Mixin: every tensor field has rows first, and `rows(index)` slices all of them."""

    def rows(self, index: Tensor) -> Self:
        return self._rows(_Index(index))

    def _rows(self, index: _Index) -> Self:
        return replace(self, **{k: _cut(v, index) for k, v in vars(self).items()})  # type: ignore[type-var]

    def to(self, device: torch.device | str) -> Self:
        """The same rows on another device."""
        return replace(self, **{k: _send(v, device) for k, v in vars(self).items()})  # type: ignore[type-var]


class _Index:
    """Row numbers, sent once to each device that holds something, and without a wait for it: an
    ordinary copy from CPU memory lets the host wait until the device has caught up."""

    def __init__(self, index: Tensor) -> None:
        self._first, self._on = index, {index.device: index}

    def on(self, device: torch.device) -> Tensor:
        if device not in self._on:
            here = self._first
            if device.type == "cuda" and not here.is_cuda:
                here = here.pin_memory()
            self._on[device] = here.to(device, non_blocking=here.is_pinned())
        return self._on[device]


def _cut(value: Any, index: _Index) -> Any:
    if isinstance(value, Tensor):
        return value[index.on(value.device)]
    if isinstance(value, Rows):
        return value._rows(index)
    if isinstance(value, dict):
        return {k: _cut(v, index) for k, v in value.items()}
    return value


def _send(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Rows):
        return value.to(device)
    if isinstance(value, dict):
        return {k: _send(v, device) for k, v in value.items()}
    return value
