"""Allowed sets: which tokens may be sampled, and their storage as bits.

Sets are functions of logits alone and never look at a value on the host, so they can stand inside
a captured graph. V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.types import Constraint


def legal_tokens(
    constraints: Sequence[Constraint],
    logits: Mapping[str, Tensor],
    position: Tensor,
    stops: Tensor,
    min_new_tokens: int = 0,
) -> tuple[Tensor, list[Tensor]]:
    """What all constraints allow together: the one rule of sampling and of scoring.

    EOS (the first of `stops`, and only it) stays legal, unless a constraint's class says
    `decides_stops`; before `min_new_tokens` no stop token is.

    Args:
        logits: set name -> [N,V], `policy` among them.
        position: [N] completion position of the token to come, from 0.
        stops: [S] ids, EOS first.
    Returns:
        [N,V] bool, and per constraint [N] bool: True where it allowed no token by itself.
    """
    allowed = torch.ones_like(logits["policy"], dtype=torch.bool)
    empty = []
    for c in constraints:
        legal = c.allow(logits, position)
        if legal.dtype != torch.bool or legal.shape != allowed.shape:
            raise UserError(
                f"{type(c).__name__}.allow must return bool {list(allowed.shape)}, "
                f"not {str(legal.dtype).removeprefix('torch.')} {list(legal.shape)}"
            )
        empty.append(~legal.any(-1))
        if not getattr(c, "decides_stops", False):
            legal = legal.index_fill(1, stops[:1], True)
        allowed = allowed & legal
    if min_new_tokens > 0:
        without = allowed.index_fill(1, stops, False)
        allowed = torch.where((position < min_new_tokens)[:, None], without, allowed)
    return allowed, empty


def draw(logp: Tensor, rng: torch.Generator) -> Tensor:
    """[N,V] log-probabilities -> [N] tokens: argmax p / e with e ~ Exp(1), which is multinomial
    without a host synchronisation (an exponential race: the smallest e / p has probability p)."""
    return (logp.exp() / exponential(logp, rng)).argmax(-1)


def exponential(like: Tensor, rng: torch.Generator) -> Tensor:
    """fp32 Exp(1) noise in the shape of `like`, never 0 (0 / 0 would be NaN, which argmax takes for
    the largest).

    On a CPU -log(1 - u) of a 31-bit u, a third of the time of `exponential_`, which computes in
    float64 there: the small end, which decides for rare tokens, keeps its resolution (5e-10).
    """
    if like.device.type == "cpu":
        u = torch.empty(like.shape, dtype=torch.int32).random_(generator=rng).float()
        return u.add_(0.5).mul_(-(2.0**-31)).log1p_().neg_()
    noise = torch.empty_like(like, dtype=torch.float32)
    return noise.exponential_(generator=rng).clamp_(min=1e-30)


def top_p_set(logits: Tensor, p: float, floor: int = 1) -> Tensor:
    """The smallest set of tokens whose probability is at least p, never fewer than `floor`.

    Probabilities (.5, .3, .2): p = .4 -> 1 token, .6 -> 2, .9 -> 3 (B43). Ties go to the lower id.

    Source: Holtzman et al. 2020, arXiv 1904.09751; as an action set: RL4LMs, arXiv 2210.01241.
    Args:
        logits: [..., V].
        p: in (0, 1]; 1 keeps everything.
        floor: least number of tokens kept.
    Returns:
        [..., V] bool.
    """
    if p >= 1.0:
        return torch.ones_like(logits, dtype=torch.bool)
    probability, index = logits.float().softmax(-1).sort(dim=-1, descending=True, stable=True)
    keep = (probability.cumsum(-1) - probability) < p
    keep[..., :floor] = True
    return torch.zeros_like(keep).scatter(-1, index, keep)


def top_k_set(logits: Tensor, k: int) -> Tensor:
    """The k likeliest tokens, exactly k of them: [..., V] -> [..., V] bool; k = 0 keeps all."""
    if k <= 0 or k >= logits.shape[-1]:
        return torch.ones_like(logits, dtype=torch.bool)
    index = logits.topk(k, dim=-1).indices
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, index, True)


def min_p_set(logits: Tensor, p: float) -> Tensor:
    """Tokens at least p times as likely as the likeliest: [..., V] -> [..., V] bool.

    Source: Nguyen et al. 2024, arXiv 2407.01082.
    """
    if p <= 0:
        return torch.ones_like(logits, dtype=torch.bool)
    x = logits.float()
    return x >= x.amax(-1, keepdim=True) + math.log(p)


def pack_bits(allowed: Tensor) -> Tensor:
    """[..., V] bool -> [..., ceil(V/8)] uint8, token 8 i + j in bit j of byte i."""
    v = allowed.shape[-1]
    x = torch.nn.functional.pad(allowed, (0, -v % 8)).reshape(*allowed.shape[:-1], -1, 8)
    shifted: Tensor = x.to(torch.uint8) << _shifts(allowed)
    return shifted.sum(-1, dtype=torch.uint8)


def unpack_bits(bits: Tensor, vocabulary: int) -> Tensor:
    """[..., ceil(V/8)] uint8 -> [..., V] bool: the inverse of `pack_bits`."""
    return ((bits[..., None] >> _shifts(bits)) & 1).bool().flatten(-2)[..., :vocabulary]


def set_sizes(bits: Tensor) -> Tensor:
    """[..., ceil(V/8)] uint8 -> [...] int64: how many tokens a set has."""
    size = torch.zeros(bits.shape[:-1], dtype=torch.long, device=bits.device)
    for shift in range(8):
        size += ((bits >> shift) & 1).sum(-1)
    return size


def _shifts(x: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=x.device)
