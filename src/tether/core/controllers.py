"""Formulas of adaptive KL coefficients (B12). Plain numbers, no memory."""

from __future__ import annotations

import math

STEP = 0.2
"""Both rules read the relative error clipped to +-STEP."""


def ziegler(coef: float, kl: float, target: float, n: float, horizon: float) -> float:
    """Ziegler's proportional controller.

        coef * (1 + clip(kl / target - 1, -.2, .2) * n / horizon)

    Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2.
    Args:
        coef: now, reward units per nat.
        kl, target: nats per sequence, both of the same estimator.
        n: sequences since the last call, over all ranks.
        horizon: sequences over which an error of 1 would change the coefficient by itself.
    Returns:
        the next coefficient, > 0.
    Raises:
        ValueError: target or horizon <= 0, kl not finite, or n so large that it could reach 0.
    """
    if horizon <= 0:
        raise ValueError(f"horizon must be > 0, not {horizon:g}")
    if STEP * n >= horizon:
        raise ValueError(
            f"horizon {horizon:g} is too short for {n:g} sequences an update: "
            f"take more than {STEP * n:g}"
        )
    return coef * (1 + _error(kl, target) * n / horizon)


def rl4lms(coef: float, kl: float, target: float) -> float:
    """RL4LMs' controller: at most 2 % an update.

        coef * (1 + 0.1 * clip((kl - target) / target, -.2, .2))

    Source: allenai/RL4LMs@97df0bd `kl_controllers.py` (the paper says 0.2, the code 0.1).
    Args:
        coef: now, reward units per nat.
        kl, target: nats per token.
    Raises:
        ValueError: target <= 0, or kl not finite.
    """
    return coef * (1 + 0.1 * _error(kl, target))


def _error(kl: float, target: float) -> float:
    if target <= 0:
        raise ValueError(f"target must be > 0, not {target:g}")
    if not math.isfinite(kl):
        raise ValueError(f"the KL that steers the coefficient is {kl}")
    return max(-STEP, min(STEP, kl / target - 1))
