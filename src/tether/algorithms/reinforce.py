"""REINFORCE: the return that follows each token, minus a baseline, times the gradient of its log
probability.

    loss = - (G_t - b) log pi(a_t | s_t) - ent_coef H,    G_t = sum of gamma^k r_{t+k}

with b nothing, a moving mean of the returns, or a critic's value V(s_t), which then adds
vf_coef (V - G)² / 2.

Source: Williams 1992 (Machine Learning 8, reinforcement comparison); the mean over everything
written so far as a baseline for language models: Ahmadian et al. 2024, arXiv 2402.14740, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.core.losses import log_ratio, off_policy, value_loss
from tether.core.masking import masked_sum, weighted_sum
from tether.core.returns import discounted
from tether.types import Experience, LossOutput, Minibatch, Scores, Targets, Total


@dataclass
class Reinforce(Algorithm):
    """Monte-Carlo policy gradient with a baseline. Source: Williams 1992."""

    lr: float = 1e-5
    """Learning rate, as PPO's here."""
    gamma: float = 1.0
    """Discount per token (1: the return of a completion is its reward)."""
    baseline: Literal["moving", "learned", "none"] = "moving"
    """What returns are compared with: the mean of earlier returns, a critic, or nothing."""
    baseline_decay: float | None = None
    """Share of the moving baseline that stays at each update; null = mean over everything written
    so far, each token weighing the same (arXiv 2402.14740)."""
    vf_coef: float = 1.0
    """Weight of half the squared value error (`baseline: learned`); with a separate critic only its
    gradient clip can feel it."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus, reward units per nat."""

    needs_entropy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._in_unit("gamma")
        self._not_negative("vf_coef")
        self._one_of("baseline", "moving", "learned", "none")
        if self.baseline_decay is not None:
            if self.baseline != "moving":
                raise UserError(
                    f"algorithm.baseline_decay has no effect with baseline {self.baseline}: leave"
                    " it out or set algorithm.baseline to moving"
                )
            self._in_unit("baseline_decay")
        self.level = 0.0
        """The moving baseline, from the updates before this one."""
        self.tokens = 0.0
        """Tokens in it (with a decay: 0 until there has been an update)."""

    @property
    def needs_values(self) -> bool:  # type: ignore[override]
        """A critic is there if it is the baseline."""
        return self.baseline == "learned"

    def advantages(self, experience: Experience, total: Total) -> Targets:
        """The first update has nothing earlier to compare with and takes its own mean."""
        mask = experience.mask
        returns = discounted(experience.rewards, mask, self.gamma)
        if self.baseline == "learned":
            values = experience.old.values
            return Targets(torch.where(mask, returns - values, 0.0), returns, mask)
        level = self._moving(returns, mask, total) if self.baseline == "moving" else 0.0
        return Targets(torch.where(mask, returns - level, 0.0), None, mask)

    def _moving(self, returns: Tensor, mask: Tensor, total: Total) -> float:
        n = float(total(mask.sum().float()))
        if n == 0:
            return self.level
        mean = float(masked_sum(returns, mask, total)) / n
        before = self.level if self.tokens else mean
        share = n / (self.tokens + n) if self.baseline_decay is None else 1 - self.baseline_decay
        self.level = before + share * (mean - before)
        self.tokens += n
        return before

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Metrics: policy_loss, entropy (nats per token), value_loss (learned baseline), and how
        far the policy is from the one that wrote (0 in the first step)."""
        w, t = minibatch.weights, minibatch.targets
        policy = -weighted_sum(w, t.advantages * fresh.logprobs)
        entropy = weighted_sum(w, fresh.entropy)
        loss = policy - self.ent_coef * entropy
        old = minibatch.experience.old.logprobs
        metrics = {
            "policy_loss": policy.detach(),
            "entropy": entropy.detach(),
            **off_policy(w, log_ratio(fresh.logprobs, old, t.mask)),
        }
        if t.returns is not None:
            value = weighted_sum(w, value_loss(fresh.values, t.returns))
            loss = loss + self.vf_coef * value
            metrics["value_loss"] = value.detach()
        return LossOutput(loss, metrics)
