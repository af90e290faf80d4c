"""Per-token losses of policy-gradient methods. Shapes [B,T]; the caller weighs and sums."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""exp is read up to exp(20), so that one impossible token gives a large number and not inf."""


def clipped_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_range: float
) -> tuple[Tensor, Tensor, Tensor]:
    """PPO's clipped surrogate, to be minimised.

        ratio = exp(logprobs - old_logprobs)
        loss  = max(-A ratio, -A clip(ratio, 1 - c, 1 + c))

    Source: Schulman et al. 2017, arXiv 1707.06347, equation 7.
    Args:
        logprobs: [B,T] of the policy now, of the distribution that sampled.
        old_logprobs: [B,T] of the policy at the start of the update.
        advantages: [B,T].
        clip_range: c > 0.
    Returns:
        loss [B,T]; ratio [B,T]; clipped [B,T] bool: the clip acts, this token has no gradient
        (Stable Baselines3 counts |ratio - 1| > c instead, which is never less).
    """
    ratio = (logprobs - old_logprobs).clamp(max=MAX_LOG_RATIO).exp()
    free = -advantages * ratio
    held = -advantages * ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.maximum(free, held), ratio, held > free


def value_loss(
    values: Tensor,
    returns: Tensor,
    old_values: Tensor | None = None,
    clip_range_value: float | None = None,
) -> Tensor:
    """Half the squared error of the critic, optionally with its step clipped.

        e(v) = (v - R)² / 2
        loss = e(V)                                                  without clipping
        loss = max(e(V), e(V_old + clip(V - V_old, -c, c)))          with c = clip_range_value

    Source: openai/baselines ppo2, kept by openai/lm-human-preferences and TRL's PPO.
    Args:
        values, returns, old_values: [B,T].
        clip_range_value: c in units of the return; None = no clipping.
    Returns:
        [B,T].
    Raises:
        ValueError: clipping without old values.
    """
    free = (values - returns).square() / 2
    if clip_range_value is None:
        return free
    if old_values is None:
        raise ValueError("value clipping needs the values at the start of the update")
    step = (values - old_values).clamp(-clip_range_value, clip_range_value)
    return torch.maximum(free, (old_values + step - returns).square() / 2)
