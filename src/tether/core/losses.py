"""Per-token losses of policy-gradient methods. Shapes [B,T]; the caller weighs and sums."""

from __future__ import annotations

import torch
from torch import Tensor

from tether.core.kl import kl_k3
from tether.core.masking import weighted_sum

MAX_LOG_RATIO = 20.0
"""exp is read up to exp(20), so that one impossible token gives a large number and not inf."""


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip_range: float,
    clip_range_high: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """PPO's clipped surrogate, to be minimised.

        ratio = exp(logprobs - old_logprobs)
        loss  = max(-A ratio, -A clip(ratio, 1 - c, 1 + d))

    Source: Schulman et al. 2017, arXiv 1707.06347, equation 7, with d = c; d > c: DAPO, arXiv
    2503.14476.
    Args:
        logprobs: [B,T] of the policy now, of the distribution that sampled.
        old_logprobs: [B,T] of the policy at the start of the update.
        advantages: [B,T].
        clip_range: c > 0. clip_range_high: d > 0; None = c.
    Returns:
        loss [B,T]; ratio [B,T]; clipped [B,T] bool: the clip acts, this token has no gradient
        (Stable Baselines3 counts |ratio - 1| > c instead, which is never less).
    """
    ratio = (logprobs - old_logprobs).clamp(max=MAX_LOG_RATIO).exp()
    high = clip_range if clip_range_high is None else clip_range_high
    free = -advantages * ratio
    held = -advantages * ratio.clamp(1 - clip_range, 1 + high)
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


def sum_over_tokens(weights: Tensor) -> Tensor:
    """Weights under which a sequence's tokens are summed instead of averaged: every token gets the
    weight of its whole sequence.

    With `average = sequences` that is 1 / (number of sequences) for each token.
    Args:
        weights: [B,T] of whole rows.
    Returns:
        [B,T], 0 where `weights` is 0.
    """
    return torch.where(weights != 0, weights.sum(1, keepdim=True), 0.0)


def log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """[B,T] log of the policy's ratio to the old one, 0 outside the mask."""
    return torch.where(mask, logprobs - old_logprobs, 0.0)


@torch.no_grad()
def off_policy(weights: Tensor, ratio: Tensor) -> dict[str, Tensor]:
    """How far the policy is from the one that wrote: weighted sums from the log ratio [B,T].

    Returns:
        kl_old.k3_nats_per_token (KL(old || policy)) and ratio_error (mean |r - 1|).
    """
    return {
        "kl_old.k3_nats_per_token": weighted_sum(weights, kl_k3(-ratio)),
        "ratio_error": weighted_sum(weights, ratio.clamp(max=MAX_LOG_RATIO).expm1().abs()),
    }
