"""Filtered supervised: the initial model writes, the best share is kept, the policy imitates it.

    loss = - log p(completion | prompt) of the best share of the initial model's completions

The control for every method that samples from the moving policy: the same number of completions and
of rewards, but all of them from where the run started.

Source: one `grow` step of ReST, Gulcehre et al. 2023, arXiv 2308.08998, spread over the updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.core.advantages import best_rows, group_mean_std, rank_in_group, sequence_rewards
from tether.core.masking import weighted_sum
from tether.types import Experience, Learner, LossOutput, Minibatch, Scores, Targets, Total


@dataclass
class FilteredSupervised(Algorithm):
    """Supervised training on the initial model's best completions. Source: arXiv 2308.08998."""

    lr: float = 1e-5
    """Learning rate, as for `supervised` here."""
    group_size: int = 4
    """Completions of each prompt."""
    writer: str = "initial"
    """Who writes: the initial weights, or a set that a tether keeps."""
    share: float = 0.25
    """Share of the update's completions that trains, rounded up; .25 trains as many as the best of
    4. Equal rewards at the threshold: the earlier ones."""
    per_prompt: bool = False
    """Keep the share of each prompt's completions instead of all prompts' together, where prompts
    that always earn much would crowd out the others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise UserError(
                f"algorithm.share must be above 0 and below 1, not {self.share:g}: it is what the"
                " filter keeps"
            )
        if self.greedy and self.group_size > 1:
            raise UserError(
                "algorithm.greedy: the completions of a prompt would all be the same; leave it"
                " false or set algorithm.group_size to 1"
            )
        if self.per_prompt:
            self._needs_siblings()
        self.kept: dict[str, float] = {}
        """Counts of the last update, for its record line."""

    def advantages(self, experience: Experience, total: Total) -> Targets:
        """Only the mask says what trains. Rewards are the shaped ones."""
        reward, real = sequence_rewards(experience)
        if self.per_prompt:
            group = experience.rollout.group
            _, _, size = group_mean_std(reward, group, real)
            room = (size * self.share - 1e-6).ceil()
            best = real & (rank_in_group(reward, group, real) < room)
        else:
            best = best_rows(reward, real, self.share, total)
        self.kept = {
            "update/sequences_kept": float(total(best.sum().float())),
            "update/reward_kept.mean": float(
                total(torch.where(best, reward, 0.0).sum()) / total(best.sum().float()).clamp(min=1)
            ),
        }
        return Targets(torch.ones_like(experience.rewards), None, experience.mask & best[:, None])

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Of the free log-probs (temperature 1, whole vocabulary). Metric: nll, nats per token."""
        nll = -weighted_sum(minibatch.weights, fresh.free_logprobs)
        return LossOutput(nll, {"nll": nll.detach()})

    def update(self, learner: Learner, experience: Experience, targets: Targets) -> None:
        learner.log.update(self.kept)
        super().update(learner, experience, targets)
