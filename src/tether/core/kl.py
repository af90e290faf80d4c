"""KL(p || q): exact over the vocabulary, and three estimators from sampled tokens (B10, B11).

Everywhere d = log p(a) - log q(a) for a token a that p sampled. All in nats.

| estimator | value | mean over p | as a loss, differentiated through log p |
|---|---|---|---|
| k1 | d | KL(p‖q) | 0 on average: never use it as a loss |
| k2 | d²/2 | near KL when p ≈ q | gradient of KL(p‖q) when on-policy |
| k3 | exp(-d) - 1 + d | KL(p‖q), always >= 0 | gradient of the other divergence, KL(q‖p) |

Source: Schulman, "Approximating KL divergence" (2020); gradients: arXiv 2506.09477, exact numbers
in `tests/faults/test_b11_kl_loss_gradient.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tether.types import Total

MAX_EXPONENT = 10.0
"""k3 reads exp(-d) only up to exp(10) = 22026: one token ten nats likelier under q is a broken
pair of policies, and unbounded it would be the whole mean (d = -20 alone gives 4.85e8)."""


def kl_exact(p: Tensor, q: Tensor) -> Tensor:
    """sum over the vocabulary of p (log p - log q) >= 0.

    Args:
        p, q: [..., V] log-probabilities.
    Returns:
        [...] nats per token.
    """
    return (p.exp() * (p - q)).sum(-1)


def kl_k1(d: Tensor) -> Tensor:
    """d: unbiased, high variance, one token's value may be negative."""
    return d


def kl_k2(d: Tensor) -> Tensor:
    """d² / 2: biased, low variance, as a loss the right gradient on-policy."""
    return d.square() / 2


def kl_k3(d: Tensor) -> Tensor:
    """exp(-d) - 1 + d >= 0: unbiased where the exponent is not bounded (see `exponent_bounded`)."""
    x = (-d).clamp(max=MAX_EXPONENT)
    return x.expm1() - x


def exponent_bounded(d: Tensor) -> Tensor:
    """How many elements of d the bound in `kl_k3` acts on: a scalar, to sum over ranks and log."""
    return (-d > MAX_EXPONENT).sum()


ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}
"""Estimators by the name that is also in the metric's name. No default: an unknown one raises."""


def standard_errors(per_sequence: Tensor, total: Total) -> Tensor:
    """Mean over sequences divided by its standard error: below -3, a KL estimate is broken (B09).

    One token's log ratio may be negative; the mean of many on-policy samples may not.
    Args:
        per_sequence: [B] sums of k1 over each sequence.
        total: sum over ranks.
    Returns:
        scalar; 0 where there is no spread and no mean, or fewer than two sequences.
    """
    x = per_sequence.float()
    n = total(torch.tensor(float(len(x)), device=x.device))
    mean = total(x.sum()) / n.clamp(min=1)
    variance = total((x - mean).square().sum()) / (n - 1).clamp(min=1)
    error = (variance / n.clamp(min=1)).sqrt()
    return torch.where(n > 1, mean / error.clamp(min=1e-12), torch.zeros_like(mean))
