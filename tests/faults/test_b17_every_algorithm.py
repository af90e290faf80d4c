"""B17 and B18 in the trainer, for every algorithm in the catalog: the cut into microbatches changes
no gradient, and a step with nothing to train moves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import agent_of, collected, gradients, make_world, settings
from tether.config.catalog import CATALOG
from tether.config.catalog import load as load_kind
from tether.distributed.total import total
from tether.train.update import PolicyLearner
from tether.types import Clock

ALL = pytest.mark.parametrize("name", sorted(CATALOG["algorithm"]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b17"), rows=8)


def agent_with(world: Path, name: str) -> Any:
    part: dict[str, Any] = {"kind": name, "epochs": 1, "minibatches": 1}
    groups = load_kind("algorithm", name)().group_size > 1
    part |= {"group_size": 2} if groups else {}
    change = {"batch": {"prompts": 2 if groups else 4}, "data": {"validation_rows": 2}}
    return agent_of(settings(world, {"algorithm": part}, change))


@ALL
def test_the_cut_changes_no_gradient(world: Path, name: str) -> None:
    agent = agent_with(world, name)
    e = collected(agent)
    targets = agent.algorithm.advantages(e, total)
    found = []
    for size in (4, 3, 1):
        agent.microbatch = size
        found.append(gradients(agent, e, targets))
    assert max(float(g.abs().max()) for g in found[0].values()) > 1e-4
    for other in found[1:]:
        for k, g in found[0].items():
            torch.testing.assert_close(other[k], g, atol=2e-6, rtol=1e-4)


@ALL
def test_an_update_with_nothing_in_the_mask(world: Path, name: str) -> None:
    agent = agent_with(world, name)
    e = collected(agent)
    empty = replace(e, rollout=replace(e.rollout, sampled=torch.zeros_like(e.rollout.sampled)))
    before = {n: t.clone() for n, t in agent.sets.sets["policy"].items()}
    ticks: list[str] = []
    learner = PolicyLearner(agent, agent.algorithm, ticks.append, Clock, 0)
    agent.algorithm.update(learner, empty, agent.algorithm.advantages(empty, total))
    assert learner.log["update/loss"] == 0.0
    assert all(torch.isfinite(torch.tensor(v)) for v in learner.log.values())
    assert all(torch.equal(t, before[n]) for n, t in agent.sets.sets["policy"].items())
    assert ticks.count("epoch") == 1
    assert ticks.count("minibatch") + learner.log.get("update/steps_not_taken", 0) == 1
