"""EMA anchor: a KL penalty to a running average of the policy, which is never sent back.

    anchor <- d anchor + (1 - d) policy      whenever `average` fires
    r_t    <- r_t - coef * k(log pi(a_t) - log anchor(a_t))

The leash gives way: it holds the pace of drift, not its sum. The average is a set of its own,
`anchor`, so that this stands beside Elastic Reset (whose average is `ema`). A coefficient of 0 only
keeps the average, for `kl_loss` with `reference: anchor`.

Source: stage one of WARP (Ramé et al. 2024, arXiv 2406.16768: r <- (1 - mu) r + mu w, penalty
beta log(pi / pi_r)); EMA-PG, arXiv 2602.04417.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from tether.config.errors import UserError
from tether.core.averages import average_problem, half_life_decay
from tether.tethers.penalty import Follower
from tether.tethers.triggers import Every
from tether.types import Clock, Measured, Move, Unit, WeightEvent

DECAY = 0.99


@dataclass
class EMAAnchor(Follower):
    """KL(policy || its running average) in the reward. Source: stage one of arXiv 2406.16768."""

    average: Every = field(default_factory=lambda: Every(1, "minibatch"))
    """When the average takes the policy in."""
    decay: float = DECAY
    """d = 1 - mu of one averaging; .99 at every optimizer step forgets half in 69 steps (chosen
    here)."""
    half_life: float | None = None
    """Instead of `decay`: optimizer steps after which half of the average is forgotten."""

    kind: ClassVar[str] = "ema_anchor"

    def __post_init__(self) -> None:
        super().__post_init__()
        if why := average_problem(self.decay, self.half_life, DECAY):
            raise UserError(f"ema_anchor: {why}")
        self.steps = 0
        """Optimizer steps at the last averaging."""

    @property
    def home(self) -> str:
        return "anchor"

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        super().after(unit, clock, measured)
        if self.average.fires(clock, measured) is None:
            return ()
        d = self.decay
        if self.half_life is not None:
            d = half_life_decay(self.half_life, clock.minibatch - self.steps)
        self.steps = clock.minibatch
        return (Move("anchor", toward="policy", by=1.0 - d),)
