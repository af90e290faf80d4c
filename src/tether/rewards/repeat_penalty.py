"""Penalty for answering with the instruction instead of following it.

    score = -1 if the completion contains a phrase of the list, or the prompt's own concepts in
            their order as one string; else 0

Source: allenai/RL4LMs@97df0bd, reward.py, `CommonGenPenaltyShapingFunction`, which adds it to
METEOR and SPIDEr on CommonGen: prefix "generate a sentence with: ", words "generate" and
"sentence". A run adds it by its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tether.config.errors import UserError
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch


@dataclass
class RepeatPenalty(Reward):
    """-1 where the completion echoes the prompt's concepts or a phrase of the instruction."""

    prefix: str = "generate a sentence with: "
    """Instruction before the concepts in the prompt."""
    suffix: str = "."
    """What the prompt ends with after the concepts."""
    phrases: list[str] = field(default_factory=lambda: ["generate", "sentence"])
    """Further text whose occurrence costs, compared without case."""
    penalty: float = 1.0
    """What it costs."""

    def check(self) -> None:
        if not self.prefix or not all(self.phrases):
            raise UserError("repeat_penalty: prefix and phrases must not be empty")

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        pairs = zip(batch.prompt_texts, batch.texts, strict=True)
        return [-self.penalty if self._echoes(p, t) else 0.0 for p, t in pairs]

    def _echoes(self, prompt: str, text: str) -> bool:
        _, found, given = prompt.partition(self.prefix)
        given = given.strip().removesuffix(self.suffix).strip()
        costly = [self.prefix.strip(), *self.phrases, *([given] if found and given else [])]
        return any(phrase.lower() in text.lower() for phrase in costly)
