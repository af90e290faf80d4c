"""NarrativeQA as in GRUE: supervised, PPO, NLPO, and both on the supervised model.

    tether train grue-narrativeqa-supervised
    tether train grue-narrativeqa-supervised-ppo --seed 0

Reward, prompts and decoding are those of the task `narrativeqa` where a recipe says nothing
else. Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.recipes.grue_settings import T5, Demonstrated, Reinforced

TASK = "narrativeqa"
NAME = "grue-narrativeqa-supervised"
SUPERVISED = f"runs/{NAME}/policy"
PPO = Reinforced(
    task=TASK,
    model=T5,
    prompts=51,
    minibatches=51,
    updates=100,
    lr=2e-6,
    kl=0.001,
    target=1.0,
    every=10,
)
ON_SUPERVISED = replace(PPO, model=SUPERVISED, prompts=102, minibatches=102, lr=5e-7, target=0.2)


def supervised() -> dict[str, Any]:
    """NarrativeQA: maximum likelihood on the references, 2 passes (RL4LMs has none, it starts
    from allenai/unifiedqa-t5-base: the numbers are those of its CNN/DailyMail).

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-narrativeqa-supervised`
    plans the memory.
    Command: tether train grue-narrativeqa-supervised
    """
    return Demonstrated(
        name=NAME,
        task=TASK,
        model=T5,
        rows=65_494,
        passes=2,
        batch=16,
        lr=1e-4,
        weight_decay=0.1,
        schedule="linear",
    ).recipe()


def ppo() -> dict[str, Any]:
    """NarrativeQA: PPO with RL4LMs' adaptive KL penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-narrativeqa-ppo` plans the
    memory.
    Command: tether train grue-narrativeqa-ppo --seed 0
    """
    return PPO.recipe()


def nlpo() -> dict[str, Any]:
    """NarrativeQA: NLPO, mask top-p 0.9 refreshed every 20 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-narrativeqa-nlpo` plans the
    memory.
    Command: tether train grue-narrativeqa-nlpo --seed 0
    """
    return replace(PPO, top_p=0.9).recipe()


def supervised_ppo() -> dict[str, Any]:
    """NarrativeQA: PPO on the supervised model.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-narrativeqa-supervised-ppo`
    plans the memory.
    Command: tether train grue-narrativeqa-supervised-ppo --seed 0
    """
    return ON_SUPERVISED.recipe()


def supervised_nlpo() -> dict[str, Any]:
    """NarrativeQA: NLPO on the supervised model, mask top-p 0.9 refreshed every 20 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor
    grue-narrativeqa-supervised-nlpo` plans the memory.
    Command: tether train grue-narrativeqa-supervised-nlpo --seed 0
    """
    return replace(ON_SUPERVISED, prompts=51, minibatches=51, top_p=0.9).recipe()
