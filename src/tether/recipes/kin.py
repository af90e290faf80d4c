"""Elastic Reset's kin, on your own model, data and reward. Each is PPO and one tether.

    tether train drift-budget --model MODEL --data DATA --reward REWARD

The clocks fit `ppo` (40 updates of 16 optimizer steps), so that each rule acts several
times in a run of the default length; `docs/kin.md` says what each keeps and what it forgets.
"""

from __future__ import annotations

from typing import Any

from tether.recipes.generic import ppo


def drift_budget() -> dict[str, Any]:
    """PPO with Elastic Reset on a leash of 4 nats per completion instead of a clock.

    A reset brings the measured KL to the initial model to at most half of the budget. Drift is
    measured at every evaluation, so the budget is passed by what two of them lie apart.
    Hardware, time: as `ppo`, and eight probes of 64 completions at a reset. Memory: one more fp32
    copy of what trains (the average).
    Command: tether train drift-budget --model MODEL --data DATA --reward REWARD
    """
    return {
        **ppo(),
        "evaluation": {"every": 1},
        "tethers": {
            "elastic_reset": {
                "kind": "elastic_reset",
                "reset": {"kind": "drift_budget", "budget": 4.0},
                "average": {"kind": "every", "n": 1, "unit": "update"},
                "decay": 0.9,
            }
        },
    }


def reset_to_init() -> dict[str, Any]:
    """PPO that falls back to its initial weights every 17 updates; critic and optimizer go on.

    Hardware, time, memory: as `ppo`.
    Command: tether train reset-to-init --model MODEL --data DATA --reward REWARD
    """
    reset = {"kind": "every", "n": 17, "unit": "update"}
    return {**ppo(), "tethers": {"reset_to_init": {"kind": "reset_to_init", "reset": reset}}}


def reset_to_ema() -> dict[str, Any]:
    """PPO that falls back to its running average every 17 updates; the average stays.

    Hardware, time: as `ppo`. Memory: one more fp32 copy of what trains (the average).
    Command: tether train reset-to-ema --model MODEL --data DATA --reward REWARD
    """
    reset = {"kind": "every", "n": 17, "unit": "update"}
    return {
        **ppo(),
        "tethers": {"reset_to_ema": {"kind": "reset_to_ema", "reset": reset, "decay": 0.995}},
    }


def ema_anchor() -> dict[str, Any]:
    """PPO with a KL penalty in the reward to a running average of the policy.

    Hardware, time: as `ppo-kl`. Memory: one more fp32 copy of what trains (the average).
    Command: tether train ema-anchor --model MODEL --data DATA --reward REWARD
    """
    return {**ppo(), "tethers": {"ema_anchor": {"kind": "ema_anchor", "coef": 0.05}}}


def ref_sync() -> dict[str, Any]:
    """PPO with a KL penalty to a reference that moves .6 of the way to the policy (TR-DPO's soft
    update) every 128 optimizer steps.

    Hardware, time: as `ppo-kl`. Memory: one more fp32 copy of what trains (the reference).
    Command: tether train ref-sync --model MODEL --data DATA --reward REWARD --tethers.ref_sync.by 1
    """
    every = {"kind": "every", "n": 128, "unit": "minibatch"}
    return {
        **ppo(),
        "tethers": {"ref_sync": {"kind": "ref_sync", "coef": 0.05, "every": every, "by": 0.6}},
    }


def elastic_pull() -> dict[str, Any]:
    """PPO with a spring: after every optimizer step 1 % of the way back to the initial weights.

    Hardware, time, memory: as `ppo`.
    Command: tether train elastic-pull --model MODEL --data DATA --reward REWARD
    """
    return {**ppo(), "tethers": {"elastic_pull": {"kind": "elastic_pull", "by": 0.01}}}


def kl_loss() -> dict[str, Any]:
    """PPO with KL to the initial weights as a loss that has the gradient of that KL.

    Hardware, time, memory: as `ppo`; with --tethers.kl_loss.estimator exact the initial model is a
    second module in memory and runs beside every microbatch.
    Command: tether train kl-loss --model MODEL --data DATA --reward REWARD
    """
    return {**ppo(), "tethers": {"kl_loss": {"kind": "kl_loss", "coef": 0.04}}}
