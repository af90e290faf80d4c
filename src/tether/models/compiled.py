"""A model's repeated layers, compiled for scoring and for the update.

One layer is compiled and serves all: they differ in their weights alone, which are inputs of the
compiled code. That costs seconds where a whole model costs a minute, and sizes of batches are
symbols in it, so a new one compiles nothing.
Rollouts never come here: an engine compiles its own step.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

BACKEND = "inductor"


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The blocks that transformers itself names as the units of a model."""
    names = set(getattr(module, "_no_split_modules", None) or ())
    return [m for m in module.modules() if type(m).__name__ in names]


@contextmanager
def compiled_layers(module: nn.Module, known: MutableMapping[Any, Any]) -> Iterator[int]:
    """Within, the blocks of `module` run compiled; yields how many. known: what was compiled
    before, by class."""
    held = []
    for layer in layers_of(module):
        if "forward" in vars(layer):  # somebody else has replaced it
            continue
        layer.forward = functools.partial(_of(layer, known), layer)
        held.append(layer)
    try:
        yield len(held)
    finally:
        for layer in held:
            del layer.forward


def _of(layer: nn.Module, known: MutableMapping[Any, Any]) -> Callable[..., Any]:
    cls = type(layer)
    if cls not in known:
        known[cls] = torch.compile(own_code(cls.forward), dynamic=True, backend=BACKEND)
    f: Callable[..., Any] = known[cls]
    return f


def own_code(f: Any) -> Any:
    """The same function under a code object of its own: the compiler counts recompilations per code
    object, and would leave the ninth kind of input uncompiled."""
    copy = types.FunctionType(
        f.__code__.replace(), f.__globals__, f.__name__, f.__defaults__, f.__closure__
    )
    copy.__kwdefaults__ = f.__kwdefaults__
    return copy
