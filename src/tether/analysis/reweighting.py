"""Several samples a prompt of one model, re-weighted: what another policy would get and how far it
would be from that model, without training it.

    R = mean over prompts of sum_i w_i r_i          KL = mean over prompts of sum_i w_i log(w_i N)

KL is that of the re-weighted sample to the sample itself (weights 1 / N), in nats. It cannot exceed
log N, and falls behind the true KL well before: see `oracle.limit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PromptSamples:
    """The samples of one prompt."""

    rewards: Array
    """[N]"""
    judges: dict[str, Array] = field(default_factory=dict)
    """judge -> [N]; NaN where it gave no score."""


@dataclass(frozen=True)
class Reweighted:
    """Means over prompts under some weights."""

    reward: float
    reward_se: float
    """Standard error over prompts; NaN for a single one."""
    kl: float
    """Nats per completion, of the re-weighted sample."""
    effective_samples: float
    """Mean over prompts of 1 / sum of squared weights."""
    prompts: int
    judges: dict[str, float] = field(default_factory=dict)


def kl_of(weights: Array) -> float:
    """sum_i w_i log(w_i N), nats; weights sum to 1, and 0 log 0 = 0."""
    there = weights[weights > 0]
    return max(0.0, float(np.sum(there * np.log(there * len(weights)))))


def reweight(samples: Sequence[PromptSamples], weights: Callable[[Array], Array]) -> Reweighted:
    """Means over the prompts.

    Args:
        samples: at least one prompt.
        weights: rewards [N] of one prompt -> weights [N] that sum to 1.
    """
    given = [weights(s.rewards) for s in samples]
    rewards = [float(w @ s.rewards) for w, s in zip(given, samples, strict=True)]
    n = len(rewards)
    mean = math.fsum(rewards) / n
    square = math.fsum((r - mean) ** 2 for r in rewards)
    judges = {}
    for name in samples[0].judges:
        values = [_present(w, s.judges[name]) for w, s in zip(given, samples, strict=True)]
        known = [v for v in values if v is not None]
        if known:
            judges[name] = math.fsum(known) / len(known)
    return Reweighted(
        reward=mean,
        reward_se=math.sqrt(square / (n - 1) / n) if n > 1 else math.nan,
        kl=math.fsum(kl_of(w) for w in given) / n,
        effective_samples=math.fsum(1 / float(w @ w) for w in given) / n,
        prompts=n,
        judges=judges,
    )


def _present(weights: Array, values: Array) -> float | None:
    """Weighted mean of the values that are there; None where their weight is 0."""
    there = ~np.isnan(values)
    total = float(weights[there].sum())
    return float(weights[there] @ values[there]) / total if total > 0 else None
