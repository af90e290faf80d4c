"""Ticks and weight events: tethers wish, the house moves (box numbers 8, 11 and 12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from tether.config.errors import UserError
from tether.core.weights import exchange_, snapshot
from tether.train.agent import Agent
from tether.train.optimizer import MasterOptimizer
from tether.types import Clock, Move, Unit, Until, WeightEvent

BISECTIONS = 7
"""Halvings of [0, 1] for a `Move.by` with a limit: the share is found to within 1/128."""


def tick(agent: Agent, unit: Unit, clock: Clock) -> list[WeightEvent]:
    """Quiet moves at once, in the tethers' order; events are returned for after them."""
    wishes = [
        (name, wish)
        for name, t in agent.tethers.items()
        for wish in t.after(unit, clock, agent.measured)
    ]
    agent.sets.apply(wish for _, wish in wishes if isinstance(wish, Move))
    events = [(name, wish) for name, wish in wishes if isinstance(wish, WeightEvent)]
    if events and unit != "update":
        raise RuntimeError(
            f"tethers.{events[0][0]} asks for a weight event after a {unit}; events belong between"
            " updates: yield it for unit 'update', or a plain Move"
        )
    return [wish for _, wish in events]


@dataclass(frozen=True)
class Resolved:
    """A move with its number; `measured` = the metric there, where a limit asked for it."""

    move: Move
    by: float
    measured: float | None = None

    def record(self, wished: Move) -> dict[str, object]:
        out: dict[str, object] = {"what": wished.what, "toward": wished.toward, "by": self.by}
        if isinstance(wished.by, Until):
            out |= {"metric": wished.by.metric, "limit": wished.by.limit, "measured": self.measured}
        return out


def resolve(agent: Agent, move: Move, measure: Callable[[Agent], dict[str, float]]) -> Resolved:
    """A move with `Until` gets its number: by bisection the largest share whose metric is within
    the limit, where the metric grows with the share. Where it does not, the share is one that was
    measured to be within, if perhaps not the largest; 0 where none was.

    `measure` evaluates the drift gauges of the live policy on the probe prompts.
    """
    until = move.by
    if not isinstance(until, Until):
        return Resolved(move, until)
    start = snapshot(agent.sets.sets[move.what])
    counts = agent.sets.counts.copy()

    def at(by: float) -> float:
        agent.sets.apply([replace(move, by=by)])
        metrics = measure(agent)
        exchange_(agent.sets.sets[move.what], {k: v.clone() for k, v in start.items()})
        agent.sets.publish(move.what)
        if until.metric not in metrics:
            raise UserError(
                f"a move's limit is on '{until.metric}'; measured on probe prompts are"
                f" {', '.join(sorted(metrics))}"
            )
        return metrics[until.metric]

    low, high = 1.0, 1.0
    found = at(1.0)
    if not found <= until.limit:
        low, inside = 0.0, None
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            value = at(middle)
            if value <= until.limit:
                low, inside = middle, value
            else:
                high = middle
        found = at(0.0) if inside is None else inside
    agent.sets.counts = counts  # the trials were no moves
    return Resolved(replace(move, by=low), low, found)


@torch.no_grad()
def apply_event(
    agent: Agent,
    event: WeightEvent,
    optimizer: MasterOptimizer,
    measure: Callable[[Agent], dict[str, float]],
) -> list[dict[str, object]]:
    """Execute an event; returns its moves as record values."""
    done: list[dict[str, object]] = []
    for move in event.moves:
        resolved = resolve(agent, move, measure)
        agent.sets.apply([resolved.move])
        done.append(resolved.record(move))
    if event.optimizer == "clear":
        optimizer.clear("policy")
    if event.critic == "clear" and agent.critic is not None:
        agent.sets.apply([Move("critic", "critic_initial")])
        optimizer.clear("critic")
    if event.controllers == "clear":
        for t in agent.tethers.values():
            t.restart()
    agent.version += 1
    return done
