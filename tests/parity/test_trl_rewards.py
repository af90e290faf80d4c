"""Each function of trl.rewards gives the same numbers through our adapter as called directly."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tether.rewards.batch import RewardBatch
from tether.rewards.combine import RewardSet
from tether.rewards.function import FunctionReward

trl_rewards = pytest.importorskip("trl.rewards", reason="trl is not installed")

TEXTS = [
    "<think>\nwhy\n</think>\nThe answer is \\boxed{\\frac{1}{3}}",
    "<think>\nwhy\nThe answer is \\boxed{\\frac{1}{2}}",
    "no idea",
    "<think> a </think> \\boxed{4}",
]
SOLUTIONS = [r"\frac{1}{3}", r"\frac{1}{3}", r"\frac{1}{3}", "4"]
IDS = [[5, 6, 7, 8], [5, 5, 5, 5, 5, 5], [1], list(range(2, 12))]
PROMPT = [{"role": "user", "content": "solve"}]

PLAIN: dict[str, dict[str, Any] | None] = {
    "think_format_reward": None,
    "get_repetition_penalty_reward": {"ngram_size": 2, "max_penalty": -1.0},
    "get_soft_overlong_punishment": {"max_completion_len": 8, "soft_punish_cache": 4},
}
MATHS: dict[str, dict[str, Any] | None] = {
    "accuracy_reward": None,
    "reasoning_accuracy_reward": None,
    "get_cosine_scaled_reward": {"max_len": 20},
}


def both(name: str, factory: dict[str, Any] | None) -> tuple[list[Any], list[Any]]:
    chat = [[{"role": "assistant", "content": t}] for t in TEXTS]
    direct = getattr(trl_rewards, name)
    if factory is not None:
        direct = direct(**factory)
    want = direct(prompts=[PROMPT] * 4, completions=chat, completion_ids=IDS, solution=SOLUTIONS)
    reward = FunctionReward(f"trl.rewards.{name}", factory=factory, missing="drop")
    rewards = RewardSet({"f": reward})
    rewards.check(["prompt", "solution"])
    batch = RewardBatch([PROMPT] * 4, TEXTS, IDS, columns={"solution": SOLUTIONS})
    return want, rewards.score(batch).per_function["f"]


def test_every_function_of_trl_is_here() -> None:
    names = {n for n in dir(trl_rewards) if n.endswith(("_reward", "_punishment"))}
    assert names == {*PLAIN, *MATHS}


@pytest.mark.parametrize("name", PLAIN)
def test_the_same_numbers(name: str) -> None:
    want, got = both(name, PLAIN[name])
    assert got == want
    assert len(set(got)) > 1  # the texts tell the function's cases apart


@pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math_verify is not installed"
)
@pytest.mark.parametrize("name", MATHS)
def test_the_same_numbers_of_the_functions_that_check_mathematics(name: str) -> None:
    want, got = both(name, MATHS[name])
    assert got == want
    assert len(set(got)) > 1


def test_the_solution_column_is_asked_for_before_anything_runs() -> None:
    reward = FunctionReward("trl.rewards.accuracy_reward")
    assert reward.needs() == ("solution",)
