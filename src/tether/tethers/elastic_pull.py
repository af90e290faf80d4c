"""Elastic pull: a spring to the initial weights, after every optimizer step.

    policy <- policy + by (initial - policy)      whenever `every` fires

Quiet: a pull is no event and is not evaluated on both sides. A constant learning step s settles
where by times the distance equals (1 - by) s. It is decoupled weight decay towards the start
instead of towards 0: unlike a penalty in the loss it does not pass through Adam's moments.

Source: the elastic force of Zhang, Choromanska and LeCun 2015, arXiv 1412.6651, with a fixed
centre; as a loss, L2-SP (Li et al. 2018, arXiv 1802.01483) and L2 Init (arXiv 2308.11958).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from tether.config.errors import UserError
from tether.tethers.base import Place, Tether
from tether.tethers.layers import check_patterns, where
from tether.tethers.triggers import Every
from tether.types import Clock, Measured, Move, Unit, WeightEvent


@dataclass
class ElasticPull(Tether):
    """The policy is pulled to the initial weights. Source: arXiv 1412.6651, with a fixed centre."""

    by: float = 0.01
    """Share of the way home at one pull, in (0, 1). .01 at every step halves a displacement in 69
    steps (chosen here; no paper's number)."""
    every: Every = field(default_factory=lambda: Every(1, "minibatch"))
    """When it pulls: at every n optimizer steps, epochs or updates."""
    layers: tuple[str, ...] = ()
    """Globs on parameter names, e.g. ["*.h.11.*"]: only these are pulled. Empty = all."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"weights"})

    def __post_init__(self) -> None:
        if not 0 < self.by < 1:
            raise UserError(
                f"elastic_pull.by must be in (0, 1), not {self.by:g}: 0 does nothing, and 1 is"
                " reset_to_init"
            )

    def check_names(self, names: Collection[str]) -> None:
        check_patterns(self.layers, names, "layers")

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        if self.every.fires(clock, measured) is None:
            return ()
        return (Move("policy", toward="initial", by=self.by, where=where(self.layers)),)
