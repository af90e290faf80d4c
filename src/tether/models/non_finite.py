"""Where numbers were lost: the first layer of a pass that gives NaN or infinity (B36, B37).

A message far from the cause sends people to the learning rate when a dtype overflowed, so whoever
finds logits that are not finite runs the row once more and asks each layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tether.models.language_model import LanguageModel
from tether.types import Sequences


def first_non_finite(lm: LanguageModel, prompt: Tensor, completion: Tensor) -> str:
    """In words, for the end of a message: the layer, and whether its weights or its activations are
    at fault; empty where the pass is finite. prompt: [P] real ids; completion: [T]."""
    found: list[tuple[str, nn.Module]] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, _: Any, out: Any) -> None:
            if not found and any(not bool(torch.isfinite(t).all()) for t in _tensors(out)):
                found.append((name, module))

        return hook

    # inner modules finish first, so the first report is of the innermost layer
    handles = [m.register_forward_hook(look(n)) for n, m in lm.core.named_modules() if n]
    ids, said = prompt[None], completion[None]
    try:
        with lm.quiet():
            lm.forward(
                Sequences(ids, torch.ones_like(ids).bool(), said, torch.ones_like(said).bool())
            )
    finally:
        for h in handles:
            h.remove()
    if not found:
        return ""
    name, module = found[0]
    broken = [n for n, p in module.named_parameters() if not bool(torch.isfinite(p).all())]
    if broken:
        return f"; the weights '{name}.{broken[0]}' are not finite"
    dtype = str(lm.dtype).removeprefix("torch.")
    return f"; the first such activation ({dtype}) leaves the layer '{name}'"


def _tensors(out: Any) -> list[Tensor]:
    """Floating tensors of a layer's output."""
    if isinstance(out, Tensor):
        return [out] if out.is_floating_point() else []
    if isinstance(out, dict):
        out = tuple(out.values())
    if isinstance(out, tuple | list):
        return [t for v in out if isinstance(v, Tensor) for t in _tensors(v)]
    return []
