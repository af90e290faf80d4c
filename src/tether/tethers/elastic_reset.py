"""Elastic Reset: the policy falls back to its running average, the average to the start.

    ema <- d ema + (1 - d) policy          whenever `average` fires
    policy <- ema, then ema <- initial     whenever `reset` fires, between two updates

At one tick the average comes first, then the reset. Optimizer, critic and controllers go on as they
are unless told otherwise; the objective is unchanged, so a `kl` tether may stand beside it, to
`initial` or to `ema` (the average kept here).

With a drift budget b as `reset`, the average itself may be too far away. Then the policy goes only
part of the way to it,

    policy <- initial + a (ema - initial)

with the largest a in [0, 1] (by bisection) whose drift, measured on probe prompts, is within b / 2:
right after every reset, drift is below the budget. The record's event holds a and that drift.

Source: Noukhovitch et al., NeurIPS 2023, arXiv 2312.07551; order and conventions as in
mnoukhov/RL4LMs (branch `paper`) and mnoukhov/trl@dd79a2d. The budget is tether's own.

Three experiments, three clocks (`decay` .995 in all):

| | average | reset | what a reset keeps of a linear drift |
|---|---|---|---|
| IMDB | every update | Every(17, start=1) | 4.4 % |
| StackLLaMA | every epoch | Every(260, start=261) | 44 to 81 % |
| Lewis game | every 100 steps | Every(2000, "minibatch") | 5 % |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from tether.config.errors import UserError
from tether.core.averages import average_problem, half_life_decay
from tether.tethers.base import Place, Tether
from tether.tethers.layers import check_patterns, where
from tether.tethers.triggers import DRIFT, Every, Trigger, budgets
from tether.types import (
    Clock,
    Experience,
    Keep,
    Measured,
    Move,
    Total,
    Unit,
    Until,
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
    layers: tuple[str, ...] = ()
    """Globs on parameter names, e.g. ["*.h.11.*"]: only these fall back. Empty = all."""
    within: float | Literal["half", "no_limit"] = "half"
    """Largest drift right after a reset, in the unit of the budget (nats per completion by
    default). half: half of the drift budget in `reset`, no limit where it holds none. no_limit:
    the average as it is. With `layers` the other parameters keep their drift, so it may be
    passed."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"weights"})
    kind: ClassVar[str] = "elastic_reset"
    """Name in the catalog, for messages."""

    def __post_init__(self) -> None:
        if why := average_problem(self.decay, self.half_life, DECAY):
            raise UserError(f"{self.kind}: {why}")
        self.limit()
        self.steps = 0
        """Optimizer steps at the last averaging."""
        self.averagings = 0
        """Averagings since the last reset: they decide what the reset is."""

    def keeps(self) -> tuple[str, ...]:
        return ("ema",)

    def check_names(self, names: Collection[str]) -> None:
        check_patterns(self.layers, names, "layers")

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        return {"averagings_since_reset": float(self.averagings)}

    def limit(self) -> Until | None:
        """What the drift must be within right after a reset, or None."""
        held = budgets(self.reset)
        if self.within == "no_limit" or (self.within == "half" and not held):
            return None
        metric = held[0].metric if len(held) == 1 else DRIFT
        if metric in _SAME:
            metric = DRIFT
        if self.within == "half":
            if len(held) > 1:
                raise UserError(
                    f"{self.kind}.within: {self.kind}.reset holds {len(held)} drift budgets; say"
                    " how far the policy may be after a reset: a number, or no_limit"
                )
            if not metric.startswith("drift/"):
                raise UserError(
                    f"{self.kind}.within: half of a budget on {metric} cannot be measured on probe"
                    f" prompts; give a number (of {DRIFT}), or no_limit"
                )
            return Until(metric, held[0].budget / 2)
        if not self.within > 0:
            raise UserError(f"{self.kind}.within must be > 0, not {self.within:g}")
        return Until(metric if metric.startswith("drift/") else DRIFT, float(self.within))

    def moves(self) -> tuple[Move, ...]:
        """What a reset does."""
        chosen, limit = where(self.layers), self.limit()
        back = Move("policy", toward="ema", where=chosen)
        home = Move("ema", toward="initial", where=chosen)
        if limit is None:
            return back, home
        return Move("policy", toward="initial", where=chosen), replace(back, by=limit), home

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        wishes: list[Move | WeightEvent] = []
        if self.average.fires(clock, measured) is not None:
            wishes.append(Move("ema", toward="policy", by=1.0 - self._decay(clock)))
            self.steps = clock.minibatch
            self.averagings += 1
        if unit == "update" and (why := self.reset.fires(clock, measured)) is not None:
            wishes.append(
                WeightEvent(
                    moves=self.moves(),
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


_SAME = ("kl/initial.k1_nats_per_seq", "drift/kl_initial.k1_nats_per_seq")
"""Estimates of what `DRIFT` is exactly, in the same unit."""
