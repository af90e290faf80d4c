"""Reward for words or phrases that a completion contains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tether.config.errors import UserError
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch


@dataclass
class ContainsReward(Reward):
    """Counts `words` in the completion, as whole words."""

    words: list[str] = field(default_factory=list)
    """Words or phrases, compared without case unless `case` is on."""
    mode: Literal["any", "share", "count"] = "any"
    """any: 1 if one occurs. share: share of the listed words that occur. count: all occurrences."""
    case: bool = False
    """Compare upper and lower case as written."""
    absent: bool = False
    """Reward their absence: the score is 1 - score (any, share) or its negative (count)."""

    @property
    def needs_prompts(self) -> bool:
        return False

    def check(self) -> None:
        if not self.words or not all(self.words):
            raise UserError("a contains reward needs `words`: a list of words, none of them empty")

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        flags = 0 if self.case else re.IGNORECASE
        patterns = [re.compile(rf"(?<!\w){re.escape(w)}(?!\w)", flags) for w in self.words]
        return [self._value(text, patterns) for text in batch.texts]

    def _value(self, text: str, patterns: list[re.Pattern[str]]) -> float:
        counts = [len(p.findall(text)) for p in patterns]
        if self.mode == "count":
            return float(-sum(counts) if self.absent else sum(counts))
        share = sum(c > 0 for c in counts) / len(counts)
        value = float(share > 0) if self.mode == "any" else share
        return 1.0 - value if self.absent else value
