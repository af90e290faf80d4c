"""Recipes with a memory of texts: human ones beside every step, or the run's own earlier ones.

Each differs from `ppo` or `elastic-reset` by what its name says, nothing else.
"""

from __future__ import annotations

from typing import Any

from tether.recipes import generic


def ppo_rehearsal() -> dict[str, Any]:
    """PPO with human texts beside every optimizer step (S2P, arXiv 2003.12694; the pretraining mix
    of PPO-ptx, arXiv 2203.02155). No KL penalty.

    The texts are yours: `--tethers.rehearsal.data.path FILE`, and the column that trains in
    `--tethers.rehearsal.data.reference` (completions) or `--tethers.rehearsal.data.text`.

    Hardware: as `ppo`. Time: one forward and backward pass of 16 texts an optimizer step more.
    Memory: as `ppo`.
    Command: tether train ppo-rehearsal --model MODEL --data DATA --reward REWARD
    --tethers.rehearsal.data.path FILE --tethers.rehearsal.data.reference COLUMN
    """
    rehearsal = {"kind": "rehearsal", "rows": 16, "tokens": 64, "coef": 1.0}
    return {**generic.ppo(), "tethers": {"rehearsal": rehearsal}}


def elastic_reset_replay() -> dict[str, Any]:
    """Elastic Reset (arXiv 2312.07551) that keeps the best quarter of its completions for 17
    updates, across the reset, and trains on them with truncated importance weights.

    Hardware: as `elastic-reset`, in one process. Time: one forward and backward pass of 16
    completions an optimizer step more. Memory: as `elastic-reset`; the completions are on the host.
    Command: tether train elastic-reset-replay --model MODEL --data DATA --reward REWARD
    """
    base = generic.elastic_reset()
    replay = {"kind": "replay", "share": 0.25, "age": 17, "rows": 16, "coef": 0.1}
    return {**base, "tethers": {**base["tethers"], "replay": replay}}
