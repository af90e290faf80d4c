"""Another model that reads along while the policy writes: its logits at every step, from a cache of
its own."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from tether.models.language_model import LanguageModel, positions
from tether.types import Sequences


class Companion:
    """Steps a resident model beside the policy's `generate`.

    `logits(input_ids)` takes what the policy has so far (prompt included for decoder-only models,
    decoder ids for encoder-decoder ones) and gives [B,V] fp32 before the next token.
    """

    def __init__(self, lm: LanguageModel, prompts: Sequences) -> None:
        self.lm = lm
        self.mask = prompts.prompt_mask
        self.encoder = lm.encode(prompts)
        accepts = inspect.signature(lm.core.forward).parameters
        self.cache_word = "cache" if "cache" in accepts else "past_key_values"
        self.accepts = accepts
        self.cache: Any = None
        self.seen = 0

    @torch.no_grad()
    def logits(self, input_ids: Tensor) -> Tensor:
        ids = input_ids if self.cache is None else input_ids[:, self.seen :]
        inputs: dict[str, Any] = {"use_cache": True, self.cache_word: self.cache}
        if self.encoder is not None:
            inputs["encoder_outputs"] = (self.encoder,)
            inputs["attention_mask"] = self.mask.long()
            inputs["decoder_input_ids"] = ids
        else:
            new = input_ids.shape[1] - self.mask.shape[1]
            grown = torch.ones((len(ids), new), dtype=torch.bool, device=ids.device)
            mask = torch.cat([self.mask, grown], 1)
            inputs["input_ids"], inputs["attention_mask"] = ids, mask.long()
            if "position_ids" in self.accepts:
                inputs["position_ids"] = positions(mask)[:, -ids.shape[1] :]
        if "logits_to_keep" in self.accepts:
            inputs["logits_to_keep"] = 1
        out = self.lm.module(**inputs)
        self.cache = getattr(out, "cache", None) or getattr(out, "past_key_values", None)
        self.seen = input_ids.shape[1]
        last: Tensor = out.logits[:, -1].float()
        return last
