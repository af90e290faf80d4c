"""Reset to init: the policy falls back to where it started. The baseline that Elastic Reset must
beat, since on the paper's IMDB clock its average keeps only 4 % of the drift.

    policy <- initial      whenever `reset` fires, between two updates

Source: baseline of Noukhovitch et al. 2023, arXiv 2312.07551 (`reset_freq` with plain PPO in
mnoukhov/RL4LMs, branch `paper`). With `layers`, the resets against the primacy bias of Nikishin et
al. 2022, arXiv 2205.07802; with `by` below 1 the shrinking half of Ash and Adams 2020, arXiv
1910.08475, towards the initial weights instead of towards 0 and without their noise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from tether.config.errors import UserError
from tether.tethers.base import Place, Tether
from tether.tethers.layers import check_patterns, where
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
    layers: tuple[str, ...] = ()
    """Globs on parameter names, e.g. ["*.h.11.*"]: only these fall back. Empty = all."""
    by: float = 1.0
    """Share of the way home, in (0, 1]; 1 = to the initial weights themselves."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"weights"})

    def __post_init__(self) -> None:
        if not 0 < self.by <= 1:
            raise UserError(f"reset_to_init.by must be in (0, 1], not {self.by:g}")

    def check_names(self, names: Collection[str]) -> None:
        check_patterns(self.layers, names, "layers")

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        if unit != "update" or (why := self.reset.fires(clock, measured)) is None:
            return ()
        home = Move("policy", toward="initial", by=self.by, where=where(self.layers))
        return (WeightEvent((home,), why, self.optimizer, self.critic, self.controllers),)
