"""Environments of the tests, by `file.py:Class`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tether.tasks.environment import Environment, Episode, Step


@dataclass
class TwoTurns(Environment):
    """Asks twice; pays the share of characters before 'd' in both answers, once, at the end."""

    ask: str = " and?"
    """What stands between the answers."""

    def start(self, row: dict[str, Any], prompt: Any) -> Any:
        return prompt + " longer" * (len(prompt) % 3)  # prompts of another width than the data's

    def after(self, episode: Episode) -> Step:
        if len(episode.turns) < 2:
            return Step(done=False, context=self.ask)
        text = "".join(episode.turns) or "~"
        return Step(reward=sum(c < "d" for c in text) / len(text))
