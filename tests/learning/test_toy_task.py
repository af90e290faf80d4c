"""The main job on a toy: completions of low ids are paid for. A few seconds of CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models_for_tests import EOS, byte_tokenizer, tiny_module
from tests.runs_for_tests import (
    REWARDS,
    agent_of,
    collected,
    lines,
    make_world,
    metrics,
    run,
    settings,
)  # fmt: skip
from tether.records import DRIFT

TOY: dict[str, Any] = {
    "updates": 12,
    "rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:low"}},
    "batch": {"prompts": 32, "microbatch": 32},
    "data": {"validation_rows": 16},
    "algorithm": {"lr": 1e-2, "epochs": 2, "minibatches": 2, "gamma": 1.0},
    "evaluation": {"every": 4, "prompts": 16, "human_rows": 0},
    "checkpoint": {"every": 0},
}
"""A random model scores .4: 100 of 259 ids are below 100."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("toy"), rows=48)


def points(folder: Path) -> list[dict[str, Any]]:
    return [x for x in lines(folder) if x["kind"] == "eval"]


def scores(folder: Path) -> list[float]:
    return [m["reward/score.mean"] for m in metrics(folder)]


@pytest.fixture(scope="module")
def plain(world: Path) -> Path:
    return run(settings(world, TOY, name="plain"))


def learnt(folder: Path, by: float = 0.15) -> None:
    s = scores(folder)
    assert sum(s[-3:]) / 3 > sum(s[:3]) / 3 + by, s


def test_ppo_learns(plain: Path) -> None:
    learnt(plain, 0.25)
    first, *_, last = points(plain)
    assert last["reward"] > first["reward"] + 0.3
    assert first["drift"][DRIFT] == 0 and last["drift"][DRIFT] > 0.5


def test_the_kl_penalty_holds(world: Path, plain: Path) -> None:
    kl = {"tethers": {"kl": {"kind": "kl", "coef": 0.5}}}
    held, free = points(run(settings(world, TOY, kl, name="kl")))[-1], points(plain)[-1]
    assert held["drift"][DRIFT] < 0.5 * free["drift"][DRIFT]


def test_a_reset_brings_kl_down(world: Path) -> None:
    reset = {"kind": "every", "n": 6}
    change = {"tethers": {"elastic_reset": {"kind": "elastic_reset", "reset": reset, "decay": 0.9}}}
    folder = run(settings(world, TOY, change, name="reset"))
    sides = [x for x in points(folder) if x["side"]]
    assert [(x["update"], x["side"]) for x in sides] == [
        (6, "before"), (6, "after"), (12, "before"), (12, "after"),
    ]  # fmt: skip
    for before, after in zip(sides[::2], sides[1::2], strict=True):
        assert after["drift"][DRIFT] < 0.6 * before["drift"][DRIFT]
        assert after["drift"]["drift/weight_distance"] < before["drift"]["drift/weight_distance"]
    learnt(folder, 0.05)


def test_reset_to_init_goes_all_the_way(world: Path) -> None:
    part = {"kind": "reset_to_init", "reset": {"kind": "every", "n": 3}}
    folder = run(settings(world, TOY, {"tethers": {"r": part}}, name="init", updates=3))
    after = points(folder)[-1]
    assert after["side"] == "after" and after["drift"][DRIFT] == 0
    assert after["drift"]["drift/weight_distance"] == 0


@pytest.mark.parametrize("kind", ["shared", "detached", "frozen"])
def test_critics_learn_to_predict(world: Path, kind: str) -> None:
    folder = run(settings(world, TOY, critic={"kind": kind}, name=kind))
    learnt(folder)
    # a critic that says 0 for ever would lose half the squared score
    last = metrics(folder)[-1]
    assert last["update/value_loss"] < 0.2 * 0.5 * last["reward/score.mean"] ** 2


def test_from_random_weights(world: Path) -> None:
    """No checkpoint of a model is read: only its configuration and tokenizer."""
    (world / "bare").mkdir()
    byte_tokenizer().save_pretrained(world / "bare")
    tiny_module("llama").config.save_pretrained(world / "bare")
    change = {"model": {"path": str(world / "bare"), "random_weights": True}}
    learnt(run(settings(world, TOY, change, name="random")))


def test_gamma_below_one(world: Path) -> None:
    learnt(run(settings(world, TOY, algorithm={"gamma": 0.9, "gae_lambda": 0.9}, name="gamma")))


def test_discount_reaches_the_advantages(world: Path) -> None:
    """A score of 1 on the last of n tokens, values 0, lambda 1: advantages gamma^(n-1-t)."""
    change = {"algorithm": {"gamma": 0.5, "gae_lambda": 1.0}}
    agent = agent_of(settings(world, TOY, change))
    e = collected(agent)  # the critic's head is still 0
    t = agent.algorithm.advantages(e, lambda x: x)
    for row in range(4):
        n = int(e.mask[row].sum())
        want = [float(e.score[row]) * 0.5 ** (n - 1 - i) for i in range(n)]
        assert t.advantages[row, :n].tolist() == pytest.approx(want, abs=1e-6)
        assert not t.advantages[row, n:].any()


def test_token_rewards_reach_the_advantages(world: Path) -> None:
    function = {"rewards": {"reward": {"function": f"{REWARDS}:per_token"}}}
    change = {"algorithm": {"gamma": 1.0, "gae_lambda": 0.0}}
    agent = agent_of(settings(world, TOY, function, change))
    e = collected(agent)
    paid = (e.rollout.sequences.completion < 100).float() * e.mask
    assert torch.equal(e.rewards, paid) and torch.equal(e.score, paid.sum(1))
    # lambda 0 and values 0: an advantage is that token's own reward
    assert torch.equal(agent.algorithm.advantages(e, lambda x: x).advantages, paid)
    folder = run(settings(world, TOY, function, name="tokens"))
    s = [m["reward/score.mean"] / m["rollout/length_tokens.mean"] for m in metrics(folder)]
    assert sum(s[-3:]) > sum(s[:3]) + 0.6


def test_an_environment_with_two_turns_trains(world: Path, tmp_path: Path) -> None:
    """The model must end its turns to be paid: EOS is made likely enough to be found."""
    here = make_world(tmp_path, rows=48)
    module = tiny_module("gpt2", sharp=2.0, layers=1)
    with torch.no_grad():
        module.transformer.ln_f.bias[0] = 1.0
        module.transformer.wte.weight[EOS, 0] += 4.0
    module.save_pretrained(here / "model")
    file = Path(__file__).parents[1] / "environments_for_tests.py"
    change = {
        "environment": {"kind": f"{file}:TwoTurns"},
        "rewards": {"reward": None},
        "sampling": {"max_new_tokens": 16, "chunk": 12},
        "algorithm": {"lr": 5e-3, "epochs": 4},
        "evaluation": {"samples": 4},
    }
    chosen = settings(here, TOY, change, name="turns", updates=14)
    agent = agent_of(chosen)
    e = collected(agent)
    context = e.rollout.sequences.completion_mask & ~e.rollout.sampled
    assert context.any(), "the environment's text stands between the turns"
    assert not e.rewards[context].any()
    assert "reward/environment.mean" in agent.measured
    learnt(run(chosen), 0.1)
