"""CNN/DailyMail as in GRUE: supervised, PPO, NLPO, and both on the supervised model.

    tether train grue-cnn-supervised
    tether train grue-cnn-supervised-ppo --seed 0

Reward, prompts and decoding are those of the task `cnn_dailymail` where a recipe says nothing
else. Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.recipes.grue_settings import T5, Demonstrated, Reinforced

TASK = "cnn_dailymail"
NAME = "grue-cnn-supervised"
SUPERVISED = f"runs/{NAME}/policy"
PPO = Reinforced(
    task=TASK,
    model=T5,
    prompts=51,
    minibatches=51,
    updates=100,
    lr=2e-6,
    kl=0.001,
    target=0.2,
    every=10,
)
ON_SUPERVISED = replace(PPO, model=SUPERVISED, updates=50, kl=0.01, sampling={"top_k": 100})


def supervised() -> dict[str, Any]:
    """CNN/DailyMail: maximum likelihood on the references, 2 passes (RL4LMs falls along a cosine,
    here along a line).

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-cnn-supervised` plans the
    memory.
    Command: tether train grue-cnn-supervised
    """
    return Demonstrated(
        name=NAME,
        task=TASK,
        model=T5,
        rows=287_113,
        passes=2,
        batch=16,
        lr=1e-4,
        weight_decay=0.1,
        schedule="linear",
    ).recipe()


def ppo() -> dict[str, Any]:
    """CNN/DailyMail: PPO with RL4LMs' adaptive KL penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-cnn-ppo` plans the memory.
    Command: tether train grue-cnn-ppo --seed 0
    """
    return PPO.recipe()


def nlpo() -> dict[str, Any]:
    """CNN/DailyMail: NLPO, mask top-p 0.9 refreshed every 20 updates. RL4LMs' reward is METEOR,
    here the task's.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-cnn-nlpo` plans the memory.
    Command: tether train grue-cnn-nlpo --seed 0
    """
    return replace(PPO, top_p=0.9, sampling={"top_k": 100}).recipe()


def supervised_ppo() -> dict[str, Any]:
    """CNN/DailyMail: PPO on the supervised model. RL4LMs' reward is METEOR, here the task's.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-cnn-supervised-ppo` plans
    the memory.
    Command: tether train grue-cnn-supervised-ppo --seed 0
    """
    return ON_SUPERVISED.recipe()


def supervised_nlpo() -> dict[str, Any]:
    """CNN/DailyMail: NLPO on the supervised model, mask top-p 0.9 refreshed every 30 updates.
    RL4LMs' reward is METEOR, here the task's.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-cnn-supervised-nlpo` plans
    the memory.
    Command: tether train grue-cnn-supervised-nlpo --seed 0
    """
    return replace(ON_SUPERVISED, top_p=0.9, refresh=30).recipe()
