"""RLOO: REINFORCE on whole completions, each against the mean of the others of its prompt.

    loss = - A_i sum over t of log pi(a_t | s_t),    A_i = R_i - mean of R_j over j != i

R is the whole completion's shaped reward, so a `kl` tether stands in it as in the paper. A
completion is one action: its log-probs are summed, whatever its length; completions are averaged.

Source: Ahmadian et al. 2024, arXiv 2402.14740; the clipped form is TRL 1.16's `RLOOTrainer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from tether.algorithms.base import Algorithm
from tether.core.advantages import count_groups, flat_groups, leave_one_out, sequence_rewards
from tether.core.losses import clipped_policy_loss, log_ratio, off_policy, sum_over_tokens
from tether.core.masking import weighted_sum
from tether.types import Experience, Learner, LossOutput, Minibatch, Scores, Targets, Total


@dataclass
class RLOO(Algorithm):
    """REINFORCE with a leave-one-out baseline. Source: arXiv 2402.14740."""

    lr: float = 1e-6
    """Learning rate (TRL's RLOO)."""
    group_size: int = 4
    """Completions of each prompt (the paper compares 2 and 4)."""
    average: Literal["tokens", "sequences"] = "sequences"
    """Every completion weighs the same (the paper); `tokens` lets a completion weigh as many times
    as it has tokens."""
    clip_range: float | None = None
    """null = the plain policy gradient (the paper: the clip hardly ever acts). A number clips the
    ratio of whole completions at 1 +- it, for more than one step on the same samples (TRL .2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._needs_siblings()
        self._above_zero("clip_range")
        self.groups: dict[str, float] = {}
        """Counts of the last update, for its record line."""

    def advantages(self, experience: Experience, total: Total) -> Targets:
        reward, real = sequence_rewards(experience)
        group = experience.rollout.group
        flat = flat_groups(reward, group, real)
        alone = torch.where(flat, 0.0, leave_one_out(reward, group, real))
        self.groups = {
            "update/groups": count_groups(group, real, total),
            "update/groups_flat": count_groups(group, real & flat, total),
        }
        mask = experience.mask
        return Targets(torch.where(mask, alone[:, None], 0.0), None, mask)

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Metrics: policy_loss, and how far the policy is from the one that wrote; with a clip the
        share of completions that it holds."""
        w, t = minibatch.weights, minibatch.targets
        ratio = log_ratio(fresh.logprobs, minibatch.experience.old.logprobs, t.mask)
        metrics = off_policy(w, ratio)
        if self.clip_range is None:
            policy = -weighted_sum(sum_over_tokens(w), t.advantages * fresh.logprobs)
        else:
            whole = ratio.sum(1, keepdim=True).expand_as(ratio)
            per_token, _, clipped = clipped_policy_loss(
                whole, torch.zeros_like(whole), t.advantages, self.clip_range
            )
            policy = weighted_sum(w, per_token)
            metrics["clip_fraction"] = weighted_sum(w, clipped.float())
        metrics["policy_loss"] = policy.detach()
        return LossOutput(policy, metrics)

    def update(self, learner: Learner, experience: Experience, targets: Targets) -> None:
        learner.log.update(self.groups)
        super().update(learner, experience, targets)
