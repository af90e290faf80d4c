"""The bundled task: a language model of a million parameters, short reviews, a word list that
praises and can be gamed. Offline, on a CPU, 15 seconds a run.

    tether train toy --algorithm.kind grpo --algorithm.group_size 4
    tether compare benchmarks/toy_methods.yaml     # the frontier of twelve methods

It is for trying methods and settings; what holds here may not hold for a larger model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ASSETS = Path(__file__).resolve().parents[1] / "studies" / "quickstart_assets"
BUDGETS = (2.0, 4.0, 8.0, 16.0)
"""Nats per completion: of its own, since a completion here has about 20 tokens."""


def toy() -> dict[str, Any]:
    """PPO on the bundled model: 12 updates of 48 completions, evaluated every second update.

    Hardware: one CPU core. Time: 15 s. Memory: below 1 GB.
    Command: tether train toy --seed 0
    """
    prompts = ASSETS / "prompts"
    return {
        "updates": 12,
        "threads": 1,
        "model": {"path": str(ASSETS / "model"), "dtype": "float32", "device": "cpu"},
        "data": {
            "path": str(prompts / "train.jsonl"),
            "validation": str(prompts / "validation.jsonl"),
            "test": str(prompts / "test.jsonl"),
            "reference": "reference",
            "label": "mood",
        },
        "rewards": {
            "praise": {
                "kind": "lexicon",
                "path": str(ASSETS / "reward" / "lexicon.json"),
                "squash": "sigmoid",
                "scale": 1.0,
            }
        },
        "sampling": {"max_new_tokens": 24, "chunk": 128},
        "batch": {"prompts": 48, "microbatch": 48},
        "algorithm": {"kind": "ppo", "lr": 1e-3, "epochs": 1, "minibatches": 4},
        "evaluation": {
            "every": 2,
            "prompts": 96,
            "test_prompts": 96,
            "budgets": list(BUDGETS),
            "human_rows": 16,
            "human_tokens": 64,
            "domains": {p.stem: str(p) for p in sorted((ASSETS / "other").glob("*.txt"))},
            "samples": 8,
        },
        "checkpoint": {"every": 0, "keep": 1, "export": False},
    }


def toy_rehearsal() -> dict[str, Any]:
    """`toy` with rehearsal: supervised text of the training rows beside every optimizer step.

    Hardware, memory: as `toy`. Time: 20 s.
    Command: tether train toy-rehearsal --seed 0
    """
    data = {"path": str(ASSETS / "prompts" / "train.jsonl"), "reference": "reference"}
    rehearsal = {"kind": "rehearsal", "data": data, "rows": 8, "tokens": 64, "coef": 0.3}
    return {**toy(), "tethers": {"rehearsal": rehearsal}}
