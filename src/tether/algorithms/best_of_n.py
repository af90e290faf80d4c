"""Best of n: each update, maximum likelihood on the best of n own completions of each prompt.

    loss = - log p(completion | prompt) of the `keep` completions with the highest reward

The decoding baseline of the same name takes the best of n without training.

Source: Dong et al. 2023 (RAFT), arXiv 2304.06767.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.core.advantages import count_groups, flat_groups, rank_in_group, sequence_rewards
from tether.core.masking import weighted_sum
from tether.types import Experience, Learner, LossOutput, Minibatch, Scores, Targets, Total


@dataclass
class BestOfN(Algorithm):
    """Supervised training on the best own completions. Source: arXiv 2304.06767."""

    lr: float = 1e-5
    """Learning rate, as for `supervised` here."""
    group_size: int = 4
    """n: completions of each prompt, of which most only serve the choice."""
    keep: int = 1
    """Completions of each prompt that train (the paper 1). Equal rewards: the earlier one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._needs_siblings()
        if not 1 <= self.keep < self.group_size:
            raise UserError(
                f"algorithm.keep must be from 1 to group_size - 1 = {self.group_size - 1}, not"
                f" {self.keep}: a choice leaves something out"
            )
        self.groups: dict[str, float] = {}
        """Counts of the last update, for its record line."""

    def advantages(self, experience: Experience, total: Total) -> Targets:
        """Only the mask says what trains. Rewards are the shaped ones."""
        reward, real = sequence_rewards(experience)
        group = experience.rollout.group
        best = real & (rank_in_group(reward, group, real) < self.keep)
        flat = flat_groups(reward, group, real)
        self.groups = {
            "update/groups": count_groups(group, real, total),
            "update/groups_flat": count_groups(group, real & flat, total),
            "update/sequences_kept": float(total(best.sum().float())),
        }
        return Targets(torch.ones_like(experience.rewards), None, experience.mask & best[:, None])

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Of the free log-probs (temperature 1, whole vocabulary). Metric: nll, nats per token."""
        nll = -weighted_sum(minibatch.weights, fresh.free_logprobs)
        return LossOutput(nll, {"nll": nll.detach()})

    def update(self, learner: Learner, experience: Experience, targets: Targets) -> None:
        learner.log.update(self.groups)
        super().update(learner, experience, targets)
