"""Allowed sets found again in scoring, where their bits would not fit the memory budget.

The models that the constraints read are run once over prompt and completion; the sets are those of
sampling up to rounding (a cached pass and a whole one differ in the last bits), so a token at the
edge of a set can fall out of it. The sampled token is therefore put back, and how often that was
needed is counted.

Source: tether; RL4LMs@97df0bd stores tokens x vocabulary instead, and loses what it must.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tether.core.sampling import legal_tokens
from tether.models.language_model import LanguageModel
from tether.types import Constraint, Sequences

PIECE = 2**24
"""Numbers of one sorted piece: 200 MB at work instead of several times the logits."""


class FoundAgain:
    """`types.AllowedSets` of one agent. Right only while the models do not move: within an update,
    for constraints that say `recomputable`."""

    def __init__(
        self,
        constraints: Sequence[Constraint],
        models: Mapping[str, LanguageModel],
        stops: tuple[int, ...],
        min_new_tokens: int = 0,
    ) -> None:
        """models: set name -> resident model that a constraint reads."""
        self.constraints, self.models = constraints, models
        self.stops, self.min_new_tokens = stops, min_new_tokens
        self.begin()

    def begin(self) -> None:
        """A new rollout: count from 0."""
        self._counts: Tensor | None = None

    @property
    def used(self) -> bool:
        """Whether a set was found again since the last `begin`."""
        return self._counts is not None

    def counts(self) -> Tensor:
        return torch.zeros(3) if self._counts is None else self._counts

    @torch.no_grad()
    def sets(self, s: Sequences, logits: Tensor) -> Tensor:
        views = {"policy": logits}
        for name, lm in self.models.items():
            with lm.quiet():
                views[name] = lm.forward(s)[0]
        b, t, v = logits.shape
        flat = {k: x.reshape(b * t, v) for k, x in views.items()}
        position = torch.arange(t, device=logits.device).repeat(b)
        stops = torch.tensor(self.stops, device=logits.device)
        legal = torch.empty((b * t, v), dtype=torch.bool, device=logits.device)
        for i in torch.arange(b * t, device=logits.device).split(max(1, PIECE // v)):
            here = {k: x[i].float() for k, x in flat.items()}
            legal[i] = legal_tokens(
                self.constraints, here, position[i], stops, self.min_new_tokens
            )[0]
        legal = legal.reshape(b, t, v)
        there = legal.gather(2, s.completion[..., None]).squeeze(2)
        legal.scatter_(2, s.completion[..., None], True)
        real = s.completion_mask
        new = torch.stack([real.sum(), (legal.sum(2) * real).sum(), (real & ~there).sum()]).float()
        self._counts = new if self._counts is None else self._counts + new
        return legal
