"""Statistics over real tokens only, over all ranks (B02, B03, B15, B17, B18).

Shapes: B sequences, T completion positions. `mask` is bool, True = counts. Every function gives 0
outside the mask, never reads a value there, and has one rule for an empty mask: zeros.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tether.types import Total

Average = Literal["tokens", "sequences"]
WHITEN_EPSILON = 1e-8


def local(x: Tensor) -> Tensor:
    """The `Total` of a single process: the value itself."""
    return x


def weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    """sum over weights != 0 of weights * x, so that nothing outside the mask is read (invariant 4).

    Args:
        weights: [B,T], 0 = outside.
        x: [B,T].
    Returns:
        scalar.
    """
    return torch.where(weights != 0, weights * x, torch.zeros_like(x)).sum()


def masked_sum(x: Tensor, mask: Tensor, total: Total = local) -> Tensor:
    """Sum of x over the mask and all ranks, fp32 scalar."""
    return total(torch.where(mask, x.float(), 0.0).sum())


def masked_mean(x: Tensor, mask: Tensor, total: Total = local) -> Tensor:
    """Mean of x over the mask and all ranks, fp32 scalar; 0 where the mask is empty.

        sum(x * mask) / max(1, sum(mask))

    Differs from a mean of per-rank means: ranks may hold different numbers of tokens (B17).
    """
    count = total(mask.sum().float()).clamp(min=1)
    return masked_sum(x, mask, total) / count


def whiten(x: Tensor, mask: Tensor, total: Total = local) -> Tensor:
    """Mean 0 and variance 1 over the mask and all ranks.

        (x - mean) / sqrt(var + 1e-8),   var = mean of (x - mean)^2   (population variance)

    Source: epsilon inside the root as in openai/lm-human-preferences and TRL's PPO; Stable
    Baselines3 and RL4LMs use the sample variance (n - 1) instead. The numbers are B15's.
    Args:
        x: [B,T].
        mask: [B,T] bool.
        total: sum over ranks.
    Returns:
        [B,T] fp32, 0 outside the mask.
    """
    x = x.float()
    mean = masked_mean(x, mask, total)
    variance = masked_mean((torch.where(mask, x, 0.0) - mean).square(), mask, total)
    return torch.where(mask, (x - mean) * torch.rsqrt(variance + WHITEN_EPSILON), 0.0)


def last_index(mask: Tensor) -> Tensor:
    """Position of the last True in each row, whichever side is padded (B05).

    Args:
        mask: [B,T] bool.
    Returns:
        [B] long; 0 for a row without any True (use `mask.any(1)` to tell).
    """
    position = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, position, 0).amax(1)


def at_last(score: Tensor, mask: Tensor) -> Tensor:
    """A number per sequence, placed on its last real token (B03).

    Args:
        score: [B].
        mask: [B,T] bool.
    Returns:
        [B,T] fp32, zero everywhere else and in rows without a real token.
    """
    position = torch.arange(mask.shape[1], device=mask.device)
    here = (position == last_index(mask)[:, None]) & mask
    return torch.where(here, score.float()[:, None], 0.0)


def token_weights(mask: Tensor, average: Average, total: Total = local) -> Tensor:
    """Weights of the tokens of one optimizer step; they sum to 1 over microbatches and ranks.

        tokens:     1 / (number of tokens)
        sequences:  1 / (tokens of the sequence) / (number of sequences with a token)

    Call it on the whole step, before the cut into microbatches: then losses simply add (B17).
    Args:
        mask: [B,T] bool, what trains.
        average: "tokens" or "sequences".
        total: sum over ranks.
    Returns:
        [B,T] fp32; zeros where nothing trains on any rank (B18).
    Raises:
        ValueError: unknown `average`.
    """
    real = mask.float()
    if average == "tokens":
        weights, units = real, real.sum()
    elif average == "sequences":
        length = real.sum(1, keepdim=True)
        weights, units = real / length.clamp(min=1), (length > 0).float().sum()
    else:
        raise ValueError(f"average must be 'tokens' or 'sequences', not '{average}'")
    return weights / total(units).clamp(min=1)
