"""First engine: transformers' `generate`, with every sampling field explicit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from tether.config.errors import UserError
from tether.config.run import SamplingSettings
from tether.distributed.seeds import generator
from tether.distributed.total import rank
from tether.models.head import ExactLogits
from tether.models.language_model import LanguageModel
from tether.models.non_finite import first_non_finite
from tether.rollout.companion import Companion
from tether.rollout.engine import Engine, bits_fit
from tether.rollout.sampler import Sampler
from tether.types import Constraint, Rollout, Sequences


@dataclass(frozen=True, kw_only=True)
class HFEngine(Engine):
    """transformers `generate` with a sampler of our own: works for every model that transformers
    can run, encoder-decoder included."""

    cache: Literal["dynamic", "static"] = "dynamic"
    """static: keys and values at fixed addresses and a compiled decoding step (on a GPU 4 to 7
    times faster after the first call; recompiles when the width of the prompts changes)."""

    def generate(
        self,
        lm: LanguageModel,
        prompts: Sequences,
        row: Tensor,
        group: Tensor,
        sampling: SamplingSettings,
        key: tuple[Any, ...],
        constraints: Sequence[Constraint] = (),
        companions: Mapping[str, LanguageModel] | None = None,
        version: int = 0,
        writer: str = "policy",
    ) -> Iterator[Rollout]:
        check_call(lm, prompts, sampling)
        keep = bits_fit(sampling, len(prompts.prompt), lm.vocab_size)
        for number, i in enumerate(torch.arange(len(prompts.prompt)).split(sampling.chunk)):
            rng = generator(*key, "sampling", rank(), number, device=lm.device)
            s = prompts.rows(i).to(lm.device)
            with lm.quiet():
                beside = {k: Companion(c, s) for k, c in (companions or {}).items()}
                stops = torch.tensor(lm.stops, device=lm.device)
                sampler = Sampler(sampling, stops, rng, constraints, beside, keep)
                completion = self._write(lm, s, sampling, sampler)
            mask, finished = real_tokens(completion, stops)

            def layer(b: int, t: int, s: Sequences = s, said: Tensor = completion) -> str:
                return first_non_finite(lm, s.prompt[b][s.prompt_mask[b]], said[b, : t + 1])

            sampler.check(mask, row[i], layer)
            kept = sampler.bits[: completion.shape[1]]
            yield Rollout(
                sequences=Sequences(s.prompt, s.prompt_mask, completion, mask),
                sampled=mask.clone(),
                row=row[i].to(lm.device),
                group=group[i].to(lm.device),
                finished=finished,
                logprobs=torch.where(mask, torch.stack(sampler.logprobs, 1), 0.0),
                allowed=torch.stack(kept, 1) if kept else None,
                policy_version=version,
                writer=writer,
            )

    def _write(
        self, lm: LanguageModel, s: Sequences, sampling: SamplingSettings, sampler: Sampler
    ) -> Tensor:
        config = GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            do_sample=False,  # the sampler has drawn: exactly one candidate is left
            num_beams=1,
            use_cache=True,
            eos_token_id=list(lm.stops),
            pad_token_id=lm.pad,
            decoder_start_token_id=lm.decoder_start if lm.seq2seq else None,
            cache_implementation="static" if self.cache == "static" else None,
        )
        with _no_habits(lm.core), ExactLogits(lm.core):
            ids: Tensor = lm.core.generate(
                input_ids=s.prompt,
                attention_mask=s.prompt_mask.long(),
                generation_config=config,
                logits_processor=LogitsProcessorList([sampler]),
            )
        return ids[:, 1 if lm.seq2seq else s.prompt.shape[1] :].contiguous()


def check_call(lm: LanguageModel, prompts: Sequences, sampling: SamplingSettings) -> None:
    if sampling.temperature <= 0:
        raise UserError(
            f"sampling.temperature = {sampling.temperature:g} must be > 0; "
            "for the likeliest tokens set greedy in the evaluation's sampling"
        )
    if sampling.max_new_tokens < 1 or sampling.min_new_tokens > sampling.max_new_tokens:
        raise UserError(
            f"sampling.min_new_tokens = {sampling.min_new_tokens} and max_new_tokens = "
            f"{sampling.max_new_tokens}: need 0 <= min <= max and max >= 1"
        )
    lengths = prompts.prompt_mask.sum(1)
    if len(lengths) == 0 or int(lengths.min()) == 0:
        raise UserError("every prompt needs at least one token")
    lm.check_length(int(lengths.max()), sampling.max_new_tokens, "a prompt")


def real_tokens(completion: Tensor, stops: Tensor) -> tuple[Tensor, Tensor]:
    """[B,T] ids, [S] stop ids -> mask [B,T] up to and including the first stop, finished [B].

    Judged by the stop tokens alone, never by `id == pad` (B02, B03).
    """
    stop = torch.isin(completion, stops)
    before = stop.long().cumsum(1) - stop.long()
    return before == 0, stop.any(1)


@contextmanager
def _no_habits(core: Any) -> Iterator[None]:
    """Hide the model's own generation_config: transformers fills unset fields from it (forced
    tokens, penalties, lists of EOS)."""
    before = core.generation_config
    core.generation_config = GenerationConfig()
    try:
        yield
    finally:
        core.generation_config = before
