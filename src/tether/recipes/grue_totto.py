"""ToTTo as in GRUE: supervised, PPO, NLPO, and both on the supervised model.

    tether train grue-totto-supervised
    tether train grue-totto-supervised-ppo --seed 0

Reward, prompts and decoding are those of the task `totto` where a recipe says nothing
else. Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.recipes.grue_settings import T5, Demonstrated, Reinforced

TASK = "totto"
NAME = "grue-totto-supervised"
SUPERVISED = f"runs/{NAME}/policy"
PPO = Reinforced(
    task=TASK,
    model=T5,
    prompts=51,
    minibatches=51,
    updates=100,
    lr=2e-6,
    kl=0.001,
    target=2.0,
    every=20,
)
ON_SUPERVISED = replace(PPO, model=SUPERVISED, lr=5e-7, kl=0.01, target=0.2, sampling={"top_k": 50})


def supervised() -> dict[str, Any]:
    """ToTTo: maximum likelihood on the references, 5 passes (RL4LMs warms up for no step).

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-totto-supervised` plans the
    memory.
    Command: tether train grue-totto-supervised
    """
    return Demonstrated(
        name=NAME,
        task=TASK,
        model=T5,
        rows=120_761,
        passes=5,
        batch=8,
        lr=1e-4,
        weight_decay=0.1,
    ).recipe()


def ppo() -> dict[str, Any]:
    """ToTTo: PPO with RL4LMs' adaptive KL penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-totto-ppo` plans the
    memory.
    Command: tether train grue-totto-ppo --seed 0
    """
    return PPO.recipe()


def nlpo() -> dict[str, Any]:
    """ToTTo: NLPO, mask top-p 0.9 refreshed every 20 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-totto-nlpo` plans the
    memory.
    Command: tether train grue-totto-nlpo --seed 0
    """
    return replace(PPO, top_p=0.9).recipe()


def supervised_ppo() -> dict[str, Any]:
    """ToTTo: PPO on the supervised model.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-totto-supervised-ppo` plans
    the memory.
    Command: tether train grue-totto-supervised-ppo --seed 0
    """
    return ON_SUPERVISED.recipe()


def supervised_nlpo() -> dict[str, Any]:
    """ToTTo: NLPO on the supervised model, mask top-p 0.9 refreshed every 20 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-totto-supervised-nlpo`
    plans the memory.
    Command: tether train grue-totto-supervised-nlpo --seed 0
    """
    return replace(ON_SUPERVISED, top_p=0.9, sampling={}).recipe()
