"""Pairs of texts through a sequence classifier: what BLEURT and SummaC read.

Support of `bleurt` and `summac`; no metric of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.core.weights import fingerprint
from tether.metrics.base import installed


class PairModel:
    """A sequence classification model that reads two texts."""

    def __init__(self, module: Any, tokenizer: Any, device: str = "cpu") -> None:
        self.module = module.eval().to(device)
        self.tokenizer = tokenizer
        self.device = torch.device(device)
        names = module.config.id2label
        self.labels = [str(names[i]) for i in range(int(module.config.num_labels))]
        positions = getattr(module.config, "max_position_embeddings", None)
        self.limit = min(int(positions or 512), 512)

    @cached_property
    def version(self) -> str:
        """What computes, and the hash of the weights: of a path they may change."""
        return f"{installed('transformers')}, {weights_version(self.module)}"

    def logits(self, pairs: Sequence[tuple[str, str]], batch_size: int) -> Tensor:
        """[pairs, labels] fp32 on the CPU; longer pairs lose the end of the longer text."""
        order = sorted(range(len(pairs)), key=lambda i: sum(map(len, pairs[i])))  # less padding
        out = torch.zeros(len(pairs), len(self.labels))
        with torch.no_grad():  # gradient mode is per thread
            for start in range(0, len(order), batch_size):
                index = order[start : start + batch_size]
                given = self.tokenizer(
                    [pairs[i][0] for i in index], [pairs[i][1] for i in index],
                    truncation="longest_first", max_length=self.limit, padding=True,
                    return_tensors="pt",
                ).to(self.device)  # fmt: skip
                out[index] = self.module(**given).logits.float().cpu()
        return out


def weights_version(module: Any, rounded: torch.dtype | None = None) -> str:
    """`weights HASH`: 12 hexadecimal digits of all weights and buffers of a model.

    rounded: type that they are rounded to before, for a reader that loads one checkpoint in this
    type or in a wider one, as the device is.
    """
    return f"weights {fingerprint(module, rounded)[:12]}"


def load_pair_model(metric: str, path: str, device: str, example: str) -> PairModel:
    """From a folder or hub id. Raises UserError naming metric and path."""
    if not path:
        raise UserError(f"{metric} needs `model`: the folder or hub id of {example}")
    import os

    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = os.path.expanduser(path)
    place = folder if os.path.isdir(folder) else path
    try:
        module = AutoModelForSequenceClassification.from_pretrained(place)
        tokenizer = AutoTokenizer.from_pretrained(place)
    except Exception as e:
        raise UserError(f"{metric}: {path} cannot be read ({type(e).__name__}: {e})") from e
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return PairModel(module, tokenizer, device)
