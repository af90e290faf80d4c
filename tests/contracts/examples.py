"""Small hand-made experience for tests of methods: 3 sequences, 4 positions, 8 tokens."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tether.core.masking import local, token_weights
from tether.types import Experience, Minibatch, Rollout, Scores, Sequences, Targets

MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
"""Finished after 3, truncated at 4, finished after 1."""
SETS = ("initial", "ema", "reference", "mask", "teacher", "anchor")


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def scores(seed: int, mask: Tensor = MASK, grad: bool = False) -> Scores:
    """Everything that may be asked for, 0 outside the mask as the scoring function leaves it."""
    b, t = mask.shape

    def tensor(k: int, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
        x = scale * numbers(seed + k, *shape) + shift
        x = torch.where(mask, x, 0.0) if len(shape) == 2 else x
        return x.requires_grad_() if grad else x

    return Scores(
        logprobs=tensor(0, b, t, scale=0.3, shift=-2.0),
        free_logprobs=tensor(1, b, t, scale=0.3, shift=-2.0),
        entropy=tensor(2, b, t),
        values=tensor(3, b, t),
        last_value=tensor(4, b),
        exact_kl={name: tensor(10 + i, b, t).abs() for i, name in enumerate(SETS)},
    )


def experience(mask: Tensor = MASK, seed: int = 0) -> Experience:
    b, t = mask.shape
    sequences = Sequences(
        prompt=torch.ones(b, 2, dtype=torch.long),
        prompt_mask=torch.ones(b, 2, dtype=torch.bool),
        completion=torch.where(mask, torch.arange(b * t).reshape(b, t) % 8, 0),
        completion_mask=mask,
    )
    rollout = Rollout(
        sequences=sequences,
        sampled=mask,
        row=torch.arange(b),
        group=torch.arange(b),
        finished=torch.tensor([True, False, True])[:b],
        logprobs=scores(seed, mask).logprobs,
    )
    return Experience(
        rollout=rollout,
        score=numbers(seed + 50, b),
        rewards=torch.where(mask, numbers(seed + 51, b, t), 0.0),
        old=scores(seed, mask),
        references={name: scores(seed + 100 * (i + 1), mask) for i, name in enumerate(SETS)},
    )


def minibatch(e: Experience, targets: Targets, average: str = "tokens") -> Minibatch:
    return Minibatch(e, targets, token_weights(targets.mask, average, local))  # type: ignore[arg-type]


def spoiled(e: Experience, by: float) -> Experience:
    """The same experience with `by` written at every masked position (invariant 4)."""
    mask = e.rollout.sequences.completion_mask

    def spoil(x: Tensor) -> Tensor:
        return torch.where(mask, x, torch.full_like(x, by))

    def spoil_scores(s: Scores) -> Scores:
        return replace(
            s,
            logprobs=spoil(s.logprobs),
            free_logprobs=spoil(s.free_logprobs),
            entropy=spoil(s.entropy),
            values=spoil(s.values),
            last_value=s.last_value,
            exact_kl={k: spoil(v) for k, v in s.exact_kl.items()},
        )

    return replace(
        e,
        rewards=spoil(e.rewards),
        old=spoil_scores(e.old),
        references={k: spoil_scores(v) for k, v in e.references.items()},
    )
