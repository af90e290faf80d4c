"""Recipes for your own model, data and reward.

    tether train ppo-kl --model MODEL --data DATA --reward REWARD

MODEL is a hub id or a folder, DATA a hub id or a .jsonl, .csv or .parquet file with a column
`prompt` (`--data.prompt NAME` for another), REWARD a function `file.py:function`, a sequence
classifier or a built-in. Each recipe differs from the others by what its name says, nothing else.
"""

from __future__ import annotations

from typing import Any

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def ppo() -> dict[str, Any]:
    """PPO with a critic and no tether: the unpenalised baseline of every frontier.

    Hardware: any; one GPU from 8 GB for 135 million parameters, or a CPU for tiny models.
    Time: seconds an update on a GPU. Memory: `tether doctor ppo` plans it.
    Command: tether train ppo --model MODEL --data DATA --reward REWARD
    """
    return {
        "model": {"path": MODEL},
        "updates": 40,
        "batch": {"prompts": 64, "microbatch": 16},
        "algorithm": {"kind": "ppo", "lr": 1e-5, "epochs": 4, "minibatches": 4},
    }


def ppo_kl() -> dict[str, Any]:
    """PPO with a KL penalty in the reward, towards the initial weights, at a fixed coefficient.

    Hardware, time, memory: as `ppo`; the initial model is scored with or without a penalty.
    Command: tether train ppo-kl --model MODEL --data DATA --reward REWARD --tethers.kl.coef .05
    """
    return {**ppo(), "tethers": {"kl": {"kind": "kl", "coef": 0.05}}}


def elastic_reset() -> dict[str, Any]:
    """PPO with Elastic Reset (arXiv 2312.07551): the policy returns to its average,
    the average to the initial weights, every 17 updates. No KL penalty.

    Hardware, time: as `ppo`. Memory: one more fp32 copy of what trains (the average).
    Command: tether train elastic-reset --model MODEL --data DATA --reward REWARD
    """
    return {
        **ppo(),
        "tethers": {
            "elastic_reset": {
                "kind": "elastic_reset",
                "reset": {"kind": "every", "n": 17, "unit": "update"},
                "average": {"kind": "every", "n": 1, "unit": "update"},
                "decay": 0.995,
            }
        },
    }


def a2c() -> dict[str, Any]:
    """A2C with a critic and no tether: one step an update along the policy gradient.

    Hardware, memory: as `ppo`. Time: below `ppo`, a sixteenth of its optimizer steps.
    Command: tether train a2c --model MODEL --data DATA --reward REWARD
    """
    return {**ppo(), "algorithm": {"kind": "a2c", "lr": 1e-5}}


def trpo() -> dict[str, Any]:
    """TRPO with a critic and no tether: one natural-gradient step an update, KL(old || new) within
    .01 nats per token.

    Hardware: as `ppo`. Time: some times `ppo`; `--algorithm.fisher_rows 16` shortens it. Memory:
    up to five more fp32 copies of what trains, and the graph of a microbatch twice.
    Command: tether train trpo --model MODEL --data DATA --reward REWARD
    """
    return {**ppo(), "algorithm": {"kind": "trpo", "target_kl": 0.01}}


def reinforce() -> dict[str, Any]:
    """REINFORCE against the mean of earlier returns: no critic, no tether.

    Hardware: as `ppo`. Time: one pass over each update. Memory: no critic.
    Command: tether train reinforce --model MODEL --data DATA --reward REWARD
    """
    return {**ppo(), "algorithm": {"kind": "reinforce", "lr": 1e-5}}


def _four_each(algorithm: dict[str, Any]) -> dict[str, Any]:
    """As many completions an update as `ppo`: 16 prompts, four of each."""
    return {
        **ppo(),
        "batch": {"prompts": 16, "microbatch": 16},
        "algorithm": {**algorithm, "lr": 1e-5, "group_size": 4},
    }


def rloo() -> dict[str, Any]:
    """RLOO: REINFORCE, each of four completions against the mean of the other three.

    Hardware: as `ppo`. Time: one pass over each update. Memory: no critic.
    Command: tether train rloo --model MODEL --data DATA --reward REWARD
    """
    return _four_each({"kind": "rloo"})


def grpo() -> dict[str, Any]:
    """GRPO: the clipped ratio, rewards standardised among the four completions of a prompt.

    Hardware: as `ppo`. Time: four passes over each update. Memory: no critic.
    Command: tether train grpo --model MODEL --data DATA --reward REWARD
    """
    return _four_each({"kind": "grpo", "epochs": 4, "minibatches": 4})


def best_of_n() -> dict[str, Any]:
    """Maximum likelihood on the best of four own completions of each prompt, update by update.

    Hardware: as `ppo`. Time: below `ppo`, a quarter of the completions trains. Memory: no critic.
    Command: tether train best-of-n --model MODEL --data DATA --reward REWARD
    """
    return _four_each({"kind": "best_of_n", "minibatches": 4})


def filtered_supervised() -> dict[str, Any]:
    """Maximum likelihood on the best quarter of what the initial model writes: the control at an
    equal number of completions for every method that samples from the moving policy.

    Hardware: as `ppo`. Time, memory: as `best-of-n`.
    Command: tether train filtered-supervised --model MODEL --data DATA --reward REWARD
    """
    return _four_each({"kind": "filtered_supervised", "minibatches": 4})


def supervised() -> dict[str, Any]:
    """Maximum likelihood on the completions of a dataset: the model that RL starts from.

    Hardware: any. Time: one forward and backward pass a text. Memory: no critic, no copies.
    Command: tether train supervised --model MODEL --data DATA --data.reference COLUMN
    """
    return {
        "model": {"path": MODEL},
        "updates": 100,
        "batch": {"prompts": 64, "microbatch": 16},
        "algorithm": {"kind": "supervised", "lr": 2e-5, "epochs": 1, "minibatches": 4},
        "evaluation": {"every": 20, "prompts": 128},
    }
