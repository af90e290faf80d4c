"""Functions with TRL's signature: names, arguments, async, what may come back."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tether.config.errors import UserError
from tether.rewards.batch import RewardBatch, TrainerState
from tether.rewards.combine import RewardSet
from tether.rewards.function import FunctionReward

CHAT = [{"role": "user", "content": "hello"}]


def batch(**changes: Any) -> RewardBatch:
    given: dict[str, Any] = {
        "prompts": ["p0", "p1", "p2"],
        "completions": ["a", "bb", ""],
        "completion_ids": [[5, 1], [6, 7, 1], [1]],
        "columns": {"solution": ["x", "y", "z"], "prompt": ["no"] * 3, "completion": ["no"] * 3},
        "finished": [True, True, False],
    }
    return RewardBatch(**(given | changes))


def score(function: Any, given: RewardBatch | None = None, **settings: Any) -> Any:
    reward = FunctionReward(function, **settings)
    reward.check()
    return RewardSet({"f": reward}).score(given or batch())


def test_every_keyword_of_trl_arrives() -> None:
    seen: dict[str, Any] = {}

    def f(**kwargs: Any) -> list[float]:
        seen.update(kwargs)
        return [0.0] * len(kwargs["prompts"])

    score(f, batch(trainer_state={"global_step": 7}))
    assert set(seen) == {
        "prompts", "completions", "completion_ids", "solution", "trainer_state", "log_extra",
        "log_metric",
    }  # fmt: skip
    assert seen["prompts"] == ["p0", "p1", "p2"]
    assert seen["completions"] == ["a", "bb", ""]
    assert seen["completion_ids"] == [[5, 1], [6, 7, 1], [1]]
    assert seen["solution"] == ["x", "y", "z"]
    assert seen["trainer_state"].global_step == 7
    assert seen["trainer_state"].max_steps == TrainerState().max_steps


def test_only_what_a_function_accepts_is_passed() -> None:
    assert score(lambda completions: [len(c) for c in completions]).score == [1.0, 2.0, 0.0]
    assert score(lambda solution, finished: finished).score == [1.0, 1.0, 0.0]
    assert score(lambda completions, k: [k] * 3, arguments={"k": 4}).score == [4.0] * 3


def test_chat_prompts_give_message_lists() -> None:
    def f(prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
        assert prompts[0] == CHAT
        assert completions[0] == [{"role": "assistant", "content": "a"}]
        return [float(len(c[0]["content"])) for c in completions]

    assert score(f, batch(prompts=[CHAT] * 3)).score == [1.0, 2.0, 0.0]
    messages = [[{"role": "assistant", "content": t}] for t in ("a", "bb", "")]
    assert score(f, batch(prompts=[CHAT] * 3, completions=messages)).score == [1.0, 2.0, 0.0]


def test_async_functions_objects_and_partials_run_together() -> None:
    waiting: list[str] = []

    async def one(completions: list[str], **_: Any) -> list[float]:
        waiting.append("one")
        while "two" not in waiting:
            await asyncio.sleep(0.001)
        return [1.0] * 3

    class Two:
        async def __call__(self, completions: list[str], **_: Any) -> list[float]:
            while "one" not in waiting:
                await asyncio.sleep(0.001)
            waiting.append("two")
            return [2.0] * 3

    rewards = RewardSet(
        {"one": FunctionReward(functools.partial(one)), "two": FunctionReward(Two(), weight=0.5)}
    )
    assert all(r.is_async for r in rewards.rewards.values())
    assert rewards.score(batch()).score == [2.0] * 3  # 1 + .5 * 2


def test_async_rewards_keep_one_loop_and_work_inside_a_running_one() -> None:
    loops = []

    async def f(prompts: list[str], **_: Any) -> list[float]:
        loops.append(asyncio.get_running_loop())
        return [1.0] * 3

    rewards = RewardSet({"f": FunctionReward(f)})

    async def notebook() -> list[float | None]:
        return rewards.score(batch()).score

    assert asyncio.run(notebook()) == [1.0] * 3
    thread = threading.Thread(target=rewards.score, args=(batch(),))
    thread.start()
    thread.join()
    assert len(loops) == 2 and loops[0] is loops[1]


@pytest.mark.parametrize(
    "returned",
    [
        [1, 2.5, False],
        (1, 2.5, 0),
        np.array([1, 2.5, 0], dtype=np.float32),
        torch.tensor([1, 2.5, 0], dtype=torch.bfloat16),
        [np.float64(1), torch.tensor(2.5), np.bool_(False)],
        (x for x in [1, 2.5, 0]),
    ],
    ids=["list", "tuple", "numpy", "torch", "scalars", "generator"],
)
def test_numbers_of_every_kind(returned: Any) -> None:
    result = score(lambda prompts: returned)
    assert result.score == [1.0, 2.5, 0.0]
    assert all(type(x) is float for x in result.score)


def test_token_rewards_are_inside_the_score() -> None:
    rewards = RewardSet(
        {
            "tokens": FunctionReward(
                lambda prompts: [[1.0, 2.0], [0.0, 0.5, 1.0], [3.0]], weight=2.0
            ),
            "flat": FunctionReward(lambda prompts: [10.0, None, 30.0], weight=0.1),
        }
    )
    out = rewards.score(batch())
    assert out.token_rewards == [[2.0, 4.0], [0.0, 1.0, 2.0], [6.0]]
    assert out.score == [7.0, 3.0, 9.0]
    assert out.terminal == [1.0, 0.0, 3.0]
    assert out.per_function == {"tokens": [3.0, 1.5, 3.0], "flat": [10.0, None, 30.0]}
    assert out.missing == {"tokens": 0, "flat": 1}


def test_log_extra_and_log_metric_reach_the_result_and_the_batch() -> None:
    rows: dict[str, list[Any]] = {}

    def f(completions: list[str], log_extra: Any, log_metric: Any) -> list[float]:
        log_extra("upper", [c.upper() for c in completions])
        log_metric("n", 1.0)
        log_metric("n", 4.0)
        return [0.0] * 3

    out = score(f, batch(log_extra=rows.__setitem__))
    assert out.extra == {"upper": ["A", "BB", ""]} == rows
    assert out.metrics == {"log.n": 2.5}


def test_chunks_are_joined_in_order() -> None:
    part = RewardSet({"f": FunctionReward(lambda completions: [len(c) for c in completions])})
    none = RewardSet({"f": FunctionReward(lambda prompts: [None] * 3, missing="drop")})
    tokens = RewardSet(
        {"f": FunctionReward(lambda completion_ids: [[1.0] * len(x) for x in completion_ids])}
    )
    joined = tokens.score(batch()).concatenate(
        [tokens.score(batch()), none.score(batch()), part.score(batch())]
    )
    assert joined.score == [2.0, 3.0, 1.0, None, None, None, 1.0, 2.0, 0.0]
    assert joined.kept == [True] * 3 + [False] * 3 + [True] * 3
    assert joined.token_rewards is not None
    assert [len(x) for x in joined.token_rewards] == [2, 3, 1] * 3
    assert joined.terminal[6:] == [1.0, 2.0, 0.0]


def test_names_of_three_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rewards_x.py").write_text(
        "def ones(prompts, **kw):\n    return [1.0] * len(prompts)\nvalue = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("my_rewards_x.py:ones", "my_rewards_x:ones", "my_rewards_x.ones"):
        assert score(name).score == [1.0] * 3
    for name, message in {
        "my_rewards_x.py:onse": "did you mean 'ones'",
        "nowhere.py:f": "there is no file 'nowhere.py'",
        "no_module_of_that_name:f": "there is no module",
        "my_rewards_x:value": "is int, not callable",
        "ones": "write file.py:function",
        "": "needs `function`",
    }.items():
        with pytest.raises(UserError, match=message):
            FunctionReward(name).check()
    sys.modules.pop("my_rewards_x", None)


def test_columns_that_a_function_needs_are_checked_first() -> None:
    def f(completions: list[str], solution: list[str], optional: Any = None) -> list[float]:
        return [0.0]

    reward = FunctionReward(f)
    assert reward.needs() == ("solution",)
    assert FunctionReward(f, arguments={"solution": 1}).needs() == ()
    with pytest.raises(UserError, match=r"reward 'f' \(f\) needs the column 'solution'; did you"):
        RewardSet({"f": reward}).check(["prompt", "solutions"])
    RewardSet({"f": reward}).check(["solution"])


def test_positional_only_and_unknown_arguments_are_refused() -> None:
    def positional(prompts: list[str], /) -> list[float]:
        return [0.0]

    with pytest.raises(UserError, match="positional-only"):
        FunctionReward(positional).check()
    with pytest.raises(UserError, match="takes no argument 'k'"):
        FunctionReward(lambda prompts: [0.0], arguments={"k": 1}).check()


def test_reserved_names_and_bad_weights_are_refused() -> None:
    f = FunctionReward(lambda prompts: [0.0])
    with pytest.raises(UserError, match="cannot be called 'score'"):
        RewardSet({"score": f})
    with pytest.raises(UserError, match="weight is inf"):
        RewardSet({"f": FunctionReward(lambda prompts: [0.0], weight=float("inf"))})


def test_what_a_reward_refuses_is_its_own_error() -> None:
    """And not one that was raised from itself."""

    def refuses(completions: list[str], **_: Any) -> list[float]:
        raise UserError("a completion is too long for it")

    async def later(completions: list[str], **_: Any) -> list[float]:
        raise UserError("a completion is too long for it")

    for function in (refuses, later):
        with pytest.raises(UserError, match=r"^a completion is too long for it$") as e:
            score(function)
        assert e.value.__cause__ is None
