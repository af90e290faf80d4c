"""B35, the part of tasks and rewards: evaluation has settings and draws of its own, and nothing it
does moves a random stream of training."""

from __future__ import annotations

import random

import numpy as np
import torch

from tether.config.run import EvaluationSettings, SamplingSettings
from tether.rewards.batch import RewardBatch
from tether.rewards.combine import RewardSet
from tether.rewards.function import FunctionReward
from tether.tasks.task import Task


def draws(evaluate: bool) -> list[list[int]]:
    train = Task([[i] for i in range(2, 30)], name="train")
    validation = Task([[i] for i in range(30, 40)], raw_prompts=["p"] * 10, name="validation")
    rewards = RewardSet(
        {"length": FunctionReward(lambda completions: [len(c) for c in completions])}
    )
    out = []
    for update in range(6):
        out.append(train.draw(update, 8, seed=0).tolist())
        if evaluate:
            rows = validation.draw(0, 4, seed=99).tolist()
            rewards.score(
                RewardBatch([validation.raw_prompts[i] for i in rows], ["x"] * 4, [[1]] * 4)
            )
    return out


def test_training_draws_are_equal_with_and_without_evaluations() -> None:
    assert draws(evaluate=True) == draws(evaluate=False)


def test_global_random_streams_are_not_touched() -> None:
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    draws(evaluate=True)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert str(np.random.get_state()) == before[2]


def test_the_same_seed_draws_another_order_from_another_split() -> None:
    a = Task([[i] for i in range(50)], name="train").draw(0, 50, seed=0)
    b = Task([[i] for i in range(50)], name="validation").draw(0, 50, seed=0)
    assert a.tolist() != b.tolist()


def test_evaluation_sampling_is_a_setting_of_its_own() -> None:
    apart = EvaluationSettings(sampling=SamplingSettings(greedy=True))
    assert apart.sampling is not None and apart.sampling.greedy
    assert not SamplingSettings().greedy
