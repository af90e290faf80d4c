"""Rollouts: milliseconds per decoding step and per whole rollout, engine `graph` against `hf`.

    python -m benchmarks.rollout
    python -m benchmarks.render

Random weights of the right shape, bf16, 32-token prompts that all differ; a stop token is one of
tens of thousands, so all rows write nearly all tokens. A process a model: models are compiled side
by side, and timed one after the other once all are recorded. Warm-up excluded; the median of
REPEATS, smallest and largest beside it. Needs a GPU, or --tiny.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Results, arguments, command, say, synchronise, timed
from benchmarks.workers import Parent, Worker, one_after_the_other
from benchmarks.worlds import PROMPT, SHAPES

REPEATS = 5
BASELINE = 2
MODELS = ("smollm2", "gpt2")
CASES = ((256, 64), (64, 64), (1024, 64), (1024, 512))
"""(batch, new tokens)"""
TINY = ((8, 4),)
TABLES: list[dict[str, Any]] = [
    {
        "title": "Decoding step",
        "rows": ["step"],
        "columns": {
            "model": "Model",
            "batch": "Batch",
            "new": "New tokens",
            "engine": "Engine",
            "step_ms": "ms a step",
            "spread_ms": "smallest, largest",
            "prompt_ms": "prompts, ms",
            "whole_ms": "whole rollout, ms",
            "ratio": "hf / graph",
            "limit_ms": "bytes limit, ms",
            "of_limit": "limit / step",
            "logprob_difference": "log-prob difference",
            "copy_tbs": "copy, TB/s",
        },
        "text": "The median of five; the bytes limit is weights, keys and values up to the middle "
        "of the rollout and logits, once each, at the speed of a device copy, measured in the same "
        "process. A step of `hf` is its whole rollout divided by the tokens. The log-prob "
        "difference is the mean of |engine - scoring| over tokens, in nats.",
    },
]


def build(name: str, tiny: bool = False) -> Any:
    """A model of the right shape, in bf16 on the GPU, or a small one in fp32 on the CPU."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from tether.models.language_model import LanguageModel

    torch.manual_seed(0)
    shape = dict(SHAPES["tiny" if tiny else name])
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = AutoConfig.for_model(shape.pop("model_type"), **shape, **ends)
    auto: Any = AutoModelForCausalLM
    dtype = torch.float32 if tiny else torch.bfloat16
    module = auto.from_config(config, dtype=dtype).to("cpu" if tiny else "cuda")
    return LanguageModel(module.eval(), None, (0,), 0)


def limit_ms(lm: Any, batch: int, new: int, copy: float) -> float:
    """Bytes that have to move in a step, at `copy` bytes a second: milliseconds."""
    from benchmarks.ceilings import decode_bytes, sizes_of

    return decode_bytes(sizes_of(lm), batch, PROMPT, new) / new / copy * 1e3


def milliseconds(run: Any, n: int) -> list[float]:
    return [1e3 * s for s in timed(run, n)]


class Case:
    """One batch and length: recorded when made, timed when asked."""

    def __init__(self, lm: Any, batch: int, new: int) -> None:
        import torch

        from tether.config.run import SamplingSettings
        from tether.rollout.graph import GraphEngine, programs_of
        from tether.types import Sequences

        self.lm, self.batch, self.new = lm, batch, new
        ids = torch.randint(3, lm.vocab_size - 1, (batch, PROMPT))
        empty = torch.zeros((batch, 0), dtype=torch.long)
        real = torch.ones_like(ids, dtype=torch.bool)
        self.prompts = Sequences(ids, real, empty, empty.bool()).to(lm.device)
        self.sampling = SamplingSettings(max_new_tokens=new, chunk=batch)
        self.engine = GraphEngine(capture=lm.device.type == "cuda")
        self.engine.prepare(lm)
        start = time.perf_counter()
        r = self.write(self.engine, 0)
        synchronise()
        self.first_call_s = time.perf_counter() - start
        self.program = programs_of(lm)[-1]
        self.apart = self.apart_of(r)

    def apart_of(self, rollout: Any) -> float:
        """Mean |log-prob of a rollout - the same of scoring|, nats per token."""
        import torch

        from tether.models.scoring import score_all

        few = rollout.sequences.rows(torch.arange(min(64, self.batch)))
        mine = rollout.logprobs[: len(few.prompt)]
        d = (score_all(self.lm, few, microbatch=16).logprobs - mine).abs()
        return float(d.sum() / few.completion_mask.sum())

    def write(self, engine: Any, seed: int) -> Any:
        import torch

        from tether.rollout.engine import join

        i = torch.arange(self.batch)
        return join(
            list(engine.generate(self.lm, self.prompts, i, i, self.sampling, ("b", seed))), 0
        )

    def steps(self) -> tuple[list[float], list[float]]:
        """Milliseconds of the prompts, and of a step, of each of REPEATS rollouts."""
        import torch

        everyone = torch.arange(self.batch, device=self.lm.device)
        prompts, steps = [], []
        for k in range(REPEATS + 1):
            self.program.load(self.prompts, everyone, k)
            marks = []
            for part in (lambda: None, self.program.begin, self._rest):
                part()
                synchronise()
                marks.append(time.perf_counter())
            prompts.append(1e3 * (marks[1] - marks[0]))
            steps.append(1e3 * (marks[2] - marks[1]) / (self.new - 1))
        return prompts[1:], steps[1:]

    def _rest(self) -> None:
        for _ in range(self.new - 1):
            self.program.again()

    def rows(self, copy: float) -> list[dict[str, Any]]:
        """copy: bytes a second that a device copy moves."""
        import torch

        from tether.rollout.hf import HFEngine

        gpu = self.lm.device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        whole = milliseconds(lambda k: self.write(self.engine, k), REPEATS)
        prompts, steps = self.steps()
        theirs = []
        if self.new <= 64:
            theirs = milliseconds(lambda k: self.write(HFEngine(), k), BASELINE)
        middle, limit = statistics.median(steps), limit_ms(self.lm, self.batch, self.new, copy)
        common = {
            "kind": "step", "batch": self.batch, "new": self.new, "limit_ms": limit,
            "copy_tbs": copy / 1e12,
        }  # fmt: skip
        rows = [common | {
            "engine": "graph", "step_ms": middle, "spread_ms": [min(steps), max(steps)],
            "prompt_ms": statistics.median(prompts), "whole_ms": statistics.median(whole),
            "of_limit": limit / middle, "first_call_s": self.first_call_s,
            "ratio": statistics.median(theirs) / statistics.median(whole) if theirs else None,
            "logprob_difference": self.apart,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if gpu else None,
        }]  # fmt: skip
        if theirs:
            each = [t / self.new for t in theirs]
            rows.append(common | {
                "engine": "hf", "step_ms": statistics.median(each),
                "spread_ms": [min(each), max(each)], "prompt_ms": None,
                "whole_ms": statistics.median(theirs), "ratio": None,
                "of_limit": limit / statistics.median(each),
                "logprob_difference": self.apart_of(self.write(HFEngine(), 0)),
            })  # fmt: skip
        return rows


def measure(name: str, args: argparse.Namespace, parent: Parent | None) -> list[dict[str, Any]]:
    """Record everything, say so, wait for the word, then time alone; rows also go to the parent."""
    from benchmarks.ceilings import ceilings

    lm, rows = build(name, args.tiny), []
    made = []
    for batch, new in cases_of(args):
        made.append(Case(lm, batch, new))
        say(f"{name} {batch}x{new}: recorded in {made[-1].first_call_s:.1f} s")
    if parent is not None:
        parent.ready()
    copy = ceilings(args.tiny).copy
    for case in made:
        size = f"{case.batch}x{case.new}"
        again = command("rollout", "--models", name, "--cases", size)
        for found in case.rows(copy):
            row = {"row": f"{name}-{size}-{found['engine']}", "model": name, "command": again}
            rows.append(row | found)
            if parent is not None:
                parent.tell(row=rows[-1])
    return rows


def cases_of(args: argparse.Namespace) -> list[tuple[int, int]]:
    default = [f"{b}x{n}" for b, n in (TINY if args.tiny else CASES)]
    return [(int(b), int(n)) for b, n in (c.split("x") for c in args.cases or default)]


def parser() -> argparse.ArgumentParser:
    p = arguments("rollout", __doc__)
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    p.add_argument("--cases", nargs="+", metavar="BATCHxNEW", help="default: those of the page")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    return p


def every_row() -> tuple[str, ...]:
    return tuple(
        f"{m}-{b}x{n}-{e}"
        for m in MODELS
        for b, n in CASES
        for e in (("graph", "hf") if n <= 64 else ("graph",))
    )


def main(words: Sequence[str] | None = None) -> None:
    args = parser().parse_args(words)
    if args.worker:
        measure(args.worker, args, Parent())
        return
    results = Results("rollout", Path(args.out), args.commit, TABLES, keep=args.keep)
    if args.tiny:
        for row in (r for name in args.models for r in measure(name, args, None)):
            results.add(row)
        return
    common = ["-m", "benchmarks.rollout", *(["--cases", *args.cases] if args.cases else [])]
    workers = [Worker(name, [*common, "--worker", name]) for name in args.models]
    if failed := one_after_the_other(workers, lambda _, row: results.add(row)):
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
