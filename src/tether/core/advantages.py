"""Statistics among the completions of one prompt."""

from __future__ import annotations

import torch
from torch import Tensor


def group_mean_std(score: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and size of each row's group, in any row order (B28).

    The deviation is the sample's (n - 1), as in GRPO; 0 for a group of one. Groups never span
    ranks (`Rollout.group`), so nothing is summed over ranks.

    Source: Shao et al. 2024, arXiv 2402.03300, section 4.1.
    Args:
        score: [B].
        group: [B] integers; equal numbers share a prompt.
    Returns:
        mean, std, size: [B] fp32 each.
    """
    score = score.float()
    number, index = torch.unique(group, return_inverse=True)
    empty = torch.zeros(len(number), device=score.device)
    size = empty.index_add(0, index, torch.ones_like(score))
    mean = empty.index_add(0, index, score) / size
    squares = empty.index_add(0, index, (score - mean[index]).square())
    std = (squares / (size - 1).clamp(min=1)).sqrt()
    return mean[index], std[index], size[index]
