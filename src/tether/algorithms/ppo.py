"""PPO: clipped ratio, GAE, value loss, entropy bonus, early stop on the KL to the old policy.

    loss = - min(A r, A clip(r, 1 - c, 1 + c)) + vf_coef (V - R)² / 2 - ent_coef H
    r = pi(a | s) / pi_old(a | s),  A and R from GAE, A normalised over the optimizer step

Source: Schulman et al. 2017, arXiv 1707.06347; defaults as in openai/lm-human-preferences and TRL's
PPO (0.4 to 0.25), which RL4LMs@97df0bd and Stable Baselines3 share where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from tether.algorithms.base import Algorithm
from tether.core.losses import clipped_policy_loss, off_policy, value_loss
from tether.core.masking import weighted_sum
from tether.core.returns import Truncated, actor_critic_targets, whiten_advantages
from tether.types import Experience, LossOutput, Minibatch, Scores, Targets, Total

STOP_FACTOR = 1.5
"""An update stops at 1.5 target_kl: OpenAI's Spinning Up, kept by Stable Baselines3 and TRL."""


@dataclass
class PPO(Algorithm):
    """Proximal policy optimisation with a critic. Source: arXiv 1707.06347."""

    lr: float = 1e-5
    """Learning rate. TRL's StackLLaMA run has 1.41e-5; RL4LMs' IMDB table has 1e-6 with 5,000
    optimizer steps of 64 tokens."""
    epochs: int = 4
    """Passes over one rollout (lm-human-preferences, TRL; RL4LMs 5)."""
    minibatches: int = 4
    """Optimizer steps in one epoch."""
    gamma: float = 1.0
    """Discount per token (lm-human-preferences, TRL; RL4LMs .99)."""
    gae_lambda: float = 0.95
    """GAE lambda (lm-human-preferences, TRL, RL4LMs)."""
    clip_range: float = 0.2
    """c of the policy ratio (lm-human-preferences, TRL, RL4LMs)."""
    clip_range_value: float | None = None
    """Clip of the critic's step in units of the return; None = off (lm-human-preferences and TRL
    .2; RL4LMs off)."""
    vf_coef: float = 0.1
    """Weight of half the squared value error (lm-human-preferences, TRL; RL4LMs' .5 of the whole
    squared error is 1.0 here). With a separate critic only its gradient clip can feel it."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus, reward units per nat (0 in all three)."""
    target_kl: float | None = None
    """Stop the update when KL(old || policy) (k3, nats per token, this optimizer step) passes 1.5
    times this; None = never (TRL's StackLLaMA run has .1)."""
    normalize_advantages: bool = True
    """Mean 0 and variance 1 over the real tokens of each optimizer step, all ranks (RL4LMs; TRL
    over the whole rollout)."""
    truncated: Truncated = "end"
    """What a completion cut at the length limit is. end: the limit is the horizon of the task, the
    score counts for what was written, nothing follows (lm-human-preferences, TRL, RL4LMs).
    bootstrap: the value after the last token follows; for rewards that would go on beyond the
    limit. With a score on the last token it pays the score again and values grow without bound."""

    needs_values: ClassVar[bool] = True
    needs_entropy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._in_unit("gamma", "gae_lambda")
        self._above_zero("clip_range", "clip_range_value", "target_kl")
        self._one_of("truncated", "end", "bootstrap")

    def advantages(self, experience: Experience, total: Total) -> Targets:
        """GAE over the tokens that the writer sampled."""
        return actor_critic_targets(experience, self.gamma, self.gae_lambda, self.truncated)

    def prepare(self, minibatch: Minibatch, total: Total) -> Minibatch:
        return whiten_advantages(minibatch, total) if self.normalize_advantages else minibatch

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Metrics: policy_loss, value_loss, entropy (nats per token), kl_old.k3_nats_per_token,
        clip_fraction (share of tokens that the clip holds), ratio_error (mean |r - 1|)."""
        w, t, old = minibatch.weights, minibatch.targets, minibatch.experience.old
        assert t.returns is not None, "PPO trains a critic: its targets have returns"
        logprobs = torch.where(t.mask, fresh.logprobs, 0.0)
        old_logprobs = torch.where(t.mask, old.logprobs, 0.0)
        per_token, _, clipped = clipped_policy_loss(
            logprobs, old_logprobs, t.advantages, self.clip_range
        )
        policy = weighted_sum(w, per_token)
        value = weighted_sum(
            w, value_loss(fresh.values, t.returns, old.values, self.clip_range_value)
        )
        entropy = weighted_sum(w, fresh.entropy)
        with torch.no_grad():
            metrics = {
                "policy_loss": policy.detach(),
                "value_loss": value.detach(),
                "entropy": entropy.detach(),
                "clip_fraction": weighted_sum(w, clipped.float()),
                **off_policy(w, logprobs - old_logprobs),
            }
        return LossOutput(policy + self.vf_coef * value - self.ent_coef * entropy, metrics)

    def stop(self, metrics: Mapping[str, float]) -> bool:
        return (
            self.target_kl is not None
            and metrics["kl_old.k3_nats_per_token"] > STOP_FACTOR * self.target_kl
        )
