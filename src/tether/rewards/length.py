"""Reward for the length of a completion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tether.config.errors import UserError
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch


@dataclass
class LengthReward(Reward):
    """score = -|length - target| / target, 0 at the target and -1 for nothing; without a target,
    the length itself."""

    target: int | None = None
    """Wanted length; None = longer is better without bound."""
    unit: Literal["tokens", "words", "characters"] = "tokens"
    """Of `target`. Tokens include the stop token."""

    @property
    def needs_prompts(self) -> bool:
        return False

    def check(self) -> None:
        if self.target is not None and self.target < 1:
            raise UserError(f"length reward: target is {self.target}; it must be at least 1")

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        if self.unit == "tokens":
            lengths = [len(x) for x in batch.completion_ids]
        elif self.unit == "words":
            lengths = [len(x.split()) for x in batch.texts]
        else:
            lengths = [len(x) for x in batch.texts]
        if self.target is None:
            return [float(x) for x in lengths]
        return [-abs(x - self.target) / self.target for x in lengths]
