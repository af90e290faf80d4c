"""What a reset costs: how long until the reward of before is regained, and the drift by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Seen:
    """One validation evaluation of a run, in the order of the record."""

    update: int
    side: Literal["", "before", "after"]
    reward: float
    drift: float


@dataclass(frozen=True)
class Recovery:
    """One reset. `updates` and `drift` are None where the reward was not regained (censored)."""

    update: int
    """Completed updates at the reset."""
    reward_before: float
    drift_before: float
    reward_after: float | None
    drift_after: float | None
    updates: int | None
    """Updates from the reset to the first evaluation whose reward is at least `reward_before`."""
    drift: float | None
    """Drift at that evaluation."""
    watched: int
    """Updates from the reset to the last evaluation that was looked at (the next reset or the
    end): a censored recovery took longer than this."""


def recoveries(seen: Sequence[Seen]) -> list[Recovery]:
    """One entry for every `before` evaluation.

    The window of a reset ends with the next `before` evaluation (itself still part of the window,
    being measured before that reset) or with the run. Resolution: the evaluation times.
    """
    starts = [i for i, s in enumerate(seen) if s.side == "before"]
    found: list[Recovery] = []
    # one more end than resets when there is none: nothing to pair, so not strict
    for i, stop in zip(starts, [*starts[1:], len(seen) - 1], strict=False):
        before, window = seen[i], seen[i + 1 : stop + 1]
        after = next((s for s in window if s.side == "after"), None)
        back = next((s for s in window if s.reward >= before.reward), None)
        found.append(
            Recovery(
                update=before.update,
                reward_before=before.reward,
                drift_before=before.drift,
                reward_after=None if after is None else after.reward,
                drift_after=None if after is None else after.drift,
                updates=None if back is None else back.update - before.update,
                drift=None if back is None else back.drift,
                watched=(window[-1].update - before.update) if window else 0,
            )
        )
    return found
