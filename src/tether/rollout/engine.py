"""The engine protocol: prompts in, chunks of rollouts out, so that rewards can start early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from tether.config.run import SamplingSettings
from tether.models.language_model import LanguageModel
from tether.types import Constraint, Rollout, Sequences


@dataclass(frozen=True, kw_only=True)
class Engine(ABC):
    """Writes completions. Settings are dataclass fields of the subclass."""

    def prepare(self, lm: LanguageModel) -> None:  # noqa: B027 - most engines have nothing to do
        """Called once with a model just loaded, before anyone else holds its parameters' memory."""

    @abstractmethod
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
        """Chunks of `sampling.chunk` rows, in order.

        prompts: Sequences whose completion is empty [B,0]. row, group: [B], carried along.
        key: seeds are a function of it, the rank and the chunk; the program's RNG is not touched.
        constraints: AND of what they allow; EOS stays legal unless a constraint's class says
        `decides_stops = True` (a minimum length). companions: set name -> resident model that a
        constraint reads.

        What a rollout holds: ids exactly as sampled (B04), real tokens up to and including the
        first stop token (B02), `finished` judged by the stop tokens in force (B03), log-probs of
        the distribution that `sampling.scored` names, and the allowed sets as bits where anything
        narrowed the vocabulary, `scored` is `sampled` and `bits_fit`; None otherwise.
        """


def bits_fit(sampling: SamplingSettings, rows: int, vocabulary: int) -> bool:
    """Whether the allowed sets of one call of `generate` are within `sampling.allowed_bytes`, by
    the most it could write: the answer does not depend on what is sampled."""
    return rows * sampling.max_new_tokens * -(-vocabulary // 8) <= sampling.allowed_bytes


def join(chunks: Sequence[Rollout], pad: int) -> Rollout:
    """Consecutive chunks of one batch as one rollout, completions padded right to the longest.

    Chunks share the prompts' width. Bits of a padded position are 0: it is outside the mask.
    """
    width = max(c.sequences.completion.shape[1] for c in chunks)

    def grow(x: Tensor, fill: int = 0) -> Tensor:
        room = width - x.shape[1]
        return torch.cat([x, x.new_full((x.shape[0], room, *x.shape[2:]), fill)], 1) if room else x

    def every(name: str) -> Any:
        values = [getattr(c, name) for c in chunks]
        if not isinstance(values[0], Tensor):
            return values[0]
        return torch.cat(values if values[0].dim() == 1 else [grow(v) for v in values])

    parts = [c.sequences for c in chunks]
    sequences = Sequences(
        torch.cat([s.prompt for s in parts]),
        torch.cat([s.prompt_mask for s in parts]),
        torch.cat([grow(s.completion, pad) for s in parts]),
        torch.cat([grow(s.completion_mask) for s in parts]),
    )
    rest = {f.name: every(f.name) for f in fields(Rollout) if f.name != "sequences"}
    return Rollout(sequences, **rest)
