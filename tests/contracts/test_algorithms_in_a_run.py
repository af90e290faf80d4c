"""Whole-run contracts for every algorithm in the catalog, on a tiny model: a new one is covered by
being listed. Resume is bit for bit, LoRA moves the adapter alone, bad input is one line."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch

from tests.runs_for_tests import (
    agent_of,
    collected,
    lines,
    make_world,
    metrics,
    numbers_of,
    run,
    settings,
)
from tether.config.catalog import CATALOG
from tether.config.catalog import load as load_kind
from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.core.weights import fingerprint
from tether.distributed.total import total
from tether.train.build import build_parts
from tether.train.run import resume, train
from tether.train.update import PolicyLearner
from tether.types import Clock

NAMES = sorted(CATALOG["algorithm"])
ALL = pytest.mark.parametrize("name", NAMES)
SHORT: dict[str, Any] = {
    "updates": 3,
    "data": {"validation_rows": 2},
    "evaluation": {"every": 3, "prompts": 2, "human_rows": 0},
    "checkpoint": {"every": 2},
    "seed": 5,
}


class PowerCut(Exception):
    """Ends a run between two updates, without a word to the trainer."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("algorithms"), rows=8, layers=1)


def chosen(world: Path, kind: str, *changes: dict[str, Any], **values: Any) -> RunSettings:
    """Its defaults but for the size: two completions of a prompt where it wants several."""
    plain = load_kind("algorithm", kind)()
    own: dict[str, Any] = {"kind": kind, "lr": 1e-3}
    if plain.group_size > 1:
        own["group_size"] = 2
    # The shared settings of tests have PPO's epochs and minibatches; here they are its own.
    own |= {k: getattr(plain, k) for k in ("epochs", "minibatches")}
    return settings(world, SHORT, {"algorithm": own}, *changes, **values)


@ALL
def test_two_halves_are_the_whole(world: Path, name: str) -> None:
    whole = run(chosen(world, name, name=f"{name}-whole"))

    def cut(done: int, _total: int, _words: str) -> None:
        if done == 2:
            raise PowerCut

    parts = chosen(world, name, name=f"{name}-parts")
    with pytest.raises(PowerCut):
        train(parts, say=lambda _: None, progress=cut)
    for stir in (random.seed, np.random.seed, torch.manual_seed):
        stir(99)
    again = resume(Path(parts.root) / parts.name, say=lambda _: None)
    want, have = numbers_of(whole), numbers_of(again)
    assert [k for k in want if want[k] != have[k]] == []
    assert [x["update"] for x in lines(again) if x["kind"] == "update"] == [1, 2, 3]
    assert all(np.isfinite(v) for m in metrics(whole) for v in m.values())


@ALL
def test_lora_moves_the_adapter_alone(world: Path, name: str) -> None:
    agent = agent_of(chosen(world, name, {"model": {"lora": {"rank": 2}}}, name=f"{name}-lora"))
    policy = agent.sets.sets["policy"]
    base, before = agent.sets.base_fingerprint(), {k: v.clone() for k, v in policy.items()}
    assert base and all("lora" in k for k in policy)
    ticks: list[str] = []
    clock = Clock()
    for update in range(2):
        e = collected(agent, update)
        learner = PolicyLearner(agent, agent.algorithm, ticks.append, lambda: clock, 0)
        agent.algorithm.update(learner, e, agent.algorithm.advantages(e, total))
        agent.version += 1
    assert "minibatch" in ticks, "no step moved the policy"
    assert any(not torch.equal(policy[k], v) for k, v in before.items())
    assert agent.sets.base_fingerprint() == base
    agent.sets.verify()
    assert fingerprint(agent.sets.sets["initial"]) == fingerprint(before)


@ALL
def test_bad_settings_are_one_line_that_names_them(world: Path, name: str) -> None:
    """Read from the settings' types: a word that is none of a choice, text for a number."""
    kind = load_kind("algorithm", name)
    hints = get_type_hints(kind)
    tried = 0
    for f in fields(kind):
        hint, bad = hints[f.name], None
        if any(get_origin(a) is Literal for a in (hint, *get_args(hint))):
            bad = "nonsense"
        elif hint in (int, float) or set(get_args(hint)) & {int, float}:
            bad = "many"
        elif hint is bool:
            bad = "perhaps"
        if bad is None:
            continue
        tried += 1
        with pytest.raises(UserError, match=rf"algorithm\.{f.name}") as caught:
            chosen(world, name, {"algorithm": {f.name: bad}})
        assert "\n" not in str(caught.value)
    assert tried >= 5


@ALL
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"lr": -1.0}, "lr must be >= 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"writer": "nobody"}, "nothing keeps a weight set 'nobody'"),
        ({"learning_speed": 1.0}, "learning_speed"),
    ],
)
def test_what_cannot_work_is_refused(
    world: Path, name: str, bad: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said) as caught:
        build_parts(chosen(world, name, {"algorithm": bad}))
    assert "\n" not in str(caught.value)


@ALL
def test_rewards_that_it_needs_are_asked_for(world: Path, name: str) -> None:
    kind = load_kind("algorithm", name)
    if not kind.uses_rewards:
        build_parts(chosen(world, name, {"rewards": {"reward": None}}))
        return
    with pytest.raises(UserError, match="needs at least one"):
        build_parts(chosen(world, name, {"rewards": {"reward": None}}))
    with pytest.raises(UserError, match=r"algorithm\.writer is data"):
        build_parts(chosen(world, name, {"algorithm": {"writer": "data"}}))
