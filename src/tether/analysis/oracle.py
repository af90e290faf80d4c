"""The oracle frontier: the best reward that any policy can have at each drift from the initial
model.

The maximum of E[r] - lambda KL(pi || pi_0) over all policies is pi(y) = pi_0(y) exp(r(y) / lambda)
/ Z, one lambda for all prompts. From N samples a prompt of pi_0 it is estimated without training:

    w_i = exp(r_i / lambda) / sum_j exp(r_j / lambda)
    R = sum_i w_i r_i          KL = sum_i w_i log(w_i N)

averaged over prompts. N samples cannot show a KL above log N, and the estimate lags behind the true
optimum near it; it is used up to `limit`: log N - 1 nats. What lies beyond is computed and marked,
not drawn. Within the range the curve errs low: for normally distributed rewards and N = 256 the
reward gained is 1 % low at 1 nat, 4 % at 3 nats and 10 % at the limit (4.5 nats), so a policy near
the end of the range may stand a little above it.

Source: the optimum: Korbak et al. 2022 (arXiv 2206.00761), Rafailov et al. 2023 (arXiv 2305.18290,
eq. 4); the estimate by self-normalised importance weights is standard.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tether.analysis.reweighting import Array, PromptSamples, Reweighted, reweight

POINTS = 20
"""Points of the curve within its range, evenly spaced in the root of KL: reward starts as one."""
BEYOND = (0.25, 0.5, 0.75)
"""Nats past the range at which further points are computed, marked as not valid."""
LEAST_SAMPLES = 16
"""Fewer samples a prompt leave a range below 1.8 nats."""


@dataclass(frozen=True)
class OraclePoint:
    """One lambda. `math.inf`: the initial model; 0: all weight on each prompt's best samples."""

    lam: float
    means: Reweighted
    valid: bool
    """KL is within the range that the number of samples can show."""


def limit(samples: int) -> float:
    """log N - 1, nats: how far N samples a prompt are to be trusted."""
    return math.log(samples) - 1


def weights(rewards: Array, lam: float) -> Array:
    """exp(r / lambda), normalised."""
    if lam == math.inf:
        return np.full(len(rewards), 1 / len(rewards))
    best = rewards.max()
    raw = (rewards == best).astype(np.float64) if lam == 0 else np.exp((rewards - best) / lam)
    out: Array = raw / raw.sum()
    return out


def at_lambda(samples: Sequence[PromptSamples], lam: float) -> Reweighted:
    return reweight(samples, partial(weights, lam=lam))


def lambda_at(samples: Sequence[PromptSamples], kl: float) -> float:
    """The lambda whose mean KL is `kl`: KL falls as lambda grows, so by bisection of log lambda.

    Returns 0 where even all weight on the best samples drifts less, `inf` for kl <= 0.
    """
    if kl <= 0:
        return math.inf
    if at_lambda(samples, 0.0).kl <= kl:
        return 0.0
    below = [s.rewards - s.rewards.max() for s in samples]  # [N] each, at most 0
    tables = [np.stack([b for b in below if len(b) == n]) for n in {len(b) for b in below}]
    spread = -min(float(t.min()) for t in tables)
    low, high = math.log(spread) - 20, math.log(spread) + 20
    for _ in range(48):
        middle = (low + high) / 2
        found = math.fsum(_sum_of_kl(t / math.exp(middle)) for t in tables) / len(samples)
        low, high = (middle, high) if found > kl else (low, middle)
    return math.exp((low + high) / 2)


def _sum_of_kl(x: Array) -> float:
    """[P,N] r / lambda up to a constant a row -> sum over rows of log N + sum_i w_i x_i - log Z."""
    raw = np.exp(x)
    z = raw.sum(axis=1)
    return float((math.log(x.shape[1]) + (raw * x).sum(axis=1) / z - np.log(z)).sum())


def oracle(samples: Sequence[PromptSamples], points: int = POINTS) -> list[OraclePoint]:
    """The curve from the initial model on, in order of KL.

    It ends early where the best samples of a prompt are many: then no policy needs to go further.
    Raises:
        ValueError: fewer than `LEAST_SAMPLES` samples of some prompt.
    """
    fewest = min(len(s.rewards) for s in samples)
    if fewest < LEAST_SAMPLES:
        raise ValueError(
            f"the oracle frontier needs {LEAST_SAMPLES} samples a prompt, not {fewest}"
        )
    end = limit(fewest)
    wanted = [end * (k / points) ** 2 for k in range(points + 1)] + [end + b for b in BEYOND]
    out: list[OraclePoint] = []
    for kl in wanted:
        lam = lambda_at(samples, kl)
        means = at_lambda(samples, lam)
        out.append(OraclePoint(lam, means, means.kl <= end + 1e-6))
        if lam == 0:
            break
    return out


def least_drift(curve: Sequence[tuple[float, float]], reward: float) -> float | None:
    """The drift at which the curve (drift, reward), in order, first reaches a reward; straight
    lines between its points. None above its end.

    A policy's drift less this is what it wastes.
    """
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if reward <= y0:
            return x0
        if reward <= y1:
            return x0 + (x1 - x0) * (reward - y0) / (y1 - y0)
    return None
