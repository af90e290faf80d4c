"""Maximum likelihood on completions that somebody else wrote.

    loss = - log p(completion | prompt), mean over tokens

Whether only the completion or the whole text counts is the task's matter: with `data.text` and
`data.prompt_tokens` the prompt is the part that does not train.

Source: teacher forcing; RL4LMs@97df0bd trains its supervised baselines the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tether.algorithms.base import Algorithm
from tether.core.masking import weighted_sum
from tether.types import Experience, LossOutput, Minibatch, Scores, Targets, Total


@dataclass
class Supervised(Algorithm):
    """Supervised fine-tuning on the reference completions. Source: maximum likelihood."""

    lr: float = 1e-5
    """Learning rate (RL4LMs' IMDB table: 1e-5 constant)."""
    writer: str = "data"
    """The data writes; a set of weights here makes it imitation of that set."""

    uses_rewards: ClassVar[bool] = False
    samples: ClassVar[bool] = False

    def advantages(self, experience: Experience, total: Total) -> Targets:
        return Targets(torch.ones_like(experience.rewards), None, experience.mask)

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Of the free log-probs (temperature 1, whole vocabulary). Metric: nll, nats per token."""
        nll = -weighted_sum(minibatch.weights, fresh.free_logprobs)
        return LossOutput(nll, {"nll": nll.detach()})
