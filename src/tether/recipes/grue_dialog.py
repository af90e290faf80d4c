"""DailyDialog as in GRUE: supervised, PPO, NLPO, and both on the supervised model.

    tether train grue-dialog-supervised
    tether train grue-dialog-supervised-ppo --seed 0

Reward, prompts and decoding are those of the task `dailydialog` where a recipe says nothing
else. Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.recipes.grue_settings import GPT2, Demonstrated, Reinforced

TASK = "dailydialog"
NAME = "grue-dialog-supervised"
SUPERVISED = f"runs/{NAME}/policy"
PPO = Reinforced(
    task=TASK,
    model=GPT2,
    prompts=63,
    minibatches=21,
    updates=50,
    lr=1e-6,
    kl=0.2,
    target=0.5,
    every=5,
)
ON_SUPERVISED = replace(PPO, model=SUPERVISED, target=0.05)


def supervised() -> dict[str, Any]:
    """DailyDialog: maximum likelihood on the references, 20 passes (the reference alone trains,
    RL4LMs trains the prompt too).

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-dialog-supervised` plans
    the memory.
    Command: tether train grue-dialog-supervised
    """
    return Demonstrated(
        name=NAME,
        task=TASK,
        model=GPT2,
        rows=35_781,
        passes=20,
        batch=32,
        lr=1e-5,
    ).recipe()


def ppo() -> dict[str, Any]:
    """DailyDialog: PPO with RL4LMs' adaptive KL penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-dialog-ppo` plans the
    memory.
    Command: tether train grue-dialog-ppo --seed 0
    """
    return PPO.recipe()


def nlpo() -> dict[str, Any]:
    """DailyDialog: NLPO, mask top-p 0.9 refreshed every 20 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-dialog-nlpo` plans the
    memory.
    Command: tether train grue-dialog-nlpo --seed 0
    """
    return replace(PPO, updates=100, top_p=0.9).recipe()


def supervised_ppo() -> dict[str, Any]:
    """DailyDialog: PPO on the supervised model. RL4LMs' reward is half intent, half METEOR, here
    the task's.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-dialog-supervised-ppo`
    plans the memory.
    Command: tether train grue-dialog-supervised-ppo --seed 0
    """
    return ON_SUPERVISED.recipe()


def supervised_nlpo() -> dict[str, Any]:
    """DailyDialog: NLPO on the supervised model, mask top-p 0.9 refreshed every 20 updates.
    RL4LMs' reward is a quarter intent, three quarters METEOR, here the task's.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-dialog-supervised-nlpo`
    plans the memory.
    Command: tether train grue-dialog-supervised-nlpo --seed 0
    """
    return replace(ON_SUPERVISED, top_p=0.9).recipe()
