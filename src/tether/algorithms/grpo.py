"""GRPO: PPO's clipped ratio with the other completions of a prompt in place of a critic.

    A_i = (R_i - mean) / (std + 1e-4)  over the completions of the prompt, the same for each token
    loss = - min(A r, A clip(r, 1 - c, 1 + c)),  mean over each completion's tokens, then over all

Options are the choices of its successors: no division by the deviation and a constant instead of
each completion's length (Dr. GRPO, arXiv 2503.20783); a higher upper clip, a mean over all tokens
and prompts without spread left out (DAPO, arXiv 2503.14476); one ratio for the whole completion
(GSPO, arXiv 2507.18071).

KL is a tether's matter: the paper has k3 in the loss with coefficient .04.

Source: Shao et al. 2024 (DeepSeekMath), arXiv 2402.03300, section 4.1; the 1e-4 and the sample
deviation (n - 1) are TRL 1.16's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.core.advantages import (
    batch_std,
    count_groups,
    flat_groups,
    group_mean_std,
    sequence_rewards,
)
from tether.core.losses import (
    MAX_LOG_RATIO,
    clipped_policy_loss,
    log_ratio,
    off_policy,
    sum_over_tokens,
)
from tether.core.masking import weighted_sum
from tether.types import Experience, Learner, LossOutput, Minibatch, Scores, Targets, Total

EPSILON = 1e-4
"""Added to the deviation (TRL)."""


@dataclass
class GRPO(Algorithm):
    """Group-relative policy optimisation. Source: arXiv 2402.03300."""

    lr: float = 1e-6
    """Learning rate (the paper, section 4.2)."""
    group_size: int = 64
    """Completions of each prompt (the paper, section 4.2; TRL 8)."""
    average: Literal["tokens", "sequences"] = "sequences"
    """`sequences`: mean over each completion's tokens, then over completions (the paper). `tokens`:
    mean over all tokens of the optimizer step (DAPO)."""
    constant_length: int | None = None
    """Divide each completion's sum by this many tokens instead of its own length, so that long
    wrong answers are not favoured (Dr. GRPO: the length limit, `sampling.max_new_tokens`)."""
    scale: Literal["std", "batch", "none"] = "std"
    """What rewards minus their group's mean are divided by: the group's deviation (the paper), that
    of all completions of the update, or nothing (Dr. GRPO)."""
    clip_range: float = 0.2
    """Lower clip of the ratio, and the upper one unless `clip_range_high` says otherwise (TRL,
    DAPO; GSPO 3e-4)."""
    clip_range_high: float | None = None
    """Upper clip of the ratio; null = as `clip_range` (DAPO .28; GSPO 4e-4)."""
    ratio: Literal["token", "sequence"] = "token"
    """One ratio a token, or one a completion: exp of the mean log ratio of its tokens (GSPO)."""
    drop_flat_groups: bool = False
    """Leave prompts whose completions all earned the same out of the means, so that they do not
    make the step smaller (DAPO, which also draws new prompts in their place). They are counted in
    the log either way."""
    truncated_importance: float | None = None
    """Weight each token by min(this, policy's probability / the writer's), where another weight set
    writes or the engine's probabilities differ from the scoring's; null = off (TRL 3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._needs_siblings()
        self._above_zero("clip_range", "clip_range_high", "constant_length", "truncated_importance")
        self._one_of("scale", "std", "batch", "none")
        self._one_of("ratio", "token", "sequence")
        if self.constant_length is not None and self.average != "sequences":
            raise UserError(
                "algorithm.constant_length takes the place of each completion's own length: leave"
                " algorithm.average at sequences"
            )
        self.groups: dict[str, float] = {}
        """Counts of the last update, for its record line."""

    def advantages(self, experience: Experience, total: Total) -> Targets:
        """Of the whole completion's shaped reward. A group without spread, or with one completion
        left, gives 0."""
        reward, real = sequence_rewards(experience)
        group, mask = experience.rollout.group, experience.mask
        mean, std, _ = group_mean_std(reward, group, real)
        flat = flat_groups(reward, group, real)
        advantage = torch.where(real & ~flat, reward - mean, 0.0)
        if self.scale == "std":
            advantage = advantage / (std + EPSILON)
        elif self.scale == "batch":
            advantage = advantage / (batch_std(reward, real, total) + EPSILON)
        self.groups = {
            "update/groups": count_groups(group, real, total),
            "update/groups_flat": count_groups(group, real & flat, total),
        }
        kept = mask & ~flat[:, None] if self.drop_flat_groups else mask
        return Targets(torch.where(kept, advantage[:, None], 0.0), None, kept)

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Metrics: policy_loss, clip_fraction (share that the clip holds), how far the policy is
        from the one that wrote; with `truncated_importance` importance_capped (share of tokens)."""
        w, t, e = minibatch.weights, minibatch.targets, minibatch.experience
        per_token = log_ratio(fresh.logprobs, e.old.logprobs, t.mask)
        metrics = off_policy(w, per_token)
        ratio = per_token
        if self.ratio == "sequence":
            length = t.mask.sum(1, keepdim=True).clamp(min=1)
            ratio = (per_token.sum(1, keepdim=True) / length).expand_as(per_token)
        loss, _, clipped = clipped_policy_loss(
            ratio, torch.zeros_like(ratio), t.advantages, self.clip_range, self.clip_range_high
        )
        metrics["clip_fraction"] = weighted_sum(w, clipped.float())
        if self.truncated_importance is not None:
            weight, capped = self._importance(e, t.mask, self.truncated_importance)
            metrics["importance_capped"] = weighted_sum(w, capped.float())
            loss = loss * weight
        if self.constant_length is not None:
            w = sum_over_tokens(w) / self.constant_length
        policy = weighted_sum(w, loss)
        metrics["policy_loss"] = policy.detach()
        return LossOutput(policy, metrics)

    @staticmethod
    def _importance(e: Experience, mask: Tensor, cap: float) -> tuple[Tensor, Tensor]:
        assert e.rollout.logprobs is not None, "somebody sampled these completions"
        d = log_ratio(e.old.logprobs, e.rollout.logprobs, mask).clamp(max=MAX_LOG_RATIO)
        weight = d.exp()
        return weight.clamp(max=cap), weight > cap

    def update(self, learner: Learner, experience: Experience, targets: Targets) -> None:
        learner.log.update(self.groups)
        super().update(learner, experience, targets)
