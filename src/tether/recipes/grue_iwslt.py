"""IWSLT17 English-German as in GRUE: supervised, PPO, NLPO, and both on the supervised model.

    tether train grue-iwslt-supervised
    tether train grue-iwslt-supervised-ppo --seed 0

Reward, prompts and decoding are those of the task `iwslt17` where a recipe says nothing
else. Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.recipes.grue_settings import T5, Demonstrated, Reinforced

TASK = "iwslt17"
NAME = "grue-iwslt-supervised"
SUPERVISED = f"runs/{NAME}/policy"
PPO = Reinforced(
    task=TASK,
    model=T5,
    prompts=40,
    minibatches=40,
    updates=50,
    lr=1e-6,
    kl=0.001,
    target=0.2,
    every=10,
)
ON_SUPERVISED = replace(PPO, model=SUPERVISED, lr=5e-7, sampling={"top_k": 5})


def supervised() -> dict[str, Any]:
    """IWSLT17 English-German: maximum likelihood on the references, 5 passes.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-iwslt-supervised` plans the
    memory.
    Command: tether train grue-iwslt-supervised
    """
    return Demonstrated(
        name=NAME,
        task=TASK,
        model=T5,
        rows=206_112,
        passes=5,
        batch=64,
        lr=1e-5,
        weight_decay=0.1,
    ).recipe()


def ppo() -> dict[str, Any]:
    """IWSLT17 English-German: PPO with RL4LMs' adaptive KL penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-iwslt-ppo` plans the
    memory.
    Command: tether train grue-iwslt-ppo --seed 0
    """
    return PPO.recipe()


def nlpo() -> dict[str, Any]:
    """IWSLT17 English-German: NLPO, mask top-p 0.5 refreshed every 20 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-iwslt-nlpo` plans the
    memory.
    Command: tether train grue-iwslt-nlpo --seed 0
    """
    return replace(PPO, top_p=0.5).recipe()


def supervised_ppo() -> dict[str, Any]:
    """IWSLT17 English-German: PPO on the supervised model.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-iwslt-supervised-ppo` plans
    the memory.
    Command: tether train grue-iwslt-supervised-ppo --seed 0
    """
    return ON_SUPERVISED.recipe()


def supervised_nlpo() -> dict[str, Any]:
    """IWSLT17 English-German: NLPO on the supervised model, mask top-p 0.5 refreshed every 20
    updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-iwslt-supervised-nlpo`
    plans the memory.
    Command: tether train grue-iwslt-supervised-nlpo --seed 0
    """
    return replace(ON_SUPERVISED, top_p=0.5, sampling={}).recipe()
