"""One update's forward and backward pass: 256 x 96 tokens, log-probs of the completions' tokens.

    python -m benchmarks.update
    python -m benchmarks.render

Random weights of the right shape, bf16, 32-token prompts and 64-token completions, the loss a sum
of log-probs; `whole` keeps [tokens, vocabulary] logits, `pieces` never does; `compiled` is
`model.compile`, `recorded` is `model.capture`. Warm-up excluded; the median of REPEATS, smallest
and largest beside it. Needs a GPU, or --tiny.

The adapter rows are recorded passes over an adapter of rank 16 on all linear layers. `peft`: fp32
adapters in peft's layers, as peft makes them; `peft-bf16`: the same layers, adapters in the model's
dtype; `ours`: those adapters in `tether.models.adapted_linear`, which is what a run trains;
`ours-compiled`: with `model.compile`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measuring import Results, arguments, command
from benchmarks.rollout import MODELS, build, milliseconds
from benchmarks.worlds import NEW, PROMPT

ROWS, REPEATS = 256, 5
WAYS = {
    "whole-64": ("whole", False, False, 64),
    "pieces-64": ("pieces", False, False, 64),
    "compiled-64": ("pieces", True, False, 64),
    "recorded-64": ("pieces", True, True, 64),
    "compiled-256": ("pieces", True, False, 256),
    "recorded-256": ("pieces", True, True, 256),
}
"""(scoring, compiled, recorded, microbatch)"""
ADAPTERS = {
    "adapter-peft": "float32",
    "adapter-peft-bf16": "model",
    "adapter-ours": "model",
    "adapter-ours-compiled": "model",
}
"""Way -> the dtype of its adapter (`model.lora.dtype`)."""
RANK, ADAPTED = 16, "smollm2"  # of GPT-2's layers ours are peft's
WAYS |= {way: ("pieces", way.endswith("-compiled"), True, 64) for way in ADAPTERS}
NAMES = tuple(
    f"{model}-{way}" for model in MODELS for way in WAYS if model == ADAPTED or way not in ADAPTERS
)
MEASURED = {
    "microbatch": "Microbatch",
    "ms": "ms",
    "spread_ms": "smallest, largest",
    "peak_gib": "peak, GiB",
    "limit_ms": "matrix limit, ms",
    "of_limit": "limit / time",
    "matrix_tflops": "bf16 product, TFLOP/s",
}
"""Columns of every table."""
TABLES: list[dict[str, Any]] = [
    {
        "title": "Forward and backward",
        "rows": ["update"],
        "columns": {
            "model": "Model",
            "scoring": "Scoring",
            "compiled": "Compiled",
            "recorded": "Recorded",
            **MEASURED,
        },
        "text": "256 x 96 tokens in microbatches. The matrix limit is 6 operations a weight and "
        "token (the output embedding at completion tokens only) at the speed of a large bf16 "
        "product, measured in the same process.",
    },
    {
        "title": "Forward and backward, adapters",
        "rows": ["adapter"],
        "columns": {
            "model": "Model",
            "layers": "Layers",
            "compiled": "Compiled",
            "adapter": "Adapter",
            **MEASURED,
        },
        "text": "The same, recorded, of an adapter of rank 16 on all linear layers. peft's layers "
        "with fp32 adapters are what peft makes of a bf16 model. The matrix limit has 4 operations "
        "a frozen weight and token.",
    },
]


def adapt(lm: Any, way: str) -> None:
    """Wrap the model; with B away from zero, as after a first step."""
    import torch
    from peft.tuners.lora import Linear

    from tether.config.run import LoraSettings
    from tether.models import lora
    from tether.models.adapted_linear import AdaptedLinear

    dtype: Any = ADAPTERS[way]
    lm.module = lora.wrap(lm.module, LoraSettings(rank=RANK, dtype=dtype), seed=0).eval()
    for name, p in lm.module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=1e-3)
    if not way.startswith("adapter-ours"):
        for module in lm.module.modules():
            if type(module) is AdaptedLinear:
                module.__class__ = Linear  # type: ignore[assignment]


def prepared(name: str, tiny: bool, number: int) -> tuple[Any, Any, Callable[[int], None]]:
    """(the model, its sizes without an adapter, what makes an update of `number` rows)"""
    import torch

    from benchmarks.ceilings import sizes_of
    from tether.models.scoring import score
    from tether.rollout.graph import GraphEngine
    from tether.types import Sequences

    model, way = name.split("-", 1)
    scoring, compiled, recorded, micro = WAYS[way]
    lm = build(model, tiny)
    sizes = sizes_of(lm)
    if way in ADAPTERS:
        adapt(lm, way)
    lm.scratch["in pieces"] = scoring == "pieces"
    lm.compile, lm.capture = compiled and lm.device.type == "cuda", recorded
    GraphEngine().prepare(lm)  # as every run does: a vocabulary of odd size is filled up
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(3, lm.vocab_size - 1, (number, PROMPT + NEW), generator=rng)
    real = torch.ones_like(ids, dtype=torch.bool)
    s = Sequences(ids[:, :PROMPT], real[:, :PROMPT], ids[:, PROMPT:], real[:, PROMPT:])
    s = s.to(lm.device)

    def update(_: int) -> None:
        for rows in torch.arange(number).split(micro):
            with lm.recording():
                loss = score(lm, s.rows(rows)).logprobs.sum()
            loss.backward()
            for p in lm.module.parameters():  # a run moves them into fp32 sums here
                p.grad = None

    return lm, sizes, update


def measure(name: str, tiny: bool) -> dict[str, Any]:
    import torch

    from benchmarks.ceilings import ceilings, forward

    number = 8 if tiny else ROWS
    lm, sizes, update = prepared(name, tiny, number)
    model, way = name.split("-", 1)
    scoring, compiled, recorded, micro = WAYS[way]
    gpu = lm.device.type == "cuda"
    update(0)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    times = milliseconds(update, REPEATS)
    peak = torch.cuda.max_memory_allocated() / 2**30 if gpu else None
    matrix = ceilings(tiny).matrix
    passes = 2 if way in ADAPTERS else 3
    limit = passes * forward(sizes, number, PROMPT, NEW) / matrix * 1e3
    middle = statistics.median(times)
    told: dict[str, Any] = {
        "kind": "update", "scoring": scoring,
        "compiled": "yes" if compiled else "no", "recorded": "yes" if recorded else "no",
    }  # fmt: skip
    if way in ADAPTERS:
        fp32 = ADAPTERS[way] == "float32"
        told = {
            "kind": "adapter", "layers": "peft's" if "peft" in way else "ours",
            "compiled": told["compiled"], "adapter": "fp32" if fp32 else "the model's dtype",
        }  # fmt: skip
    return {
        **told, "row": name, "model": model, "microbatch": micro,
        "ms": middle, "spread_ms": [min(times), max(times)], "peak_gib": peak,
        "limit_ms": limit, "of_limit": limit / middle, "matrix_tflops": matrix / 1e12,
        "command": command("update", "--only", name),
    }  # fmt: skip


def parser() -> argparse.ArgumentParser:
    return arguments("update", __doc__, NAMES)


def every_row() -> tuple[str, ...]:
    return NAMES


def main(words: Sequence[str] | None = None) -> None:
    args = parser().parse_args(words)
    results = Results("update", args.out, args.commit, TABLES, keep=args.keep)
    for name in args.only or NAMES:
        results.add(measure(name, args.tiny), NAMES)


if __name__ == "__main__":
    main()
