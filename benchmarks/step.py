"""Whole updates of the library's own loop, PPO with a critic and GRPO, engine `graph` against `hf`.

    python -m benchmarks.step
    python -m benchmarks.step --only smollm2-ppo-graph
    python -m benchmarks.render

PPO: 64 completions, 4 epochs of 4 minibatches of 16, a critic with a trunk of its own. GRPO: 256
completions in groups of 8, one epoch, one optimizer step. Random weights of the right shape, bf16
working weights and fp32 masters, 32-token prompts, 64 new tokens, a reward that takes no time. No
end of text is forced or forbidden: it is one word of tens of thousands, and the mean length is in
the row. `graph` is a run told to be quick (`benchmarks.worlds.QUICK`: compiled layers, recorded
passes, the engine's log-probs as the old ones, drift measured in evaluations alone); `hf` is a run
that is told nothing. A process for each model and algorithm: they
compile side by side and are timed one after the other. Warm-up excluded; medians of --repeats.

Settings behind the options (`--a.b.c VALUE`) apply to every row. Needs a GPU, or --tiny.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Results, arguments, command, given, say, spread
from benchmarks.workers import Parent, Worker, one_after_the_other

MODELS, ALGORITHMS, ENGINES = ("smollm2", "gpt2"), ("ppo", "grpo"), ("graph", "hf")
ROWS = tuple(f"{m}-{a}-{e}" for m in MODELS for a in ALGORITHMS for e in ENGINES)
REPEATS, BASELINE = 7, 3
"""Updates that are timed; of engine `hf`."""
WARM_UP = {"graph": 3, "hf": 1}
"""The first update compiles; the second one allocates what the optimizer keeps."""
TABLES: list[dict[str, Any]] = [
    {
        "title": "Whole step",
        "rows": ["step"],
        "columns": {
            "model": "Model",
            "algorithm": "Algorithm",
            "engine": "Engine",
            "whole_s": "s a step",
            "spread_s": "smallest, quartiles, largest",
            "rollout_s": "rollout",
            "scoring_s": "scoring",
            "learning_s": "update",
            "rest_s": "rest",
            "limit_s": "limit, s",
            "of_limit": "limit / step",
            "peak_gib": "peak, GiB",
            "tokens": "tokens a completion",
        },
        "text": "Medians. The phases are those of a run's timing.jsonl, each ending with the "
        "device; rest is what lies between them, the wait for rewards included. The limit is "
        "counted: operations of the products with weights (prompts, what is scored, forward and "
        "backward passes) over the operations a second of a large bf16 product, and bytes of "
        "decoding and of AdamW over the bytes a second of a copy, both measured on the card in the "
        "same process.",
    },
    {
        "title": "Ceilings",
        "rows": ["step"],
        "columns": {
            "row": "Row",
            "matrix_tflops": "bf16 product, TFLOP/s",
            "copy_tbs": "copy, TB/s",
            "operations_t": "operations a step, T",
            "moved_gb": "bytes a step, GB",
            "learning_tflops": "update, TFLOP/s",
            "first_step_s": "first step, s",
        },
        "text": "What the limit of each row is made of. The first step compiles, and did so beside "
        "the other processes.",
    },
]


def counted(updates: Any) -> tuple[float, float, float]:
    """Operations, bytes and the update's own operations of one step, at least."""
    from benchmarks.ceilings import decode_bytes, forward, step_bytes
    from benchmarks.worlds import PROMPT

    agent, s = updates.agent, updates.sizes
    a, new = agent.algorithm, agent.sampling.max_new_tokens
    rows = agent.prompts * a.group_size
    one = forward(s, rows, PROMPT, new)
    value = forward(s, rows, PROMPT, new, head=False) if agent.critic is not None else 0.0
    prompts = forward(s, agent.prompts, PROMPT, 0)
    learning = 3 * a.epochs * (one + value)
    trained = sum(p.numel() for group in agent.optimizer.groups.values() for p in group)
    moved = decode_bytes(s, rows, PROMPT, new) + a.epochs * a.minibatches * step_bytes(trained)
    spared = agent.old_logprobs == "sampled" and agent.evaluation.drift_every == 0
    scoring = one * agent.microbatch / rows if spared else 2 * one
    return prompts + scoring + value + learning, moved, learning


def measure(
    case: str, engines: Sequence[str], args: argparse.Namespace, ready: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """Rows of one model and algorithm. ready: called when everything has been compiled."""
    import torch

    from benchmarks.ceilings import ceilings
    from benchmarks.worlds import Updates, World, engine, grpo, ppo

    model, algorithm = case.split("-")
    small = {"ppo": (8, 2, 2), "grpo": (8,)}[algorithm] if args.tiny else ()
    method = {"ppo": ppo, "grpo": grpo}[algorithm](*small)
    gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), "tiny" if args.tiny else model)
        settings = world.settings(method, engine("graph"), overrides=args.settings)
        updates = Updates(settings)
        say(f"{case}: built")
        first = None
        if "graph" in engines:
            first = updates.one().whole
            say(f"{case}: first update {first:.1f} s")
        ready()
        limits = ceilings(args.tiny)
        for kind in engines:
            if kind != "graph":
                updates.by_default()
            operations, moved, learning = counted(updates)
            updates.several(1 if args.tiny else WARM_UP[kind])
            if gpu:
                torch.cuda.reset_peak_memory_stats()
            found = updates.several(
                args.repeats if kind == "graph" else min(args.repeats, BASELINE)
            )
            middle = {
                k: statistics.median(x[k] for x in found)
                for k in ("whole", "rollout", "scoring", "learning")
            }
            rest = statistics.median(x["rest"] + x["reward_wait"] for x in found)
            limit = limits.seconds(operations, moved)
            name = f"{case}-{kind}"
            yield {
                "kind": "step", "row": name, "model": model, "algorithm": algorithm,
                "engine": kind, **{f"{k}_s": v for k, v in middle.items()}, "rest_s": rest,
                "spread_s": spread([x.whole for x in found]), "repeats": len(found),
                "all_s": [x.whole for x in found],
                "limit_s": limit, "of_limit": limit / middle["whole"],
                "tokens": statistics.mean(x.tokens for x in found),
                "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if gpu else None,
                "matrix_tflops": limits.matrix / 1e12, "copy_tbs": limits.copy / 1e12,
                "operations_t": operations / 1e12, "moved_gb": moved / 1e9,
                "learning_tflops": learning / middle["learning"] / 1e12,
                "first_step_s": first if kind == "graph" else None,
                "command": command("step", "--only", name, *args.settings),
            }  # fmt: skip


def parser() -> argparse.ArgumentParser:
    p = arguments("step", __doc__, ROWS)
    p.add_argument("--repeats", type=int, default=REPEATS, help="updates that are timed")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    return p


def every_row() -> tuple[str, ...]:
    return ROWS


def main(words: Sequence[str] | None = None) -> None:
    args = given(parser(), words)
    wanted = [r for r in ROWS if r in (args.only or ROWS)]
    cases: dict[str, list[str]] = {}
    for row in wanted:
        case, kind = row.rsplit("-", 1)
        cases.setdefault(case, []).append(kind)
    if args.worker:
        parent = Parent()
        for found in measure(args.worker, cases[args.worker], args, parent.ready):
            parent.tell(row=found)
        return
    results = Results("step", args.out, args.commit, TABLES, keep=args.keep)
    if args.tiny:
        for case, kinds in cases.items():
            for found in measure(case, kinds, args, lambda: None):
                results.add(found, ROWS)
        return
    started = workers(wanted, ["--repeats", str(args.repeats), *args.settings])
    if failed := one_after_the_other(started, lambda _, row: results.add(row, ROWS)):
        raise SystemExit(f"failed: {', '.join(failed)}")


def workers(rows: Sequence[str], words: Sequence[str] = ()) -> list[Worker]:
    """Processes that write those rows."""
    common = ["-m", "benchmarks.step", *words, "--only", *rows, "--worker"]
    cases = dict.fromkeys(r.rsplit("-", 1)[0] for r in rows)
    return [Worker(case, [*common, case]) for case in cases]


if __name__ == "__main__":
    main()
