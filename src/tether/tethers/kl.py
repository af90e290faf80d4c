"""KL to a named set of weights, in the reward: home is where the reference is.

    r_t  <-  r_t - coef * k(log pi(a_t) - log ref(a_t))

with k one of k1, k2, k3, or the exact KL over the vocabulary at each step.

Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2; per token as in TRL's PPO and RL4LMs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tether.config.errors import UserError
from tether.tethers.penalty import Referenced, RewardPenalty


@dataclass
class KLPenalty(Referenced, RewardPenalty):
    """KL(policy || reference) as a cost on every token. Source: arXiv 1909.08593, section 2.2."""

    kind: ClassVar[str] = "kl"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference == "policy":
            raise UserError("kl.reference is the policy itself: its KL is always 0")
