"""IMDB text continuation as in GRUE: supervised, PPO, NLPO, and both on the supervised model.

    tether train grue-imdb-supervised
    tether train grue-imdb-supervised-ppo --seed 0

Reward, prompts and decoding are those of the task `imdb` where a recipe says nothing
else. Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.recipes.grue_settings import GPT2, Demonstrated, Reinforced

TASK = "imdb"
NAME = "grue-imdb-supervised"
SUPERVISED = f"runs/{NAME}/policy"
PPO = Reinforced(
    task=TASK,
    model="lvwerra/gpt2-imdb",
    prompts=27,
    minibatches=27,
    updates=50,
    lr=1e-6,
    kl=0.1,
    target=0.1,
    every=10,
)
ON_SUPERVISED = replace(PPO, model=SUPERVISED)


def supervised() -> dict[str, Any]:
    """IMDB text continuation: maximum likelihood on the references, 10 passes (the positive
    reviews only, as many as `imdb` leaves after its 5,000 of validation).

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-imdb-supervised` plans the
    memory.
    Command: tether train grue-imdb-supervised
    """
    return Demonstrated(
        name=NAME,
        task=TASK,
        model=GPT2,
        rows=10_000,
        passes=10,
        batch=16,
        lr=1e-5,
        part={"positive_only": True},
    ).recipe()


def ppo() -> dict[str, Any]:
    """IMDB text continuation: PPO with RL4LMs' adaptive KL penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-imdb-ppo` plans the memory.
    Command: tether train grue-imdb-ppo --seed 0
    """
    return PPO.recipe()


def nlpo() -> dict[str, Any]:
    """IMDB text continuation: NLPO, mask top-p 0.9 refreshed every 5 updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-imdb-nlpo` plans the
    memory.
    Command: tether train grue-imdb-nlpo --seed 0
    """
    return replace(PPO, top_p=0.9, refresh=5).recipe()


def supervised_ppo() -> dict[str, Any]:
    """IMDB text continuation: PPO on the supervised model.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-imdb-supervised-ppo` plans
    the memory.
    Command: tether train grue-imdb-supervised-ppo --seed 0
    """
    return ON_SUPERVISED.recipe()


def supervised_nlpo() -> dict[str, Any]:
    """IMDB text continuation: NLPO on the supervised model, mask top-p 0.9 refreshed every 5
    updates.

    Hardware: one GPU. Time, memory: not measured; `tether doctor grue-imdb-supervised-nlpo` plans
    the memory.
    Command: tether train grue-imdb-supervised-nlpo --seed 0
    """
    return replace(ON_SUPERVISED, top_p=0.9, refresh=5).recipe()
