"""Peak GPU memory of PPO with a critic, SmolLM2-135M: where the average of Elastic Reset lives,
with and without recomputed activations, and as an adapter.

    python -m benchmarks.memory
    python -m benchmarks.render

The step of `benchmarks.step` (64 completions, 4 epochs of 4 minibatches of 16, 32 + 64 tokens,
bf16 working weights, fp32 masters, a critic with a trunk of its own, full fine-tuning unless the
row says adapter), a new model for each row. The decoding step is recorded without being compiled,
which saves a minute a row; the peaks of compiled ones are in step.json. A peak is torch's
max_memory_allocated over --repeats updates after the first, and max_memory_reserved, which is what
the allocator took from the card. CUDA's own context (about half a GiB) is in neither.

Settings behind the options (`--a.b.c VALUE`) apply to every row. Needs a GPU, or --tiny.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import Results, arguments, command, given, say, spread
from benchmarks.workers import Parent, Worker, one_after_the_other

REPEATS = 2
EACH_STEP = {"average": {"kind": "every", "n": 1, "unit": "minibatch"}}
EACH_UPDATE = {"average": {"kind": "every", "n": 1, "unit": "update"}}


def elastic_reset(**settings: Any) -> dict[str, Any]:
    """With a reset that no benchmark lives to see: its cost is measured apart."""
    return {"elastic_reset": {"kind": "elastic_reset", "reset": {"n": 50_000}, **settings}}


@dataclass(frozen=True)
class Case:
    tethers: dict[str, Any] = field(default_factory=dict)
    average: str = "-"
    model: dict[str, Any] = field(default_factory=dict)
    base: str = "ppo"
    """The row that `extra` is over."""


RECOMPUTE = {"gradient_checkpointing": True, "capture": False, "compile": False}
"""Such passes cannot be recorded."""
LORA = {"lora": {"rank": 16}, "capture": False}
"""Passes that are not recorded either, for comparison with those."""
CASES = {
    "ppo": Case(),
    "elastic-device": Case(elastic_reset(**EACH_STEP), "device"),
    "elastic-cpu": Case(elastic_reset(**EACH_UPDATE), "pinned CPU"),
    "recompute": Case(model=RECOMPUTE, base="recompute"),
    "elastic-device-recompute": Case(
        elastic_reset(**EACH_STEP), "device", RECOMPUTE, base="recompute"
    ),
    "lora": Case(model=LORA, base="lora"),
    "elastic-device-lora": Case(elastic_reset(**EACH_STEP), "device", LORA, base="lora"),
}
TABLES: list[dict[str, Any]] = [
    {
        "title": "Peak memory",
        "rows": ["memory"],
        "columns": {
            "tethers": "Tether",
            "average": "average in",
            "weights": "Weights",
            "recompute": "activations recomputed",
            "allocated_gib": "allocated, GiB",
            "reserved_gib": "reserved, GiB",
            "extra_gib": "over the same without a tether, GiB",
            "before_gib": "before the model, GiB",
            "whole_s": "s a step",
            "spread_s": "smallest, quartiles, largest",
        },
        "text": "PPO with a critic, 64 completions of 32 + 64 tokens, minibatches of 16. With the "
        "average on the device it takes the policy in after every optimizer step, in pinned CPU "
        "memory after every update. Seconds are of a decoding step that is not compiled.",
    },
]


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """allocated_gib and reserved_gib are None without a GPU."""
    import torch

    from benchmarks.worlds import Updates, World, engine, ppo

    case, gpu = CASES[name], torch.cuda.is_available()
    before = torch.cuda.memory_allocated() / 2**30 if gpu else None
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), "tiny" if args.tiny else "smollm2")
        method = ppo(8, 2, 2) if args.tiny else ppo()
        settings = world.settings(
            method, engine("graph", compile=False), {"model": case.model}, overrides=args.settings
        )
        updates = Updates(settings)
        if case.tethers:
            places = {"ema": "cpu"} if case.average == "pinned CPU" else {}
            updates = updates.with_tethers(case.tethers, places)
        say(f"{name}: built")
        updates.one()
        if gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        seconds = [x.whole for x in updates.several(args.repeats)]
        trained = sum(p.numel() for p in updates.agent.optimizer.groups["policy"])
    return {
        "kind": "memory", "row": name, "tethers": next(iter(case.tethers), "none"),
        "average": case.average, "weights": "adapter" if "lora" in case.model else "all",
        "recompute": "yes" if case.model is RECOMPUTE else "no", "trained": trained,
        "allocated_gib": torch.cuda.max_memory_allocated() / 2**30 if gpu else None,
        "reserved_gib": torch.cuda.max_memory_reserved() / 2**30 if gpu else None,
        "before_gib": before, "whole_s": statistics.median(seconds), "spread_s": spread(seconds),
        "repeats": args.repeats, "command": command("memory", "--only", name, *args.settings),
    }  # fmt: skip


def over_base(rows: list[dict[str, Any]]) -> None:
    """Fill in `extra_gib`, where the row without a tether is there."""
    known = {r["row"]: r["allocated_gib"] for r in rows}
    for r in rows:
        base = CASES[r["row"]].base
        mine, other = r["allocated_gib"], known.get(base)
        told = r["row"] != base and mine is not None and other is not None
        r["extra_gib"] = mine - other if told else None


def parser() -> argparse.ArgumentParser:
    p = arguments("memory", __doc__, tuple(CASES))
    p.add_argument("--repeats", type=int, default=REPEATS, help="updates that are measured")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    return p


def every_row() -> tuple[str, ...]:
    return tuple(CASES)


def main(words: Sequence[str] | None = None) -> None:
    args = given(parser(), words)
    names = [n for n in CASES if n in (args.only or CASES)]
    if args.worker:
        parent = Parent()
        parent.ready()
        for name in names:
            parent.tell(row=measure(name, args))
        return
    results = Results("memory", args.out, args.commit, TABLES, keep=args.keep)
    if args.tiny:
        for name in names:
            add(results, measure(name, args))
        return
    found = workers(names, ["--repeats", str(args.repeats), *args.settings])
    if failed := one_after_the_other(found, lambda _, row: add(results, row)):
        raise SystemExit(f"failed: {', '.join(failed)}")


def add(results: Results, row: dict[str, Any]) -> None:
    """With what a row adds to its base, and bases to the rows over them."""
    results.rows = [r for r in results.rows if r["row"] != row["row"]] + [row]
    over_base(results.rows)
    results.add(row, tuple(CASES))


def workers(names: Sequence[str], words: Sequence[str] = ()) -> list[Worker]:
    """A process a row: what an earlier one left on the card would count in the next one's peak."""
    common = ["-m", "benchmarks.memory", *words, "--only"]
    return [Worker(name, [*common, name, "--worker", name]) for name in names]


if __name__ == "__main__":
    main()
