"""B29: a reward that raises, or gives NaN, the wrong count or no number, is named with its sample;
dropping one sample is as if it had not been drawn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tether.config.errors import UserError
from tether.core.masking import token_weights
from tether.rewards.batch import RewardBatch
from tether.rewards.combine import RewardSet
from tether.rewards.function import FunctionReward

NAN, INF = float("nan"), float("inf")


def batch() -> RewardBatch:
    prompts = [f"Review number {i}, which is long enough to be cut somewhere" for i in range(4)]
    return RewardBatch(prompts, ["a", "b", "c", "d"], [[5, 1], [6, 7, 1], [8, 1], [1]])


def score(function: Any, **settings: Any) -> Any:
    return RewardSet({"mine": FunctionReward(function, **settings)}).score(batch())


def gives(value: Any) -> Any:
    def tone(prompts: list[str], **_: Any) -> Any:
        return value

    return tone


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, NAN, 3, 4], "returned nan"),
        ([1, INF, 3, 4], "returned inf"),
        ([1, -INF, 3, 4], "returned -inf"),
        ([1, "good", 3, 4], r"returned 'good' \(str\)"),
        ([1, {"score": 1}, 3, 4], r"returned {'score': 1} \(dict\)"),
        ([1, None, 3, 4], "no number for this sample"),
        ([1], "returned 1 values for 4 samples"),
        ([[1, 1], [1, 1], [1, 1], [1]], "a list of 2 token rewards for a completion of 3 tokens"),
        ([[1, 1], [1, NAN, 1], [1, 1], [1]], "returned nan for token 2"),
        ([[1, 1], [1, None, 1], [1, 1], [1]], r"returned None \(NoneType\) for token 2"),
        ([1.0, [1, 1, 1], 3.0, 4.0], "a number for some samples and a list for others"),
        (torch.tensor([1, NAN, 3, 4]), "returned nan"),
    ],
)
def test_sample_2_of_4_is_named(returned: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        score(gives(returned))
    text = str(caught.value)
    assert "reward 'mine' (tone), sample 2 of 4" in text
    assert "prompt 'Review number 1, which is long enough to" in text
    assert "\n" not in text


@pytest.mark.parametrize("returned", [1.0, None, "1234", {"a": 1}], ids=str)
def test_what_is_no_list_is_named(returned: Any) -> None:
    with pytest.raises(UserError, match=r"reward 'mine' \(tone\) returned .* return a list of 4"):
        score(gives(returned))


def test_too_many_values_are_an_error() -> None:
    with pytest.raises(UserError, match="returned 5 values for 4 samples"):
        score(gives([1.0] * 5))


def fails(completions: list[str], **_: Any) -> list[float]:
    return [1 / (text != "c") for text in completions]


async def fails_later(completions: list[str], **_: Any) -> list[float]:
    return fails(completions)


@pytest.mark.parametrize("function", [fails, fails_later])
def test_an_exception_is_raised_again_with_its_sample(function: Any) -> None:
    with pytest.raises(UserError, match="sample 3 of 4, prompt 'Review number 2") as caught:
        score(function)
    assert "raised ZeroDivisionError: division by zero" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_exception_that_no_single_sample_repeats_says_so() -> None:
    def together(completions: list[str], **_: Any) -> list[float]:
        if len(completions) > 1:
            raise OSError("too many requests")
        return [1.0]

    with pytest.raises(UserError, match="raised OSError: too many requests, on 4 samples together"):
        score(together)


def test_a_failing_sync_function_leaves_no_coroutine_behind(recwarn: Any) -> None:
    rewards = RewardSet({"a": FunctionReward(fails_later), "b": FunctionReward(fails)})
    with pytest.raises(UserError, match="reward 'b'"):
        rewards.score(batch())
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


@pytest.mark.parametrize("value", [NAN, None, INF])
def test_a_dropped_sample_weighs_as_if_it_had_not_been_drawn(value: float | None) -> None:
    out = score(gives([1.0, value, 3.0, 4.0]), missing="drop")
    assert out.score == [1.0, None, 3.0, 4.0]
    assert out.missing == {"mine": 1}
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    kept = torch.tensor(out.kept)
    weights = token_weights(mask & kept[:, None], "tokens")
    assert torch.equal(weights[kept], token_weights(mask[kept], "tokens"))
    assert float(weights[1].sum()) == 0.0


def test_none_from_one_of_two_functions_is_no_error_and_no_zero() -> None:
    a = FunctionReward(gives([1.0, None, 3.0, None]), weight=2.0)
    b = FunctionReward(gives([None, 5.0, 1.0, None]))
    with pytest.raises(UserError, match=r"sample 4 of 4.*none of \['a', 'b'\] applies"):
        RewardSet({"a": a, "b": b}).score(batch())
    soft = RewardSet(
        {
            "a": FunctionReward(a.function, weight=2.0, missing="drop"),
            "b": FunctionReward(b.function, missing="drop"),
        }
    ).score(batch())
    assert soft.score == [2.0, 5.0, 7.0, None]
    assert soft.per_function == {"a": [1.0, None, 3.0, None], "b": [None, 5.0, 1.0, None]}
