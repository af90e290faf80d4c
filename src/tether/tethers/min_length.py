"""Minimum length: stop tokens are outside the allowed set before a number of tokens.

    legal(a, t) = t >= tokens  or  a is no stop token

The allowed set counts in scoring too, so ratios stay 1 on the first minibatch; suppressing EOS in
sampling alone is the commonest cause of a negative KL (B09).

Source: `min_length` of RL4LMs@97df0bd's generation settings, as a rule of the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.tethers.base import Place, Tether
from tether.types import Depth


@dataclass
class MinLength(Tether):
    """No stop token before a number of tokens. Source: RL4LMs@97df0bd's `min_length`."""

    tokens: int = 8
    """Tokens of a completion before a stop token is legal."""
    stop_ids: tuple[int, ...] = ()
    """Ids of the stop tokens; empty = the model's own (EOS and `sampling.stop`)."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"sampling"})
    decides_stops: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UserError(f"min_length.tokens must be at least 1, not {self.tokens}")
        self.stops: list[int] = list(self.stop_ids)
        """Stop tokens in force."""

    def meet(self, stops: tuple[int, ...]) -> None:
        if not self.stop_ids:
            self.stops = list(stops)

    def reads(self) -> Mapping[str, Depth]:
        return {"policy": "sampling"}

    def recomputable(self) -> bool:
        return True  # of the policy's logits only the shape is read

    def allow(self, logits: Mapping[str, Tensor], position: Tensor) -> Tensor:
        if not self.stops:
            raise UserError("min_length knows no stop token: set min_length.stop_ids")
        policy = logits["policy"]
        token = torch.arange(policy.shape[-1], device=policy.device)
        stop = torch.zeros_like(token, dtype=torch.bool)
        for i in self.stops:
            stop = stop | (token == i)
        return ~((position[:, None] < self.tokens) & stop)
