"""When something happens. Parts that tethers hold; the loop never sees them.

A trigger is asked at ticks and answers with a reason or None. It remembers how often it fired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tether.config.errors import UserError
from tether.types import Clock, Measured, Remembers, Unit

DRIFT = "drift/kl_initial.exact_nats_per_seq"


@dataclass
class Trigger(Remembers):
    """Base of all triggers. Source: the seams of tether itself."""

    def __post_init__(self) -> None:
        self.fired = 0
        """How often it fired since the start of the run."""

    def fires(self, clock: Clock, measured: Measured) -> str | None:
        """The reason, or None. Asking changes memory: ask once a tick, and skip no tick."""
        raise NotImplementedError

    def expected(self, clock: Clock) -> int | None:
        """How often it must have fired by `clock`; None where that depends on measurements."""
        return None


@dataclass
class Every(Trigger):
    """At counts start, start + n, start + 2 n, ... of a clock (counts are 1 after the first).

    Source: the conventions of the three Elastic Reset experiments, as 0-based indices of n = 17,
    260, 2000: `start=1` -> 0, 17, 34 (IMDB, the index 0 resets); `start=n+1` -> 260, 520
    (StackLLaMA); `start=n`, the default -> 1999, 3999 (Lewis game).
    """

    n: int = 1
    """Counts between two firings."""
    unit: Unit = "update"
    """What is counted: minibatch (optimizer steps), epoch, or update."""
    start: int | None = None
    """First count that fires, from 1; default: n."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < 1:
            raise UserError(f"every.n must be at least 1, not {self.n}")
        if self.start is not None and self.start < 1:
            raise UserError(f"every.start counts from 1 (the first {self.unit}), not {self.start}")
        if self.unit not in ("minibatch", "epoch", "update"):
            raise UserError(f"every.unit is minibatch, epoch or update, not '{self.unit}'")
        self.passed = 0
        """Due times up to the last tick at which it was asked."""

    def fires(self, clock: Clock, measured: Measured | None = None) -> str | None:
        due = self.expected(clock)
        if due <= self.passed:
            return None
        self.passed = due
        self.fired += 1
        count = getattr(clock, self.unit)
        return f"{count} {_plural(self.unit, count)}"

    def expected(self, clock: Clock) -> int:
        """Due times up to `clock`. A clock finer than the ticks it is asked at fires once for
        several due times: see `problem`."""
        count: int = getattr(clock, self.unit)
        return max(0, (count - self.first()) // self.n + 1)

    def first(self) -> int:
        """The first count that fires."""
        return self.n if self.start is None else self.start

    def problem(self, clock: Clock) -> str | None:
        """At the end of a run: what should have happened and did not, or None.

        Each due time must have been passed, and at least one firing seen (early stops can keep a
        clock of optimizer steps or epochs from ever being due).
        """
        due, count = self.expected(clock), getattr(clock, self.unit)
        if due == self.passed and self.fired > 0:
            return None
        return (
            f"every {self.n} {_plural(self.unit, self.n)}: fired {self.fired} times, was due {due} "
            f"times in {count} {_plural(self.unit, count)}"
        )


@dataclass
class DriftBudget(Trigger):
    """When a measured drift passes a budget; again only after it fell below `rearm` of it.

    Reads measurements of newer weights than the last one only, so a value that is asked about twice
    fires once. Source: tether (a drift budget in place of Elastic Reset's clock).
    """

    budget: float = 4.0
    """In the metric's unit (nats per completion for the default metric)."""
    metric: str = DRIFT
    """Name of a measurement; the default is measured at evaluations,
    `kl/initial.k1_nats_per_seq` at every rollout."""
    rearm: float = 0.8
    """After firing, silent until a measurement is below this share of the budget. A reset that
    leaves drift above it (an average that keeps much) is thus not repeated at once."""
    gap: int = 1
    """Least number of updates between two firings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget <= 0:
            raise UserError(f"drift_budget.budget must be > 0, not {self.budget:g}")
        if not 0 < self.rearm <= 1:
            raise UserError(f"drift_budget.rearm must be in (0, 1], not {self.rearm:g}")
        self.armed = True
        self.before: float | None = None
        """The measurement before the newest one: how far a budget is passed lies between them."""
        self.last: int | None = None
        self.version = -1

    def fires(self, clock: Clock, measured: Measured) -> str | None:
        new = measured.newer(self.metric, self.version)
        if new is None:
            return None
        value, self.version = new
        before, self.before = self.before, value
        if value < self.rearm * self.budget:
            self.armed = True
        if value <= self.budget or not self.armed or not _apart(clock, self.last, self.gap):
            return None
        self.armed, self.last = False, clock.update
        self.fired += 1
        over = f"{self.metric} {value:.4g} > {self.budget:g}, passed by {value - self.budget:.4g}"
        return over if before is None else f"{over} since a measurement of {before:.4g}"


@dataclass
class Plateau(Trigger):
    """When a measurement has not improved for a while; then it starts anew from the next one.

    Reads measurements of newer weights only. Source: tether (resets where reward has levelled off).
    """

    metric: str = "reward/score.mean"
    """Name of a measurement."""
    patience: int = 5
    """Measurements without improvement."""
    min_delta: float = 0.0
    """What counts as an improvement over the best one, in the metric's unit: the hysteresis."""
    direction: Literal["max", "min"] = "max"
    """Which way is better."""
    gap: int = 1
    """Least number of updates between two firings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience < 1:
            raise UserError(f"plateau.patience must be at least 1, not {self.patience}")
        if self.min_delta < 0:
            raise UserError(f"plateau.min_delta must be >= 0, not {self.min_delta:g}")
        if self.direction not in ("max", "min"):
            raise UserError(f"plateau.direction is max or min, not '{self.direction}'")
        self.best: float | None = None
        self.stale = 0
        self.last: int | None = None
        self.version = -1

    def fires(self, clock: Clock, measured: Measured) -> str | None:
        new = measured.newer(self.metric, self.version)
        if new is None:
            return None
        value, self.version = new
        sign = 1.0 if self.direction == "max" else -1.0
        if self.best is None or sign * (value - self.best) > self.min_delta:
            self.best, self.stale = value, 0
            return None
        self.stale += 1
        if self.stale < self.patience or not _apart(clock, self.last, self.gap):
            return None
        reason = f"{self.metric} not beyond {self.best:.4g} for {self.stale} measurements"
        self.best, self.stale, self.last = None, 0, clock.update
        self.fired += 1
        return reason


@dataclass
class AnyOf(Trigger):
    """When at least one of its triggers fires. Source: tether."""

    triggers: tuple[Trigger, ...] = ()
    """Two or more triggers; all are asked at every tick."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _some(self.triggers, "any_of")

    def fires(self, clock: Clock, measured: Measured) -> str | None:
        reasons = [r for t in self.triggers if (r := t.fires(clock, measured)) is not None]
        if not reasons:
            return None
        self.fired += 1
        return " and ".join(reasons)


@dataclass
class AllOf(Trigger):
    """When each of its triggers has fired since this one last did, at the same tick or earlier.

    `every 10 updates` and a drift budget: after the budget is passed, but not within 10 updates.
    Source: tether.
    """

    triggers: tuple[Trigger, ...] = ()
    """Two or more triggers; all are asked at every tick."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _some(self.triggers, "all_of")
        self.reasons: list[str] = [""] * len(self.triggers)
        """What each trigger said since this one last fired; empty = nothing yet."""

    def fires(self, clock: Clock, measured: Measured) -> str | None:
        answers = [t.fires(clock, measured) for t in self.triggers]
        reasons = [new or old for new, old in zip(answers, self.reasons, strict=True)]
        if not all(reasons):
            self.reasons = reasons
            return None
        self.reasons = [""] * len(self.triggers)
        self.fired += 1
        return " and ".join(reasons)


def budgets(trigger: Trigger) -> list[DriftBudget]:
    """Every drift budget in a trigger, nested ones too."""
    inner = [t for t in trigger._parts().values() if isinstance(t, Trigger)]
    own = [trigger] if isinstance(trigger, DriftBudget) else []
    return own + [b for t in inner for b in budgets(t)]


def _plural(unit: str, count: int) -> str:
    word = {"minibatch": "optimizer step"}.get(unit, unit)
    return word if count == 1 else f"{word}s"


def _apart(clock: Clock, last: int | None, gap: int) -> bool:
    return last is None or clock.update - last >= gap


def _some(triggers: tuple[Trigger, ...], kind: str) -> None:
    if len(triggers) < 2:
        raise UserError(f"{kind}.triggers needs at least two triggers, not {len(triggers)}")
