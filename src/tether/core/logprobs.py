"""From logits to natural-log probabilities, always in fp32 (B06, B08).

Temperature and allowed set are arguments of the one function that everybody calls, so sampling and
scoring cannot differ. V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = torch.finfo(torch.float32).min
"""The logit of a forbidden token. Not -inf: 0 * NEVER is 0, while 0 * -inf is NaN in entropy, KL
and their gradients."""


def log_softmax(logits: Tensor, temperature: float = 1.0, allowed: Tensor | None = None) -> Tensor:
    """Log-probabilities of the distribution that samples.

        log softmax(logits / temperature), outside `allowed` NEVER

    Args:
        logits: [..., V], any floating dtype; cast to fp32 before anything else.
        temperature: > 0.
        allowed: [..., V] bool, True = legal; None = the whole vocabulary.
    Returns:
        [..., V] fp32, nats.
    Raises:
        ValueError: temperature <= 0 (greedy is a way of choosing a token, not a distribution).
    """
    if temperature <= 0:
        raise ValueError(
            f"temperature must be > 0, not {temperature:g}; for the likeliest token use greedy"
        )
    x = logits.float()
    if temperature != 1.0:
        x = x / temperature
    if allowed is not None:
        x = x.masked_fill(~allowed, NEVER)
    return x.log_softmax(-1)


def pick(logp: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities of the given tokens: [..., V], [...] long -> [...]."""
    return logp.gather(-1, ids[..., None]).squeeze(-1)


def entropy(logp: Tensor) -> Tensor:
    """- sum p log p in nats: [..., V] log-probabilities -> [...]. Forbidden tokens add 0."""
    return -(logp.exp() * logp).sum(-1)
