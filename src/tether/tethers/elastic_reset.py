"""Elastic Reset: the policy falls back to its running average, the average to the start.

    ema <- d ema + (1 - d) policy          whenever `average` fires
    policy <- ema, then ema <- initial     whenever `reset` fires, between two updates

At one tick the average comes first, then the reset. Optimizer, critic and controllers go on as they
are unless told otherwise; the objective is unchanged, so a `kl` tether may stand beside it, to
`initial` or to `ema` (the average kept here).

Source: Noukhovitch et al., NeurIPS 2023, arXiv 2312.07551; order and conventions as in
mnoukhov/RL4LMs (branch `paper`) and mnoukhov/trl@dd79a2d.

Three experiments, three clocks (`decay` .995 in all):

| | average | reset | what a reset keeps of a linear drift |
|---|---|---|---|
| IMDB | every update | Every(17, start=1) | 4.4 % |
| StackLLaMA | every epoch | Every(260, start=261) | 44 to 81 % |
| Lewis game | every 100 steps | Every(2000, "minibatch") | 5 % |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from tether.config.errors import UserError
from tether.core.averages import half_life_decay
from tether.tethers.base import Place, Tether
from tether.tethers.triggers import Every, Trigger
from tether.types import (
    Clock,
    Experience,
    Keep,
    Measured,
    Move,
    Total,
    Unit,
    WeightEvent,
)

DECAY = 0.995


@dataclass
class ElasticReset(Tether):
    """Policy to its average, average to the start. Source: arXiv 2312.07551."""

    reset: Trigger = field(default_factory=lambda: Every(17, "update"))
    """When the policy falls back (IMDB: every 17 updates; `start: 1` to reset at index 0 too)."""
    average: Every = field(default_factory=lambda: Every(1, "update"))
    """When the average takes the policy in (IMDB: once an update)."""
    decay: float = DECAY
    """d of one averaging (.995 in all three experiments). n averagings after a reset the average
    holds 1 - d^n of the way: 8 % for 17 at .995, so that a reset is nearly one to the initial
    weights; .9 holds 83 %."""
    half_life: float | None = None
    """Instead of `decay`: optimizer steps after which half of the average is forgotten,
    d = 2^(-U / half_life) with U optimizer steps since the previous averaging (U = n for a clock of
    minibatches; counted for epochs and updates, where early stops make it vary)."""
    optimizer: Keep = "keep"
    """The policy optimizer's moments at a reset (kept in the paper's code)."""
    critic: Keep = "keep"
    """The value model at a reset (kept in the paper's code). A trunk that is shared with the policy
    moves with the policy whatever this says."""
    controllers: Keep = "keep"
    """Adaptive KL coefficients at a reset (kept in the paper's code)."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"weights"})

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise UserError(f"elastic_reset.decay must be in [0, 1], not {self.decay:g}")
        if self.half_life is not None:
            if self.decay != DECAY:
                raise UserError("elastic_reset takes decay or half_life, not both: leave one out")
            if self.half_life <= 0:
                raise UserError(
                    f"elastic_reset.half_life must be > 0 optimizer steps, not {self.half_life:g}"
                )
        self.steps = 0
        """Optimizer steps at the last averaging."""
        self.averagings = 0
        """Averagings since the last reset: they decide what the reset is."""

    def keeps(self) -> tuple[str, ...]:
        return ("ema",)

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        return {"averagings_since_reset": float(self.averagings)}

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        wishes: list[Move | WeightEvent] = []
        if self.average.fires(clock, measured) is not None:
            wishes.append(Move("ema", toward="policy", by=1.0 - self._decay(clock)))
            self.steps = clock.minibatch
            self.averagings += 1
        if unit == "update" and (why := self.reset.fires(clock, measured)) is not None:
            wishes.append(
                WeightEvent(
                    moves=(Move("policy", toward="ema"), Move("ema", toward="initial")),
                    reason=f"{why}; {self.averagings} averagings since the last reset",
                    optimizer=self.optimizer,
                    critic=self.critic,
                    controllers=self.controllers,
                )
            )
            self.averagings = 0
        return wishes

    def _decay(self, clock: Clock) -> float:
        if self.half_life is None:
            return self.decay
        return half_life_decay(self.half_life, clock.minibatch - self.steps)
