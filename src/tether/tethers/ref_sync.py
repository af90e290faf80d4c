"""Reference sync: the reference of a KL penalty follows the policy, in steps.

    reference <- reference + by (policy - reference)      whenever `every` fires
    r_t       <- r_t - coef * k(log pi(a_t) - log reference(a_t))

by < 1 is TR-DPO's soft update, by = 1 its hard one and ProRL's reset of the reference. It is the
opposite direction to Elastic Reset: home moves on, so the policy may go farther. The set
`reference` may be read by other tethers too (`kl_loss` with `reference: reference`); a coefficient
of 0 keeps it for them alone.

With `optimizer: clear` (ProRL) the sync waits for the end of the update and is an event: evaluated
on both sides, with its reason in the record. Otherwise it is quiet.

Source: TR-DPO, Gorbatovski et al. 2024, arXiv 2404.09656; ProRL, Liu et al. 2025, arXiv 2505.24864.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from tether.config.errors import UserError
from tether.tethers.penalty import Follower
from tether.tethers.triggers import Every, Trigger
from tether.types import Clock, Experience, Keep, Measured, Move, Total, Unit, WeightEvent


@dataclass
class RefSync(Follower):
    """KL in the reward to a reference that follows the policy. Source: arXiv 2404.09656."""

    every: Trigger = field(default_factory=lambda: Every(512, "minibatch"))
    """When the reference follows (512 optimizer steps: TRL's `ref_model_sync_steps`; ProRL v2: 200
    to 500)."""
    by: float = 0.6
    """Share of the way to the policy, in (0, 1]: TR-DPO's alpha, which weighs the new weights
    (TRL's `ref_model_mixup_alpha` .6). 1 = the reference becomes the policy (ProRL)."""
    optimizer: Keep = "keep"
    """The policy optimizer's moments at a sync (ProRL clears them, its second version keeps
    them)."""

    kind: ClassVar[str] = "ref_sync"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.by <= 1:
            raise UserError(
                f"ref_sync.by must be in (0, 1], not {self.by:g}: it is the share of the way from"
                " the reference to the policy (0 is the `kl` tether)"
            )

    @property
    def home(self) -> str:
        return "reference"

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        return super().report(experience, total) | {"syncs": float(self.every.fired)}

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        super().after(unit, clock, measured)
        if self.optimizer == "clear" and unit != "update":
            return ()
        if (why := self.every.fires(clock, measured)) is None:
            return ()
        follow = Move("reference", toward="policy", by=self.by)
        if self.optimizer == "clear":
            return (WeightEvent((follow,), why, optimizer="clear"),)
        return (follow,)
