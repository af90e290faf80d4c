"""NLPO: PPO inside a token mask (Ramamurthy et al., arXiv 2210.01241).

    tether train nlpo --model MODEL --data DATA --reward REWARD

The method is PPO with the tether `nlpo_mask`; its place in a table of methods is beside `ppo` and
`ppo-kl`, which share everything else.

Published values for IMDB (GPT-2, RL4LMs@97df0bd): p .9, mu 5, KL
coefficient .1 with the target .1 nats per token, 5 epochs, gamma .99, learning rate 1e-6 with 5,000
optimizer steps of 64 tokens. What the released code does is another method: the mask stays the
initial policy's, keeps 100 tokens, and the 50 likeliest of these are sampled:

    tether train nlpo ... --tethers.nlpo_mask.mask initial --tethers.nlpo_mask.refresh null \\
        --tethers.nlpo_mask.floor 100 --sampling.top_k 50
"""

from __future__ import annotations

from typing import Any

from tether.recipes.generic import ppo


def nlpo() -> dict[str, Any]:
    """PPO that samples inside the top-p set (.9) of a copy of itself, refreshed every 5 updates,
    with RL4LMs' adaptive KL penalty in the reward (.1, target .1 nats per token).

    Hardware, time: as `ppo`, and one more decoder pass a token. Memory: one more fp32 copy of what
    trains, and a bf16 one where the model computes in bf16.
    Command: tether train nlpo --model MODEL --data DATA --reward REWARD
    """
    return {
        **ppo(),
        "tethers": {
            "kl": {
                "kind": "kl",
                "coef": 0.1,
                "controller": {"kind": "rl4lms", "target": 0.1},
            },
            "nlpo_mask": {
                "kind": "nlpo_mask",
                "mask": "copy",
                "top_p": 0.9,
                "refresh": {"kind": "every", "n": 5, "unit": "update"},
            },
        },
    }
