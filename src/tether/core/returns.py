"""Returns and advantages of the token-level MDP; masked tokens are no time steps (B14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from tether.core.masking import whiten
from tether.types import Experience, Minibatch, Targets, Total

Truncated = Literal["end", "bootstrap"]


def gae(
    rewards: Tensor,
    values: Tensor,
    bootstrap: Tensor,
    mask: Tensor,
    gamma: float,
    lambda_: float,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over the real tokens of each row.

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t     = delta_t + gamma lambda A_{t+1}
        R_t     = A_t + V_t

    where t + 1 is the next real token; after the last one V is `bootstrap` and A is 0.

    Source: Schulman et al. 2016, arXiv 1506.02438, equation 16.
    Args:
        rewards: [B,T].
        values: [B,T] V(state before token t).
        bootstrap: [B] V(state after the last real token); 0 for a finished sequence.
        mask: [B,T] bool, True = a time step.
        gamma: discount per token, in [0, 1].
        lambda_: GAE lambda, in [0, 1].
    Returns:
        advantages [B,T] and returns [B,T], fp32, 0 outside the mask.
    """
    rewards = torch.where(mask, rewards.float(), 0.0)
    values = torch.where(mask, values.float(), 0.0)
    following = bootstrap.float()
    running = torch.zeros_like(following)
    advantages = torch.zeros_like(rewards)
    for t in reversed(range(rewards.shape[1])):
        real = mask[:, t]
        delta = rewards[:, t] + gamma * following - values[:, t]
        running = torch.where(real, delta + gamma * lambda_ * running, running)
        following = torch.where(real, values[:, t], following)
        advantages[:, t] = torch.where(real, running, 0.0)
    return advantages, torch.where(mask, advantages + values, 0.0)


def discounted(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Discounted sum of the rewards from each real token on.

        G_t = r_t + gamma G_{t+1}

    Args:
        rewards: [B,T].
        mask: [B,T] bool.
        gamma: discount per token.
    Returns:
        [B,T] fp32, 0 outside the mask.
    """
    zero = torch.zeros(len(rewards), device=rewards.device)
    return gae(rewards, torch.zeros_like(rewards), zero, mask, gamma, 1.0)[0]


def actor_critic_targets(
    experience: Experience, gamma: float, lambda_: float, truncated: Truncated
) -> Targets:
    """Advantages and returns of an experience by GAE, for methods with a critic.

    Args:
        experience: with `old.values` and `old.last_value`.
        gamma, lambda_: as in `gae`.
        truncated: what follows a completion that was cut at the length limit: nothing (`end`), or
            the value after its last token (`bootstrap`).
    """
    old = experience.old
    bootstrap = torch.zeros_like(old.last_value)
    if truncated == "bootstrap":
        bootstrap = torch.where(experience.rollout.finished, bootstrap, old.last_value)
    advantages, returns = gae(
        experience.rewards, old.values, bootstrap, experience.mask, gamma, lambda_
    )
    return Targets(advantages, returns, experience.mask)


def whiten_advantages(minibatch: Minibatch, total: Total) -> Minibatch:
    """The whole optimizer step with advantages of mean 0 and variance 1 over its real tokens and
    all ranks (`whiten`): call it in `Algorithm.prepare`, before the cut into microbatches."""
    t = minibatch.targets
    return replace(minibatch, targets=replace(t, advantages=whiten(t.advantages, t.mask, total)))
