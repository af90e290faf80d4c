"""Token transitions into prompts, optimizer steps and updates.

RL4LMs counts tokens: an iteration is n_envs x n_steps of them, a minibatch `batch_size` of them,
each its own training row. Here an update is a number of prompts, and a minibatch holds whole
completions. The nearest pair (prompts, minibatches) is the one that minimises

    |log(prompts T / tokens)| + |log((prompts T / minibatches) / batch_size)|

with T tokens a completion, over all pairs in which the prompts divide into the minibatches and are
within a quarter of tokens / T: the tokens of an update and those of an optimizer step are each as
near, in ratio, as the other allows.

    IMDB: 10 x 128 = 1280 tokens, T = 48, batch_size 64
          -> 27 prompts (1296 tokens), 27 minibatches of one completion (48 tokens)
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Rollout:
    """One update in both units."""

    tokens: int
    """Of RL4LMs' iteration."""
    horizon: int
    """T, tokens of a completion at its longest."""
    step_tokens: int
    """Of RL4LMs' minibatch."""
    prompts: int
    minibatches: int

    @property
    def new_tokens(self) -> int:
        """Of an update here, where every completion has full length."""
        return self.prompts * self.horizon

    @property
    def old_minibatches(self) -> int:
        """RL4LMs' optimizer steps in one epoch (the last one may be smaller)."""
        return math.ceil(self.tokens / self.step_tokens)


def rollout(tokens: int, horizon: int, step_tokens: int) -> Rollout:
    """The nearest whole prompts and minibatches. All arguments >= 1."""
    exact = tokens / horizon
    best = (math.inf, 1, 1)
    # of very many prompts the nearest thousand: one of them has what is looked for
    low = max(1, math.floor(exact * 0.75), math.floor(exact) - 500)
    for prompts in range(low, min(math.ceil(exact * 1.25), math.ceil(exact) + 500) + 1):
        minibatches = fitting(prompts, horizon, step_tokens)
        step = prompts * horizon / minibatches
        cost = abs(math.log(prompts / exact)) + abs(math.log(step / step_tokens))
        if cost < best[0] - 1e-12:
            best = (cost, prompts, minibatches)
    return Rollout(tokens, horizon, step_tokens, best[1], best[2])


def fitting(prompts: int, horizon: int, step_tokens: int) -> int:
    """Minibatches that the prompts divide into, nearest in ratio to `step_tokens` each."""
    small = [m for m in range(1, math.isqrt(prompts) + 1) if prompts % m == 0]
    whole = sorted({*small, *(prompts // m for m in small)})
    return min(whole, key=lambda m: abs(math.log(prompts * horizon / m / step_tokens)))


def nearest_whole(x: float) -> int:
    """Rounded half up, at least 1 (Python's round would make 26.5 into 26)."""
    return max(1, math.floor(x + 0.5))


def supervised_updates(rows: int, epochs: float, batch: int) -> int:
    """Optimizer steps of transformers' Trainer: every pass ends with a smaller batch."""
    return max(1, math.ceil(math.ceil(rows / batch) * epochs))
