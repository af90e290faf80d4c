"""B29 and B31 through a whole update: a dropped sample is as if it had not been drawn; an empty
response is an action like any other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models_for_tests import EOS, byte_tokenizer, tiny_module
from tests.runs_for_tests import (
    MAIN,
    REWARDS,
    agent_of,
    collected,
    gradients,
    lines,
    make_world,
    metrics,
    numbers_of,
    run,
    settings,
)  # fmt: skip
from tether.config.errors import UserError
from tether.train.run import resume


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b29"), layers=1)


def dropping(value: float | None, **_: Any) -> Any:
    def reward(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        out: list[float | None] = [sum(x) / 500 for x in completion_ids]
        out[1] = value
        return out

    return reward


def with_reward(agent: Any, function: Any) -> Any:
    one = replace(agent.rewards.rewards["reward"], function=function, missing="drop")
    agent.rewards = type(agent.rewards)({"reward": one})
    return agent


@pytest.mark.parametrize("value", [float("nan"), None])
@pytest.mark.parametrize("average", ["tokens", "sequences"])
def test_the_gradient_of_a_drop_is_that_of_three(
    world: Path, value: float | None, average: str
) -> None:
    chosen = settings(world, MAIN, algorithm={"average": average, "ent_coef": 0.01})
    agent = with_reward(agent_of(chosen), dropping(value))
    e = collected(agent)
    three = e.rows(torch.tensor([0, 2, 3]))
    have, want = gradients(agent, e), gradients(agent, three)
    assert max(float(g.abs().max()) for g in want.values()) > 1e-3
    for name in want:
        torch.testing.assert_close(have[name], want[name], atol=1e-6, rtol=1e-5)
    whole = gradients(agent, replace(e, rollout=replace(
        e.rollout, sampled=e.rollout.sequences.completion_mask)))  # fmt: skip
    assert any(not torch.allclose(whole[n], want[n], atol=1e-6) for n in want)


def test_a_dropped_sample_is_counted_and_in_no_mean(world: Path) -> None:
    agent = with_reward(agent_of(settings(world)), dropping(None))
    e = collected(agent)
    kept = [sum(x) / 500 for i, x in enumerate(_ids(e)) if i != 1]
    measured = {k: v for k, (v, _) in agent.measured.items()}
    assert measured["rollout/dropped_samples"] == 1.0 and measured["rollout/sequences"] == 3.0
    assert measured["reward/score.mean"] == pytest.approx(sum(kept) / 3)
    lengths = e.rollout.sequences.completion_mask.sum(1).float()
    assert measured["rollout/length_tokens.mean"] == pytest.approx(float(lengths[[0, 2, 3]].mean()))


def _ids(e: Any) -> list[list[int]]:
    s = e.rollout.sequences
    return [x[m].tolist() for x, m in zip(s.completion, s.completion_mask, strict=True)]


def test_nan_stops_with_one_line_and_the_run_is_resumable(world: Path, monkeypatch: Any) -> None:
    function = {"rewards": {"reward": {"function": f"{REWARDS}:spoilt"}}}
    chosen = settings(world, MAIN, function, name="nan", checkpoint={"every": 1})
    with pytest.raises(UserError) as caught:
        run(chosen)
    text = str(caught.value)
    assert "\n" not in text and "sample 2 of 4" in text and "returned nan" in text
    folder = world / "runs" / "nan"
    assert [x["update"] for x in lines(folder) if x["kind"] == "update"] == [1]
    monkeypatch.setenv("TETHER_TEST_HEALED", "1")
    resume(folder, say=lambda _: None)
    healed = settings(world, MAIN, function, name="healed", checkpoint={"every": 1})
    assert numbers_of(folder) == numbers_of(run(healed))


def ends_at_once(folder: Path) -> None:
    """GPT-2 whose EOS has probability 1 (1 - e^-50) whatever stands before it."""
    module = tiny_module("gpt2", sharp=2.0)
    with torch.no_grad():
        norm, table = module.transformer.ln_f, module.transformer.wte.weight
        norm.weight.zero_()
        norm.bias.zero_()
        norm.bias[0] = 1.0
        table[:, 0] = 0.0
        table[EOS, 0] = 50.0
    module.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def test_empty_responses_train(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    ends_at_once(world / "model")
    folder = run(settings(world, MAIN, name="empty", updates=3))
    for m in metrics(folder):
        assert m["rollout/length_tokens.mean"] == 1.0 and m["rollout/finished_share"] == 1.0
        assert all(v is not None for v in m.values())
        assert abs(m["reward/total.mean"]) < 10
    samples = [json.loads(x) for x in (folder / "samples.jsonl").read_text().splitlines()]
    assert samples and {x["completion"] for x in samples} == {""}
    assert lines(folder)[-1]["kind"] == "end"
