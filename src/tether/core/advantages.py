"""Statistics among the completions of one prompt (B15, B28).

A row that has no real token (a sample that was dropped) is `real` = False: it enters no statistic.
Groups never span ranks (`Rollout.group`), so what is among them needs no sum over ranks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tether.core.masking import local
from tether.types import Experience, Total


def sequence_rewards(experience: Experience) -> tuple[Tensor, Tensor]:
    """What a whole completion earned: the score, token rewards and what tethers added.

    Returns:
        reward [B] fp32: sum over the sampled tokens; real [B] bool: the sample counts.
    """
    mask = experience.mask
    return torch.where(mask, experience.rewards.float(), 0.0).sum(1), mask.any(1)


def group_mean_std(
    score: Tensor, group: Tensor, real: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and size of each row's group, in any row order (B28).

    The deviation is the sample's (n - 1), as in GRPO; 0 for a group of one.

    Source: Shao et al. 2024, arXiv 2402.03300, section 4.1.
    Args:
        score: [B].
        group: [B] integers; equal numbers share a prompt.
        real: [B] bool, the rows that count; None = all.
    Returns:
        mean, std, size: [B] fp32 each, of the rows that count in each row's group.
    """
    weight = torch.ones_like(score, dtype=torch.float32) if real is None else real.float()
    score = torch.where(weight > 0, score.float(), 0.0)
    number, index = torch.unique(group, return_inverse=True)
    empty = torch.zeros(len(number), device=score.device)
    size = empty.index_add(0, index, weight)
    mean = empty.index_add(0, index, score) / size.clamp(min=1)
    squares = empty.index_add(0, index, weight * (score - mean[index]).square())
    std = (squares / (size - 1).clamp(min=1)).sqrt()
    return mean[index], std[index], size[index]


def batch_std(score: Tensor, real: Tensor, total: Total = local) -> Tensor:
    """Sample deviation (n - 1) of all rows that count, over all ranks; 0 for fewer than two.

    Args:
        score: [B]. real: [B] bool.
    Returns:
        scalar.
    """
    n = total(real.sum().float())
    mean = total(torch.where(real, score, 0.0).sum()) / n.clamp(min=1)
    squares = total(torch.where(real, score - mean, 0.0).square().sum())
    return (squares / (n - 1).clamp(min=1)).sqrt()


def leave_one_out(score: Tensor, group: Tensor, real: Tensor) -> Tensor:
    """Each score minus the mean of the others of its group.

        A_i = R_i - sum over j != i of R_j / (n - 1) = (R_i - mean) n / (n - 1)

    Source: Ahmadian et al. 2024, arXiv 2402.14740, section 3.
    Args:
        score, group: [B]. real: [B] bool.
    Returns:
        [B] fp32; 0 for a row that does not count or has nobody to be compared with.
    """
    mean, _, size = group_mean_std(score, group, real)
    alone = (score - mean) * size / (size - 1).clamp(min=1)
    return torch.where(real & (size > 1), alone, 0.0)


def flat_groups(score: Tensor, group: Tensor, real: Tensor) -> Tensor:
    """[B] bool: every row that counts in this row's group has exactly the same score, so that the
    group says nothing. A group of one is flat, and so is one without a row that counts."""
    number, index = torch.unique(group, return_inverse=True)
    inf = float("inf")
    low = torch.full((len(number),), inf, device=score.device)
    high = torch.full((len(number),), -inf, device=score.device)
    low = low.scatter_reduce(0, index, torch.where(real, score.float(), inf), "amin")
    high = high.scatter_reduce(0, index, torch.where(real, score.float(), -inf), "amax")
    return (high <= low)[index]


def count_groups(group: Tensor, rows: Tensor, total: Total = local) -> float:
    """Number of groups that hold at least one of `rows` [B] bool, over all ranks."""
    found = torch.unique(group[rows])
    return float(total(torch.tensor(float(len(found)), device=group.device)))


def rank_in_group(score: Tensor, group: Tensor, real: Tensor) -> Tensor:
    """[B] long: how many rows of the group stand before this one, best score first; among equals
    the earlier row is first, and rows that do not count are last."""
    best_first = torch.where(real, score.float(), -float("inf")).argsort(
        descending=True, stable=True
    )
    # Real rows before the others also where a score is -inf.
    best_first = best_first[(~real[best_first]).long().argsort(stable=True)]
    order = best_first[group[best_first].argsort(stable=True)]
    _, size = torch.unique_consecutive(group[order], return_counts=True)
    start = (size.cumsum(0) - size).repeat_interleave(size)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - start
    return rank


def best_rows(score: Tensor, real: Tensor, share: float, total: Total = local) -> Tensor:
    """The best `share` of all rows that count, over all ranks: ceil(share n) of them.

    The threshold is found by bisection on the bits of fp32 numbers, which needs only counts over
    ranks and is exact. Among rows that equal the threshold the earlier ones are taken, of each rank
    its part (rounded down, so that several ranks may keep a few rows less).

    Args:
        score: [B]. real: [B] bool. share: in (0, 1].
    Returns:
        [B] bool.
    """
    n = int(total(real.sum()))
    wanted = math.ceil(n * share - 1e-9)
    key = _ordered(score)
    low, high = -(2**31), 2**31 - 1  # the largest t with at least `wanted` rows at or above it
    while low < high:
        middle = (low + high + 1) // 2
        if int(total((real & (key >= middle)).sum())) >= wanted:
            low = middle
        else:
            high = middle - 1
    above, equal = real & (key > low), real & (key == low)
    mine, everyone = int(equal.sum()), int(total(equal.sum()))
    room = (wanted - int(total(above.sum()))) * mine // max(everyone, 1)
    return above | (equal & (equal.cumsum(0) <= room))


def _ordered(x: Tensor) -> Tensor:
    """[B] int64 keys in the order of the fp32 numbers (-0 equals 0)."""
    bits = (x.float() + 0.0).view(torch.int32).to(torch.int64)
    return torch.where(bits >= 0, bits, -(bits + 2**31))
