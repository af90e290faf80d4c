"""Reset to init: the policy falls back to where it started. The baseline that Elastic Reset must
beat, since on the paper's IMDB clock its average keeps only 4 % of the drift.

    policy <- initial      whenever `reset` fires, between two updates

Source: baseline of Noukhovitch et al. 2023, arXiv 2312.07551 (`reset_freq` with plain PPO in
mnoukhov/RL4LMs, branch `paper`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from tether.tethers.base import Place, Tether
from tether.tethers.triggers import Every, Trigger
from tether.types import Clock, Keep, Measured, Move, Unit, WeightEvent


@dataclass
class ResetToInit(Tether):
    """Policy to the initial weights. Source: baseline of arXiv 2312.07551."""

    reset: Trigger = field(default_factory=lambda: Every(17, "update"))
    """When the policy falls back (IMDB: every 17 updates)."""
    optimizer: Keep = "keep"
    """The policy optimizer's moments at a reset."""
    critic: Keep = "keep"
    """The value model at a reset; a warm critic is what makes this more than starting again."""
    controllers: Keep = "keep"
    """Adaptive KL coefficients at a reset."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"weights"})

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        if unit != "update" or (why := self.reset.fires(clock, measured)) is None:
            return ()
        home = Move("policy", toward="initial")
        return (WeightEvent((home,), why, self.optimizer, self.critic, self.controllers),)
