"""A reward model from preferences.

    tether reward-model train --model MODEL --data PAIRS

PAIRS is a hub id or a file with the columns prompt, chosen and rejected (`--pairs.chosen NAME` for
others). `--kind model --data.text TEXT --data.label LABEL` trains a classifier instead.
"""

from __future__ import annotations

from typing import Any

from tether.recipes.generic import MODEL


def pairwise() -> dict[str, Any]:
    """A reward model from pairs (Bradley-Terry): one pass, all weights or `--model.lora.rank 8`.

    Hardware: one GPU, or a CPU for tiny models. Time: two forward and backward passes a pair.
    Memory: weights, fp32 masters and AdamW's two moments of what trains; `--microbatch` lowers the
    rest.
    Command: tether train reward-model --model MODEL --data PAIRS
    """
    return {
        "job": "classifier",
        "kind": "pairs",
        "model": {"path": MODEL},
        "data": {"text": None, "label": None, "validation_rows": 256},
        "epochs": 1,
        "lr": 1e-5,
        "batch_size": 32,
        "evaluate_crops": [],
    }
