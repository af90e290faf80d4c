# cosine_reset.py
"""Cosine resets: the policy goes home in waves, far at first, then less and less.

    policy <- policy + a (initial - policy),   a = (1 + cos(pi k / waves)) / 2

at the k-th of a wave's resets, k = 0, 1, ... waves - 1: all of the way home, then ever shorter
ones; then the wave starts again. Source: the schedule of SGDR (arXiv 1608.03983), for resets.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import tether


@dataclass
class CosineReset(tether.Tether):
    """Resets whose strength falls along a cosine. Source: arXiv 1608.03983, for resets."""

    reset: tether.Trigger = field(default_factory=lambda: tether.Every(5))
    """When the policy goes home: a trigger."""
    waves: int = 4
    """Resets of one wave."""

    acts_on: ClassVar = frozenset({"weights"})

    def __post_init__(self):
        if self.waves < 2:
            raise tether.UserError(f"cosine_reset.waves must be at least 2, not {self.waves}")
        self.resets = 0  # memory: any attribute that is no field

    def after(self, unit, clock, measured):
        if unit != "update" or (why := self.reset.fires(clock, measured)) is None:
            return
        share = (1 + math.cos(math.pi * (self.resets % self.waves) / self.waves)) / 2
        self.resets += 1
        home = tether.Move("policy", toward="initial", by=share)
        yield tether.WeightEvent((home,), f"{why}; reset {self.resets}")

    def report(self, experience, total):
        return {"resets": float(self.resets)}
