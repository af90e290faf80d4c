"""What each tether costs of a PPO step with a critic, SmolLM2-135M: seconds and memory.

    python -m benchmarks.overhead
    python -m benchmarks.render

The step of `benchmarks.step` without a tether and with one, in turn (A B A B) in one process, on
the same weights, critic, optimizer and recorded rollouts; shares are medians of the ratios of
neighbours. `nothing` is the step against itself: what the others are to be compared with. A
quick run has no scoring by the initial model, so `kl` adds that pass. A weight
event (reset) falls once in 17 updates; it is timed apart, without the evaluations on both of its
sides, and its share is a seventeenth. The mask of NLPO has a recorded rollout of its own, with the
mask policy reading along, and its update scores a narrowed vocabulary.

Settings behind the options (`--a.b.c VALUE`) apply to every row. Needs a GPU, or --tiny.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import (
    Results,
    arguments,
    command,
    given,
    median_interval,
    say,
    spread,
    synchronise,
    timed,
)
from benchmarks.memory import EACH_STEP, EACH_UPDATE, elastic_reset
from benchmarks.workers import Parent, Worker

PAIRS, EVENTS = 15, 3
WARM_UP = {"replay": 2}
"""Updates before pairs are timed, 1 where nothing is said: replay has nothing to draw at first."""
COMPILES = ("nlpo-mask",)
"""What has a recorded rollout of its own."""
PERIOD = 17
"""Updates between resets (IMDB)."""
TETHERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "nothing": lambda data: {},
    "kl": lambda data: {"kl": {"kind": "kl", "coef": 0.05}},
    "ema-step-device": lambda data: elastic_reset(**EACH_STEP),
    "ema-update-cpu": lambda data: elastic_reset(**EACH_UPDATE),
    "elastic-reset": lambda data: elastic_reset(**EACH_UPDATE),
    "kl-loss": lambda data: {"kl_loss": {"kind": "kl_loss", "coef": 0.04}},
    "kl-loss-exact": lambda data: {"kl_loss": {"kind": "kl_loss", "estimator": "exact"}},
    "rehearsal": lambda data: {
        "rehearsal": {"kind": "rehearsal", "data": {"path": data, "reference": "reference"}}
    },
    "replay": lambda data: {"replay": {"kind": "replay"}},
    "nlpo-mask": lambda data: {"nlpo_mask": {"kind": "nlpo_mask"}},
}
WHAT = {
    "nothing": "the step against itself",
    "kl": "kl: penalty in the reward, to the initial model",
    "ema-step-device": "average of every optimizer step, on the device",
    "ema-update-cpu": "average of every update, in pinned CPU memory",
    "elastic-reset": "elastic_reset: average of every update on the device, and the reset",
    "kl-loss": "kl_loss: k2, to the initial model",
    "kl-loss-exact": "kl_loss: exact, to the initial model",
    "rehearsal": "rehearsal: 16 texts of 64 tokens a step (S2P)",
    "replay": "replay: 16 earlier completions a step",
    "nlpo-mask": "nlpo_mask: top-p 0.9 of a copy",
}
TABLES: list[dict[str, Any]] = [
    {
        "title": "What a tether costs",
        "rows": ["overhead"],
        "columns": {
            "what": "Tether",
            "share_percent": "of a step, %",
            "interval_percent": "95 % interval",
            "spread_percent": "smallest, quartiles, largest",
            "base_s": "step without, s",
            "with_s": "with, s",
            "rollout_ms": "rollout, ms more",
            "scoring_ms": "scoring, ms more",
            "learning_ms": "update, ms more",
            "extra_gib": "memory, GiB more",
            "event_ms": "a reset, ms",
            "event_percent": "its share, %",
        },
        "text": "PPO with a critic, 64 completions, 4 epochs of 4 minibatches of 16, SmolLM2-135M; "
        "step without and with in turn, medians of the ratios and of the differences.",
    },
]


def peak_of(run: Callable[[], Any]) -> tuple[Any, float | None]:
    """What it returns, and the most that was allocated in GiB."""
    import torch

    if not torch.cuda.is_available():
        return run(), None
    torch.cuda.reset_peak_memory_stats()
    return run(), torch.cuda.max_memory_allocated() / 2**30


def event_seconds(updates: Any) -> float:
    """Of a reset: its moves and what the house does around them, without evaluations."""
    from tether.train.events import apply_event
    from tether.types import WeightEvent

    agent = updates.agent
    moves = agent.tethers["elastic_reset"].moves()
    event = WeightEvent(moves=moves, reason="timed")

    def run(_: int) -> None:
        apply_event(agent, event, agent.optimizer, lambda a: {})

    return statistics.median(timed(run, EVENTS))


def prepare(name: str, base: Any) -> tuple[Any, float | None]:
    """The same under the tether, warm; and the peak of the step without, before it was there."""
    _, base_gib = peak_of(base.one)
    tethers = TETHERS[name](base.settings.data.path)
    # A set that lives elsewhere than the policy is declared so before the tether asks for it.
    places = {"ema": "cpu"} if name == "ema-update-cpu" else {}
    started = time.perf_counter()
    other = base.with_tethers(tethers, places)
    other.several(WARM_UP.get(name, 1))
    synchronise()
    say(f"{name}: warm in {time.perf_counter() - started:.1f} s, compilation included")
    return other, base_gib


def measure(name: str, base: Any, prepared: Any, args: argparse.Namespace) -> dict[str, Any]:
    other, base_gib = prepared
    gib, pairs = None, []
    for _ in range(args.pairs):
        # two steps of each, of which the second counts: what a step leaves to the next one (an
        # average that a thread still takes) is paid by its own side
        without = base.several(2)[-1]
        other.one()
        found, gib = peak_of(other.one)
        pairs.append((without, found))
    ratios = [100 * (b["whole"] / a["whole"] - 1) for a, b in pairs]
    more = {
        f"{k}_ms": 1e3 * statistics.median(b[k] - a[k] for a, b in pairs)
        for k in ("rollout", "scoring", "learning")
    }
    base_s = statistics.median(a.whole for a, _ in pairs)
    event = event_seconds(other) if name == "elastic-reset" else None
    return {
        "kind": "overhead", "row": name, "what": WHAT[name],
        "share_percent": statistics.median(ratios), "spread_percent": spread(ratios),
        "interval_percent": median_interval(ratios),
        "base_s": base_s, "with_s": statistics.median(b.whole for _, b in pairs), **more,
        "extra_gib": None if gib is None or base_gib is None else gib - base_gib,
        "event_ms": None if event is None else 1e3 * event,
        "event_percent": None if event is None else 100 * event / PERIOD / base_s,
        "pairs": args.pairs, "command": command("overhead", "--only", name, *args.settings),
    }  # fmt: skip


def parser() -> argparse.ArgumentParser:
    p = arguments("overhead", __doc__, tuple(TETHERS))
    p.add_argument("--pairs", type=int, default=PAIRS, help="steps without and with, in turn")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    return p


def every_row() -> tuple[str, ...]:
    return tuple(TETHERS)


def rows(args: argparse.Namespace, ready: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """ready: called when everything has been compiled."""
    from benchmarks.worlds import Updates, World, engine, ppo

    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), "tiny" if args.tiny else "smollm2")
        method = ppo(8, 2, 2) if args.tiny else ppo()
        base = Updates(world.settings(method, engine("graph"), overrides=args.settings))
        base.several(2)
        say("the step without a tether is compiled")
        names = [n for n in TETHERS if n in (args.only or TETHERS)]
        early = {n: prepare(n, base) for n in names if n in COMPILES}
        ready()
        for name in names:
            prepared = early.pop(name, None) or prepare(name, base)
            yield measure(name, base, prepared, args)
            del prepared
            gc.collect()


def main(words: Sequence[str] | None = None) -> None:
    args = given(parser(), words)
    if args.worker:
        parent = Parent()
        for row in rows(args, parent.ready):
            parent.tell(row=row)
        return
    results = Results("overhead", args.out, args.commit, TABLES, keep=args.keep)
    for row in rows(args, lambda: None):
        results.add(row, tuple(TETHERS))


def workers(names: Sequence[str], words: Sequence[str] = ()) -> list[Worker]:
    """The process that writes those rows."""
    command = ["-m", "benchmarks.overhead", *words, "--worker", "all", "--only", *names]
    return [Worker("overhead", command)]


if __name__ == "__main__":
    main()
