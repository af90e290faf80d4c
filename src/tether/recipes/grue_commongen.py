"""CommonGen as in GRUE: supervised, PPO, NLPO, and both on the supervised model.

    tether train grue-commongen-supervised
    tether train grue-commongen-supervised-ppo --seed 0

Reward, prompts and decoding are those of the task `commongen` where a recipe says nothing
else. Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.recipes.grue_settings import T5, Demonstrated, Reinforced

TASK = "commongen"
NAME = "grue-commongen-supervised"
SUPERVISED = f"runs/{NAME}/policy"
PPO = Reinforced(
    task=TASK,
    model=T5,
    prompts=129,
    minibatches=43,
    updates=200,
    lr=2e-6,
    kl=0.001,
    target=2.0,
    every=20,
    ent_coef=0.01,
)
ON_SUPERVISED = replace(
    PPO,
    model=SUPERVISED,
    prompts=63,
    minibatches=21,
    updates=100,
    kl=0.01,
    target=1.0,
    sampling={"top_k": 50},
)


def supervised() -> dict[str, Any]:
    """CommonGen: maximum likelihood on the references, 4 passes (RL4LMs falls along a cosine,
    here along a line).

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-commongen-supervised` plans
    the memory.
    Command: tether train grue-commongen-supervised
    """
    return Demonstrated(
        name=NAME,
        task=TASK,
        model=T5,
        rows=67_389,
        passes=4,
        batch=8,
        lr=1e-5,
        weight_decay=0.01,
        schedule="linear",
    ).recipe()


def ppo() -> dict[str, Any]:
    """CommonGen: PPO with RL4LMs' adaptive KL penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-commongen-ppo` plans the
    memory.
    Command: tether train grue-commongen-ppo --seed 0
    """
    return PPO.recipe()


def nlpo() -> dict[str, Any]:
    """CommonGen: NLPO, mask top-p 0.9 refreshed every 20 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-commongen-nlpo` plans the
    memory.
    Command: tether train grue-commongen-nlpo --seed 0
    """
    return replace(
        PPO,
        prompts=63,
        minibatches=21,
        updates=100,
        top_p=0.9,
        data={"max_prompt_tokens": 15, "too_long": "truncate_left"},
        sampling={"min_new_tokens": 9, "top_k": 50},
        ent_coef=0.0,
    ).recipe()


def supervised_ppo() -> dict[str, Any]:
    """CommonGen: PPO on the supervised model. RL4LMs' reward is a T5-11B preference model, whose
    checkpoint is not known to be had, here the task's.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-commongen-supervised-ppo`
    plans the memory.
    Command: tether train grue-commongen-supervised-ppo --seed 0
    """
    return ON_SUPERVISED.recipe()


def supervised_nlpo() -> dict[str, Any]:
    """CommonGen: NLPO on the supervised model, mask top-p 0.9 refreshed every 20 updates. RL4LMs'
    reward is METEOR without the penalty, here the task's.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-commongen-supervised-nlpo`
    plans the memory.
    Command: tether train grue-commongen-supervised-nlpo --seed 0
    """
    return replace(ON_SUPERVISED, top_p=0.9).recipe()
