"""Sampling under a run's masks with plain transformers, after training.

    masks = load_masks("runs/nlpo")
    model = AutoModelForCausalLM.from_pretrained("runs/nlpo/policy")
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    model.generate(**inputs, do_sample=True, logits_processor=[masks.processor(**inputs)])

The exported policy alone is not masked. The processor runs the mask policy (`runs/nlpo/sets/`)
beside it, with a cache of its own and, for encoder-decoder models, its own reading of the prompt,
and takes out what the run's tethers forbid. transformers applies temperature, top-k and top-p after
it, as the run did. Length limits and temperature are the caller's.

Source: tether; RL4LMs@97df0bd exports the policy and drops the mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor

from tether.config.errors import UserError
from tether.config.parts import build
from tether.config.run import RunSettings
from tether.config.settings import read
from tether.core.sampling import legal_tokens
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model
from tether.rollout.companion import Companion
from tether.train.final import sets_folder
from tether.types import Constraint, Sequences


@dataclass(frozen=True)
class Masks:
    """The constraints of a finished run and the models that they read."""

    constraints: Sequence[Constraint]
    models: Mapping[str, LanguageModel]
    stops: tuple[int, ...]

    def processor(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> LogitsProcessor:
        """For one call of `generate` with these prompts; what else a tokenizer gives is ignored.

        input_ids: [B,P], padded as the model wants it (decoder-only: left).
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if not bool(mask.any(1).all()):
            raise UserError("every prompt needs at least one token")
        empty = input_ids[:, :0]
        return _Processor(self, Sequences(input_ids, mask.bool(), empty, empty.bool()))


class _Processor(LogitsProcessor):
    """Stateful: the mask policies' caches grow with the completions."""

    def __init__(self, masks: Masks, prompts: Sequences) -> None:
        self.masks, self.prompts = masks, prompts
        self.beside: dict[str, Companion] = {}
        self.read: Tensor | None = None
        self.start = 0

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.read is None:
            self.start = input_ids.shape[1]
        if not self._continues(input_ids):
            self.beside = self._companions(len(input_ids))
        self.read = input_ids.clone()
        position = torch.full_like(input_ids[:, 0], input_ids.shape[1] - self.start)
        views = {"policy": scores.float()}
        views |= {k: c.logits(input_ids).to(scores.device) for k, c in self.beside.items()}
        stops = torch.tensor(self.masks.stops, device=scores.device)
        allowed, _ = legal_tokens(self.masks.constraints, views, position, stops)
        return scores.masked_fill(~allowed, -torch.inf)

    def _continues(self, input_ids: Tensor) -> bool:
        """False at the start, and where a beam search has put other rows in these places."""
        last = self.read
        if last is None or len(last) != len(input_ids) or last.shape[1] >= input_ids.shape[1]:
            return False
        return torch.equal(last, input_ids[:, : last.shape[1]])

    def _companions(self, rows: int) -> dict[str, Companion]:
        n = len(self.prompts.prompt)
        if rows % n:
            raise UserError(
                f"generate has {rows} rows and the processor was made for {n} prompts: make one"
                " with `processor(**inputs)` for each call"
            )
        s = self.prompts.rows(torch.arange(n).repeat_interleave(rows // n))
        out = {}
        for name, lm in self.masks.models.items():
            with lm.quiet():
                out[name] = Companion(lm, s.to(lm.device))
        return out


def load_masks(run: str | Path, device: str = "auto") -> Masks:
    """Masks of a finished run with `checkpoint.export`.

    Raises UserError where the run has no tether that narrows sampling, or was not exported.
    """
    run = Path(run)
    settings = read(run)
    if not isinstance(settings, RunSettings):
        raise UserError(f"{run} is a classifier: it writes no text")
    tethers = {
        k: build("tether", part, f"tethers.{k}")
        for k, part in settings.tethers.items()
        if part is not None
    }
    constraints = [t for t in tethers.values() if "sampling" in t.acts_on]
    if not constraints:
        raise UserError(f"{run} has no tether that narrows sampling: use {run / 'policy'} as it is")
    policy = run / "policy"
    if not policy.exists():
        raise UserError(f"{run} has no exported policy (checkpoint.export): nothing to load")
    eos = GenerationConfig.from_pretrained(policy).eos_token_id
    stops = tuple(eos) if isinstance(eos, list) else (eos,)
    models = {}
    for name in sorted({n for t in constraints for n, d in t.reads().items() if d == "sampling"}):
        if name == "policy":
            continue
        plain = replace(
            settings.model, path=str(sets_folder(policy, name)), device=device, adapter=None,
            lora=None, gguf_file=None, tokenizer=None, random_weights=False, revision=None,
        )  # fmt: skip
        models[name] = load_language_model(plain)
    for t in constraints:
        t.meet(stops)
    return Masks(constraints, models, stops)
