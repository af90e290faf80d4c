"""One update's forward and backward pass: 256 x 96 tokens, log-probs of the completions' tokens.

    python -m benchmarks.update --out benchmarks/results/update.json --commit 0123abc
    python -m benchmarks.render

Random weights of the right shape, bf16, 32-token prompts and 64-token completions, the loss a sum
of log-probs; `whole` keeps [tokens, vocabulary] logits, `pieces` never does; `compiled` is
`model.compile`. Warm-up excluded; the median of REPEATS, smallest and largest beside it. Needs a
GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.rollout import MODELS, PROMPT, build, timed, versions

ROWS, NEW, REPEATS = 256, 64, 5
MATRIX = 7.9e14
"""bf16 operations a second that an H100 does in large matrix products, measured."""
WAYS = (("whole", False, 64), ("pieces", False, 64), ("pieces", True, 64), ("pieces", True, 256))
"""(scoring, compiled, microbatch)"""
TABLES: list[dict[str, Any]] = [
    {
        "title": "Forward and backward",
        "rows": ["update"],
        "columns": {
            "model": "Model",
            "scoring": "Scoring",
            "compiled": "Compiled",
            "microbatch": "Microbatch",
            "ms": "ms",
            "spread_ms": "smallest, largest",
            "peak_gib": "peak, GiB",
            "limit_ms": "matrix limit, ms",
            "of_limit": "limit / time",
        },
        "text": "256 x 96 tokens in microbatches. The matrix limit is 6 operations a parameter and "
        "token at 790 TFLOP/s.",
    },
]


def measure(name: str, way: tuple[str, bool, int]) -> dict[str, Any]:
    import torch

    from tether.models.scoring import score
    from tether.types import Sequences

    scoring, compiled, micro = way
    lm = build(name)
    lm.scratch["in pieces"] = scoring == "pieces"
    if compiled:
        lm.compile = True
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(3, lm.vocab_size - 1, (ROWS, PROMPT + NEW), generator=rng)
    real = torch.ones_like(ids, dtype=torch.bool)
    s = Sequences(ids[:, :PROMPT], real[:, :PROMPT], ids[:, PROMPT:], real[:, PROMPT:]).to("cuda")

    def update(_: int) -> None:
        for rows in torch.arange(ROWS).split(micro):
            score(lm, s.rows(rows)).logprobs.sum().backward()
        for p in lm.module.parameters():
            p.grad = None

    update(0)
    torch.cuda.reset_peak_memory_stats()
    times = timed(update, REPEATS)
    parameters = sum(p.numel() for p in lm.module.parameters())
    limit = 6 * parameters * ROWS * (PROMPT + NEW) / MATRIX * 1e3
    middle = statistics.median(times)
    return {
        "kind": "update", "model": name, "scoring": scoring,
        "compiled": "yes" if compiled else "no", "microbatch": micro,
        "ms": middle, "spread_ms": [min(times), max(times)],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "limit_ms": limit,
        "of_limit": limit / middle, "seeds": [], "card": torch.cuda.get_device_name(),
    }  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    p.add_argument("--commit", required=True)
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    date = datetime.date.today().isoformat()
    about = {"command": "python -m benchmarks.update", "date": date}
    rows = []
    for name in args.models:
        for way in WAYS:
            rows.append(measure(name, way) | about)
            print(json.dumps(rows[-1]), flush=True)
            result = {
                "name": "update", "page": "docs/performance.md", "date": date,
                "card": rows[0]["card"], "commit": args.commit, "versions": versions(),
                "notes": [], "tables": TABLES, "rows": rows,
            }  # fmt: skip
            args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
