"""TRPO: one natural-gradient step an update, as long as the exact KL to the old policy allows.

    minimise  L(w) = - A pi(a | s) / pi_old(a | s) + tethers' losses
    subject to  KL(pi_old || pi) <= target_kl

    x = F^-1 grad L by conjugate gradient, F the Fisher matrix + damping
    w <- w - shrink^k sqrt(2 target_kl / xᵀ F x) x  with the first k at which L has fallen and the
    exact KL, over the vocabulary and on every token of the update, keeps the bound

Where no k does, the weights are put back bit for bit: nothing has moved, no minibatch is ticked,
and the log counts it. The critic is fitted after the step by regression.

Memory: the KL and the Fisher product go through microbatches (twice microbatch x tokens x
vocabulary numbers, and their graph), and up to five fp32 copies of the trained weights are held.
Time: a product is a forward and two backward passes over `fisher_rows`, cg_steps + 1 times; each
length tried is three forward passes over the batch.

Source: Schulman et al. 2015, arXiv 1502.05477; numbers as in RL4LMs@97df0bd, which has those of
stable-baselines3-contrib.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.core.losses import MAX_LOG_RATIO, log_ratio, off_policy, value_loss
from tether.core.masking import weighted_sum
from tether.core.returns import Truncated, actor_critic_targets, whiten_advantages
from tether.core.trust_region import conjugate_gradient, step_length
from tether.types import Experience, Learner, LossOutput, Minibatch, Scores, Targets, Total


@dataclass
class TRPO(Algorithm):
    """Trust region policy optimisation with a critic. Source: arXiv 1502.05477."""

    lr: float = 1e-5
    """Learning rate of the critic alone, unless `critic.lr` says another; the policy's step is as
    long as `target_kl` allows (RL4LMs 1e-3)."""
    gamma: float = 1.0
    """Discount per token (1 as for PPO here; RL4LMs .99)."""
    gae_lambda: float = 0.95
    """GAE lambda (RL4LMs)."""
    target_kl: float = 0.01
    """The bound: KL(old || new) in nats per token of the update's batch, exact, of the distribution
    that samples (the paper, RL4LMs)."""
    cg_steps: int = 15
    """Fisher-vector products of the conjugate gradient (RL4LMs; OpenAI baselines 10)."""
    damping: float = 0.1
    """Added to the Fisher matrix's diagonal (RL4LMs)."""
    fisher_rows: int | None = None
    """Completions, on each rank, that the Fisher products use; null = all. OpenAI baselines
    takes every fifth. The bound is checked on all of them whatever this says."""
    backtracks: int = 10
    """Step lengths tried (RL4LMs)."""
    shrink: float = 0.8
    """Each length is this share of the one before (RL4LMs; OpenAI baselines .5)."""
    critic_epochs: int = 10
    """Passes of the critic over the batch, after the policy's step (RL4LMs)."""
    critic_minibatches: int = 4
    """Optimizer steps of the critic in one pass (as PPO here)."""
    normalize_advantages: bool = True
    """Mean 0 and variance 1 over the real tokens of the batch (RL4LMs). The step's length does not
    depend on it; the weight of tethers' losses beside the reward does."""
    truncated: Truncated = "end"
    """What a completion cut at the length limit is: `end`, the horizon of the task, or `bootstrap`,
    the value after the last token follows (see PPO)."""

    needs_values: ClassVar[bool] = True
    one_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "minibatches"):
            if getattr(self, name) != 1:
                raise UserError(
                    f"algorithm.{name} must be 1 for TRPO, which takes one step on the whole batch;"
                    f" for the critic set algorithm.critic_{name}"
                )
        self._in_unit("gamma", "gae_lambda")
        self._above_zero("target_kl", "cg_steps", "fisher_rows", "backtracks")
        self._above_zero("critic_epochs", "critic_minibatches")
        self._not_negative("damping")
        if not 0 < self.shrink < 1:
            raise UserError(f"algorithm.shrink must be above 0 and below 1, not {self.shrink:g}")
        self._one_of("truncated", "end", "bootstrap")

    def advantages(self, experience: Experience, total: Total) -> Targets:
        return actor_critic_targets(experience, self.gamma, self.gae_lambda, self.truncated)

    def prepare(self, minibatch: Minibatch, total: Total) -> Minibatch:
        return whiten_advantages(minibatch, total) if self.normalize_advantages else minibatch

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """The surrogate. Metrics: policy_loss; how far the policy is from the one that wrote."""
        w, t = minibatch.weights, minibatch.targets
        d = log_ratio(fresh.logprobs, minibatch.experience.old.logprobs, t.mask)
        policy = -weighted_sum(w, t.advantages * d.clamp(max=MAX_LOG_RATIO).exp())
        return LossOutput(policy, {"policy_loss": policy.detach(), **off_policy(w, d)})

    def critic_loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Half the squared error. Metric: value_loss."""
        returns = minibatch.targets.returns
        assert returns is not None, "TRPO trains a critic: its targets have returns"
        value = weighted_sum(minibatch.weights, value_loss(fresh.values, returns))
        return LossOutput(value, {"value_loss": value.detach()})

    def update(self, learner: Learner, experience: Experience, targets: Targets) -> None:
        """The policy's step, then the critic. `epoch` ticks either way, `minibatch` where the
        policy has moved."""
        batch = learner.whole(experience, targets)
        before = learner.accumulate(batch)["loss"]
        direction, length = self._direction(learner, experience, targets)
        moved = self._search(learner, batch, before, direction, length)
        learner.note({"line_search_failed": float(not moved)})
        if moved:
            learner.stepped()
        else:
            learner.discard()
        for epoch in range(self.critic_epochs):
            for mb in learner.minibatches(self.critic_minibatches, experience, targets, epoch):
                learner.accumulate(mb, self.critic_loss, tethers=False)
                learner.step(policy=False)
        learner.epoch_done()

    def _direction(
        self, learner: Learner, experience: Experience, targets: Targets
    ) -> tuple[list[Tensor], float]:
        """x and the longest step along it in the quadratic model; 0 where there is no gradient."""
        gradient = learner.gradient()
        batch = learner.whole(*self._some_rows(experience, targets))

        def product(v: list[Tensor]) -> list[Tensor]:
            fisher = learner.fisher(batch, v)
            return [f.add_(x, alpha=self.damping) for f, x in zip(fisher, v, strict=True)]

        x, residual = conjugate_gradient(product, gradient, learner.dot, self.cg_steps)
        norm = learner.dot(gradient, gradient) ** 0.5
        learner.note({"grad_norm_policy": norm, "cg_residual": residual})
        return x, step_length(learner.dot(x, product(x)), self.target_kl) if norm > 0 else 0.0

    def _some_rows(self, experience: Experience, targets: Targets) -> tuple[Experience, Targets]:
        """Rows at even distances, so that every prompt's completions are among them."""
        n = len(experience.score)
        if self.fisher_rows is None or self.fisher_rows >= n:
            return experience, targets
        index = torch.arange(self.fisher_rows) * n // self.fisher_rows
        return experience.rows(index), targets.rows(index)

    def _search(
        self, learner: Learner, batch: Minibatch, before: float, x: list[Tensor], length: float
    ) -> bool:
        """True where the policy has moved to a place inside the bound with a lower loss; else every
        weight is what it was."""
        if length == 0:
            return False
        old = learner.weights()
        for k in range(self.backtracks):
            learner.shift(x, -length * self.shrink**k)
            kl = learner.kl_from(old, batch)
            if kl <= self.target_kl:
                now = learner.accumulate(batch, gradient=False)["loss"]
                if now < before:
                    learner.note({"kl_old.exact_nats_per_token": kl, "line_search_tries": k + 1.0})
                    learner.note({"surrogate_gain": before - now})
                    return True
            learner.restore(old)
        return False
