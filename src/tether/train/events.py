"""Ticks and weight events: tethers wish, the house moves (box numbers 8, 11 and 12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

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


def resolve(
    agent: Agent, move: Move, measure: Callable[[Agent], dict[str, float]]
) -> tuple[Move, float]:
    """A move with `Until` gets its number: the largest share whose metric is within the limit.

    `measure` evaluates the drift gauges of the live policy on the probe prompts.
    """
    if not isinstance(move.by, Until):
        return move, move.by
    start = snapshot(agent.sets.sets[move.what])
    counts = agent.sets.counts.copy()

    def within(by: float) -> bool:
        agent.sets.apply([replace(move, by=by)])
        metrics = measure(agent)
        if move.by.metric not in metrics:  # type: ignore[union-attr]
            raise ValueError(
                f"a move's limit is on '{move.by.metric}'; measured are {sorted(metrics)}"  # type: ignore[union-attr]
            )
        ok = metrics[move.by.metric] <= move.by.limit  # type: ignore[union-attr]
        exchange_(agent.sets.sets[move.what], {k: v.clone() for k, v in start.items()})
        agent.sets.publish(move.what)
        return ok

    low, high = 0.0, 1.0
    if within(1.0):
        low = 1.0
    else:
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if within(middle) else (low, middle)
    agent.sets.counts = counts  # the trials were no moves
    return replace(move, by=low), low


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
        resolved, by = resolve(agent, move, measure)
        agent.sets.apply([resolved])
        done.append({"what": move.what, "toward": move.toward, "by": by})
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
