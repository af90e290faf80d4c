"""Cells of GRUE with the reward that RL4LMs gave to that cell alone.

    tether train rl4lms-dialog-supervised-ppo --seed 0

The recipes `grue-TASK-METHOD` train every method of a task on one reward, so that they can be
compared. RL4LMs' configurations differ from cell to cell; where one does, it is here. The other
compositions are a task's own: METEOR with the penalty for repeating the prompt
(`grue-commongen-ppo`, `grue-commongen-nlpo`), three quarters intent and a quarter METEOR
(`grue-dialog-ppo`, `grue-dialog-nlpo`).

Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs.
"""

from __future__ import annotations

from typing import Any

from tether.recipes import grue_cnn, grue_commongen, grue_dialog
from tether.rewards.compositions import (
    Parts,
    intent_and_meteor,
    meteor,
    preference_with_concept_penalty,
)
from tether.tasks.dailydialog import CLASSIFIER

PREFERENCE = "runs/commongen-preference"


def _with(recipe: dict[str, Any], rewards: Parts) -> dict[str, Any]:
    return {**recipe, "rewards": rewards}


def commongen_supervised_ppo() -> dict[str, Any]:
    """CommonGen: PPO on the supervised model, rewarded by METEOR + P(preferred) / (1 + missing
    concepts), as the paper's section 5.2 (the published configuration sets both coefficients to 0).
    The preference model is yours, a run of `tether reward-model train --name commongen-preference`:
    RL4LMs' T5-11B is not known to be had.

    Hardware: one GPU. Time, memory: not measured; `tether doctor rl4lms-commongen-supervised-ppo`
    plans the memory.
    Command: tether train rl4lms-commongen-supervised-ppo --seed 0
    """
    return _with(grue_commongen.supervised_ppo(), preference_with_concept_penalty(PREFERENCE))


def commongen_supervised_nlpo() -> dict[str, Any]:
    """CommonGen: NLPO on the supervised model, rewarded by METEOR without the penalty.

    Hardware: one GPU. Time, memory: not measured; `tether doctor rl4lms-commongen-supervised-nlpo`
    plans the memory.
    Command: tether train rl4lms-commongen-supervised-nlpo --seed 0
    """
    return _with(grue_commongen.supervised_nlpo(), meteor())


def cnn_nlpo() -> dict[str, Any]:
    """CNN/DailyMail: NLPO, rewarded by METEOR.

    Hardware: one GPU. Time, memory: not measured; `tether doctor rl4lms-cnn-nlpo` plans the memory.
    Command: tether train rl4lms-cnn-nlpo --seed 0
    """
    return _with(grue_cnn.nlpo(), meteor())


def cnn_supervised_ppo() -> dict[str, Any]:
    """CNN/DailyMail: PPO on the supervised model, rewarded by METEOR.

    Hardware: one GPU. Time, memory: not measured; `tether doctor rl4lms-cnn-supervised-ppo` plans
    the memory.
    Command: tether train rl4lms-cnn-supervised-ppo --seed 0
    """
    return _with(grue_cnn.supervised_ppo(), meteor())


def cnn_supervised_nlpo() -> dict[str, Any]:
    """CNN/DailyMail: NLPO on the supervised model, rewarded by METEOR.

    Hardware: one GPU. Time, memory: not measured; `tether doctor rl4lms-cnn-supervised-nlpo` plans
    the memory.
    Command: tether train rl4lms-cnn-supervised-nlpo --seed 0
    """
    return _with(grue_cnn.supervised_nlpo(), meteor())


def dialog_supervised_ppo() -> dict[str, Any]:
    """DailyDialog: PPO on the supervised model, rewarded by half intent, half METEOR.

    Hardware: one GPU. Time, memory: not measured; `tether doctor rl4lms-dialog-supervised-ppo`
    plans the memory.
    Command: tether train rl4lms-dialog-supervised-ppo --seed 0
    """
    parts = intent_and_meteor(CLASSIFIER, intent=0.5, overlap=0.5)
    return _with(grue_dialog.supervised_ppo(), parts)


def dialog_supervised_nlpo() -> dict[str, Any]:
    """DailyDialog: NLPO on the supervised model, rewarded by a quarter intent, three quarters
    METEOR.

    Hardware: one GPU. Time, memory: not measured; `tether doctor rl4lms-dialog-supervised-nlpo`
    plans the memory.
    Command: tether train rl4lms-dialog-supervised-nlpo --seed 0
    """
    parts = intent_and_meteor(CLASSIFIER, intent=0.25, overlap=0.75)
    return _with(grue_dialog.supervised_nlpo(), parts)
