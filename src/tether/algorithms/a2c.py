"""A2C: one step along the policy gradient, each token's return against the critic's value.

    loss = - A log pi(a | s) + vf_coef (V - R)² / 2 - ent_coef H
    A = R - V with R the return (gae_lambda 1), from GAE otherwise

PPO without ratio and clip: after the one step the samples are thrown away.

Source: Mnih et al. 2016, arXiv 1602.01783 (its synchronous form); defaults as in RL4LMs@97df0bd and
Stable Baselines3 where nothing else is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tether.algorithms.base import Algorithm
from tether.core.losses import log_ratio, off_policy, value_loss
from tether.core.masking import weighted_sum
from tether.core.returns import Truncated, actor_critic_targets, whiten_advantages
from tether.types import Experience, LossOutput, Minibatch, Scores, Targets, Total


@dataclass
class A2C(Algorithm):
    """Advantage actor-critic, one step an update. Source: arXiv 1602.01783."""

    lr: float = 1e-5
    """Learning rate, as PPO's here (RL4LMs and Stable Baselines3 have 7e-4 with RMSprop)."""
    gamma: float = 1.0
    """Discount per token (1 as for PPO here; RL4LMs .99)."""
    gae_lambda: float = 1.0
    """GAE lambda; 1 = returns minus values (RL4LMs, Stable Baselines3)."""
    vf_coef: float = 1.0
    """Weight of half the squared value error (RL4LMs' .5 of the whole one). With a separate critic
    only its gradient clip can feel it."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus, reward units per nat (RL4LMs 0; the paper's games .01)."""
    normalize_advantages: bool = False
    """Mean 0 and variance 1 over the real tokens of each optimizer step (off in RL4LMs)."""
    truncated: Truncated = "end"
    """What a completion cut at the length limit is: `end`, the horizon of the task, or `bootstrap`,
    the value after the last token follows (see PPO)."""

    needs_values: ClassVar[bool] = True
    needs_entropy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._in_unit("gamma", "gae_lambda")
        self._not_negative("vf_coef")
        self._one_of("truncated", "end", "bootstrap")

    def advantages(self, experience: Experience, total: Total) -> Targets:
        return actor_critic_targets(experience, self.gamma, self.gae_lambda, self.truncated)

    def prepare(self, minibatch: Minibatch, total: Total) -> Minibatch:
        return whiten_advantages(minibatch, total) if self.normalize_advantages else minibatch

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Metrics: policy_loss, value_loss, entropy (nats per token), and how far the policy is
        from the one that wrote (0 in the first step)."""
        w, t = minibatch.weights, minibatch.targets
        assert t.returns is not None, "A2C trains a critic: its targets have returns"
        policy = -weighted_sum(w, t.advantages * fresh.logprobs)
        value = weighted_sum(w, value_loss(fresh.values, t.returns))
        entropy = weighted_sum(w, fresh.entropy)
        with torch.no_grad():
            old = minibatch.experience.old.logprobs
            metrics = {
                "policy_loss": policy.detach(),
                "value_loss": value.detach(),
                "entropy": entropy.detach(),
                **off_policy(w, log_ratio(fresh.logprobs, old, t.mask)),
            }
        return LossOutput(policy + self.vf_coef * value - self.ent_coef * entropy, metrics)
