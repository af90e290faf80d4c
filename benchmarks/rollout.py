"""Rollouts: milliseconds per decoding step and per whole rollout, engine `graph` against `hf`.

    python -m benchmarks.rollout --out benchmarks/results/rollout.json --commit 0123abc
    python -m benchmarks.render

Random weights of the right shape, bf16, 32-token prompts that all differ; a stop token is one of
tens of thousands, so all rows write nearly all tokens. A process a model: models are compiled side
by side, and timed one after the other once all are recorded. Warm-up excluded; the median of
REPEATS, smallest and largest beside it. Needs a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

REPEATS = 5
BASELINE = 2
PROMPT = 32
BANDWIDTH = 2.95e12
"""Bytes a second that an H100 reads from its memory, measured with a large copy."""
MODELS = ("smollm2", "gpt2")
CASES = ((256, 64), (64, 64), (1024, 64), (1024, 512))
"""(batch, new tokens)"""
PACKAGES = ("torch", "transformers", "triton")
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
        },
        "text": "The median of five; the bytes limit is weights, keys and values up to the middle "
        "of the rollout and logits, once each, at 2.95 TB/s. A step of `hf` is its whole rollout "
        "divided by the tokens.",
    },
]


def build(name: str) -> Any:
    """A model of the right shape in bf16 on the GPU."""
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

    from tether.models.language_model import LanguageModel

    torch.manual_seed(0)
    config: Any = GPT2Config(bos_token_id=0, eos_token_id=0)
    if name == "smollm2":
        config = LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
            num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192,
            tie_word_embeddings=True, rope_theta=100000.0, bos_token_id=0, eos_token_id=0,
            pad_token_id=0,
        )  # fmt: skip
    module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).cuda().eval()
    return LanguageModel(module, None, (0,), 0)


def limit_ms(lm: Any, batch: int, new: int) -> float:
    """Bytes that have to move in a step, at the bandwidth: milliseconds."""
    c = lm.config
    heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    kept = c.num_hidden_layers * 2 * heads * (c.hidden_size // c.num_attention_heads) * 2
    weights = sum(p.numel() for p in lm.module.parameters()) * 2
    middle = PROMPT + new / 2
    return float((weights + batch * (kept * middle + lm.vocab_size * 4)) / BANDWIDTH * 1e3)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    with open(lock, "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def timed(run: Callable[[int], object], n: int = REPEATS) -> list[float]:
    """Milliseconds of each of n runs, after one that is not counted."""
    import torch

    out = []
    for k in range(n + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run(k)
        torch.cuda.synchronize()
        out.append((time.perf_counter() - start) * 1e3)
    return out[1:]


class Case:
    """One batch and length: recorded when made, timed when asked."""

    def __init__(self, lm: Any, batch: int, new: int) -> None:
        import torch

        from tether.config.run import SamplingSettings
        from tether.models.scoring import score_all
        from tether.rollout.graph import GraphEngine, programs_of
        from tether.types import Sequences

        self.lm, self.batch, self.new = lm, batch, new
        ids = torch.randint(3, lm.vocab_size - 1, (batch, PROMPT))
        empty = torch.zeros((batch, 0), dtype=torch.long)
        real = torch.ones_like(ids, dtype=torch.bool)
        self.prompts = Sequences(ids, real, empty, empty.bool()).to("cuda")
        self.sampling = SamplingSettings(max_new_tokens=new, chunk=batch)
        self.engine = GraphEngine()
        self.engine.prepare(lm)
        start = time.perf_counter()
        r = self.write(self.engine, 0)
        torch.cuda.synchronize()
        self.first_call_s = time.perf_counter() - start
        self.program = programs_of(lm)[-1]
        few = r.sequences.rows(torch.arange(min(64, batch)))
        d = (score_all(lm, few, microbatch=16).logprobs - r.logprobs[: len(few.prompt)]).abs()
        self.apart = float(d.sum() / few.completion_mask.sum())

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

        prompts, steps = [], []
        for k in range(REPEATS + 1):
            self.program.load(self.prompts, torch.arange(self.batch).cuda(), k)
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
            marks[0].record()
            self.program.begin()
            marks[1].record()
            for _ in range(self.new - 1):
                self.program.again()
            marks[2].record()
            torch.cuda.synchronize()
            prompts.append(marks[0].elapsed_time(marks[1]))
            steps.append(marks[1].elapsed_time(marks[2]) / (self.new - 1))
        return prompts[1:], steps[1:]

    def rows(self) -> list[dict[str, Any]]:
        import torch

        from tether.rollout.hf import HFEngine

        torch.cuda.reset_peak_memory_stats()
        whole = timed(lambda k: self.write(self.engine, k))
        prompts, steps = self.steps()
        theirs = [] if self.new > 64 else timed(lambda k: self.write(HFEngine(), k), BASELINE)
        middle, limit = statistics.median(steps), limit_ms(self.lm, self.batch, self.new)
        common = {
            "kind": "step", "batch": self.batch, "new": self.new, "limit_ms": limit, "seeds": [],
        }  # fmt: skip
        rows = [common | {
            "engine": "graph", "step_ms": middle, "spread_ms": [min(steps), max(steps)],
            "prompt_ms": statistics.median(prompts), "whole_ms": statistics.median(whole),
            "of_limit": limit / middle, "first_call_s": self.first_call_s,
            "ratio": statistics.median(theirs) / statistics.median(whole) if theirs else None,
            "logprob_difference": self.apart,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        }]  # fmt: skip
        if theirs:
            each = [t / self.new for t in theirs]
            rows.append(common | {
                "engine": "hf", "step_ms": statistics.median(each),
                "spread_ms": [min(each), max(each)], "prompt_ms": None,
                "whole_ms": statistics.median(theirs), "ratio": None,
                "of_limit": limit / statistics.median(each),
            })  # fmt: skip
        return rows


def worker(name: str, cases: list[tuple[int, int]], place: Path, out: Path) -> None:
    """Record everything, say so, wait for the others, then time alone."""
    import torch

    lm, rows = build(name), []
    made = [Case(lm, batch, new) for batch, new in cases]
    (place / f"{name}.ready").touch()
    while not (place / "go").exists():
        time.sleep(0.2)
    with alone(place / "lock"):
        for case in made:
            found = case.rows()
            rows += [{"model": name, "card": torch.cuda.get_device_name()} | r for r in found]
            print(json.dumps(rows[-len(found) :]), flush=True)
            out.write_text(json.dumps(rows), encoding="utf-8")


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    p.add_argument("--cases", nargs="+", default=[f"{b}x{n}" for b, n in CASES])
    p.add_argument("--commit", required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--worker", help=argparse.SUPPRESS)
    p.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args()
    cases = [(int(b), int(n)) for b, n in (c.split("x") for c in args.cases)]
    if args.worker:
        worker(args.worker, cases, args.place, args.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        place, jobs = Path(folder), {}
        for name in args.models:
            part = args.out.with_name(f"{args.out.stem}.{name}.part")
            command = [sys.executable, "-m", "benchmarks.rollout", "--worker", name, "--place"]
            command += [folder, "--out", str(part), "--commit", args.commit, "--cases"]
            jobs[part] = subprocess.Popen([*command, *args.cases], env=os.environ.copy())
        while len(list(place.glob("*.ready"))) < sum(j.poll() is None for j in jobs.values()):
            time.sleep(0.2)
        (place / "go").touch()
        failed = [str(part) for part, job in jobs.items() if job.wait()]
    rows = [r for part in jobs if part.exists() for r in json.loads(part.read_text())]
    date = datetime.date.today().isoformat()
    command = "python -m benchmarks.rollout"
    result = {
        "name": "rollout", "page": "docs/performance.md", "date": date,
        "card": rows[0]["card"] if rows else "none", "commit": args.commit,
        "versions": versions(), "notes": [], "tables": TABLES,
        "rows": [r | {"command": command, "date": date} for r in rows],
    }  # fmt: skip
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for part in jobs:
        part.unlink(missing_ok=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
