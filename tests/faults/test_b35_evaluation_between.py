"""B35 at run level: evaluation has its own decoding and seed; training does not feel it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load

from tests.runs_for_tests import MAIN, agent_of, final_state, lines, make_world, run, settings
from tether.train.evaluate import evaluate


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b35"), layers=1)


def test_weights_do_not_feel_evaluations(world: Path) -> None:
    """The reward reads the global generators, evaluations call it too."""
    often = {"evaluation": {"every": 1, "prompts": 4, "seed": 3}}
    seldom = {"evaluation": {"every": 100, "prompts": 2, "human_rows": 0}}
    a, b = (run(settings(world, MAIN, c, name=f"n{i}")) for i, c in enumerate((often, seldom)))
    one, two = (load(final_state(x)) for x in (a, b))
    assert one.keys() == two.keys() and len(one) > 100
    assert [k for k in one if not one[k].equal(two[k])] == []
    counts = [sum(x["kind"] == "eval" for x in lines(f)) for f in (a, b)]
    assert counts[0] > counts[1]
    want, have = ([x["metrics"] for x in lines(f) if x["kind"] == "update"] for f in (a, b))
    for x, y in zip(want, have, strict=True):
        # an evaluation's own gauges stand in the next update's line: they differ by design
        of_training = ("reward/", "kl/", "update/", "rollout/", "engine/", "tether/")
        shared = {k for k in x if k.startswith(of_training)}
        assert len(shared) > 20 and {k: x[k] for k in shared} == {k: y[k] for k in shared}


def completions(agent: Any, update: int = 0) -> list[str]:
    (found,) = evaluate(agent, update, "validation")
    return [row["completion"] for row in found[1]]


def test_greedy_twice_is_equal_and_not_the_sampled(world: Path) -> None:
    greedy = {"evaluation": {"samples": 4, "sampling": {"greedy": True, "max_new_tokens": 5}}}
    a, b = agent_of(settings(world, greedy)), agent_of(settings(world, greedy, seed=7))
    sampled = agent_of(settings(world, evaluation={"samples": 4}))
    assert completions(a) == completions(a) == completions(b)
    assert completions(a) != completions(sampled)
    assert completions(sampled) == completions(sampled)
    assert completions(sampled) != completions(
        agent_of(settings(world, evaluation={"samples": 4, "seed": 1}))
    )


def test_drift_is_along_plain_samples_whatever_the_decoding(world: Path) -> None:
    greedy = {"evaluation": {"sampling": {"greedy": True, "max_new_tokens": 5}}}
    folder = run(settings(world, greedy, name="greedy", updates=2))
    last = [x for x in lines(folder) if x["kind"] == "eval"][-1]
    assert last["drift"]["drift/kl_initial.exact_nats_per_seq"] > 0
    plain = run(settings(world, name="plain", updates=2))
    other = [x for x in lines(plain) if x["kind"] == "eval"][-1]
    name = "drift/kl_initial.exact_nats_per_seq"
    assert last["drift"][name] == other["drift"][name], "same weights, seed and plain samples"
    assert last["reward"] != other["reward"]
    assert last["prompts"] == 4 and last["reward_se"] > 0
