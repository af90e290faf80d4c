"""Best-of-n: draw n completions, keep the one with the best reward. The decoding baseline that
every trained policy has to beat at equal drift.

From N >= n samples a prompt, sorted by reward r_(1) <= ... <= r_(N), the mean over all n-subsets of
their best is unbiased for the reward of best-of-n:

    w_(i) = C(i - 1, n - 1) / C(N, n)          R(n) = sum_i w_(i) r_(i)

Equal rewards share their weights, as a policy that breaks ties at random does. The drift has a
bound that needs no probability of any sample: KL(best-of-n || model) <= log n - (n - 1) / n, with
equality only where no completion is likely enough to be drawn twice. It is called a bound here.
Beside it stands `Reweighted.kl`, the KL of the re-weighted sample, which sees ties.

Source: Stiennon et al. 2020 (arXiv 2009.01325, appendix G.3) for the formula; Beirami et al. 2024
(arXiv 2401.01879) that it is an upper bound; the estimator over subsets: Nakano et al. 2021
(arXiv 2112.09332, appendix I).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tether.analysis.reweighting import Array, PromptSamples, Reweighted, reweight

NUMBERS = (1, 2, 4, 8, 16, 32, 64)
"""n of the points that are drawn (evaluation protocol, section 3)."""


def kl_bound(n: int) -> float:
    """log n - (n - 1) / n, nats per completion: no best-of-n drifts further."""
    return math.log(n) - (n - 1) / n


def order_weights(count: int, n: int) -> Array:
    """w_(i) = C(i - 1, n - 1) / C(count, n) for i = 1 ... count; they sum to 1.

    Raises:
        ValueError: when n is not in 1 ... count.
    """
    if not 1 <= n <= count:
        raise ValueError(f"best of {n} cannot be estimated from {count} samples")
    out = np.zeros(count)
    out[-1] = n / count
    for i in range(count, n, -1):  # C(i - 2, n - 1) = C(i - 1, n - 1) (i - n) / (i - 1)
        out[i - 2] = out[i - 1] * (i - n) / (i - 1)
    return out


def weights(rewards: Array, n: int) -> Array:
    """Weight of each sample in its own place; equal rewards get equal weights."""
    by_order = order_weights(len(rewards), n)
    _, place, counts = np.unique(rewards, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    share = np.array([by_order[e - c : e].sum() / c for e, c in zip(ends, counts, strict=True)])
    out: Array = share[place]
    return out


def best_of_n(
    samples: Sequence[PromptSamples], numbers: Sequence[int] = NUMBERS
) -> dict[int, Reweighted]:
    """n -> its means, for every n that some prompt has samples for. Prompts with fewer are left out
    of that n."""
    out = {}
    for n in numbers:
        enough = [s for s in samples if len(s.rewards) >= n]
        if enough:
            out[n] = reweight(enough, partial(weights, n=n))
    return out
