"""Numbers of an update are fetched when somebody reads them, and in the order they were noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import agent_of, collected, make_world, settings
from tether.config.errors import UserError
from tether.distributed.total import total
from tether.train.seeding import seed_user_code
from tether.train.update import Later, PolicyLearner
from tether.types import Clock


@pytest.fixture(scope="module")
def world(tmp_path_factory: Any) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def learner_of(agent: Any, ticks: list[str]) -> PolicyLearner:
    return PolicyLearner(
        agent, agent.algorithm, lambda unit: ticks.append(unit), lambda: Clock(update=4), 0
    )


def test_fetched_once_and_only_when_read() -> None:
    calls = []

    def fetch() -> dict[str, float]:
        calls.append(1)
        return {"a": 1.0}

    later = Later(fetch)
    assert not calls
    assert later["a"] == 1.0 and dict(later) == {"a": 1.0} and len(later) == 1
    assert calls == [1]


def on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the log is not read after each step."""
    plain = PolicyLearner.log
    monkeypatch.setattr(PolicyLearner, "log", property(lambda self: self._log))
    monkeypatch.setattr(PolicyLearner, "read", plain, raising=False)


def test_the_log_is_the_same_whenever_it_is_read(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for late in (False, True):
        with monkeypatch.context() as m:
            if late:
                on_a_device(m)
            seed_user_code(0, 1)  # the world's rewards draw
            agent = agent_of(settings(world))
            e, ticks = collected(agent), list[str]()
            learner = learner_of(agent, ticks)
            targets = agent.algorithm.advantages(e, total)
            for mb in learner.minibatches(2, e, targets, 0):
                learner.accumulate(mb)
                learner.step()
            learner.note({"more": 3.0})
            assert learner._noted if late else True
            log = dict(learner.read if late else learner.log)  # type: ignore[attr-defined]
            assert ticks == ["minibatch"] * 2 and log["update/more"] == 3.0
            assert learner.first is not None
            found.append((log, dict(learner.first)))
    assert found[0] == found[1]
    assert found[0][0]["update/grad_norm_policy"] > 0


def test_a_gradient_that_is_not_finite_is_told_by_the_update_it_came_in(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_device(monkeypatch)
    agent = agent_of(settings(world))
    e = collected(agent)
    learner = learner_of(agent, [])
    learner.accumulate(learner.whole(e, agent.algorithm.advantages(e, total)))
    before = [p.clone() for p in learner.parameters]
    for p in learner.parameters:
        p.grad = torch.full_like(p, float("nan"))
    learner.step()
    assert all(torch.equal(a, b) for a, b in zip(before, learner.parameters, strict=True))
    with pytest.raises(UserError, match="update 5: the gradient of the policy is nan"):
        _ = learner.read  # type: ignore[attr-defined]


def test_what_raises_raises_again(world: Path) -> None:
    """A log that has failed once is not an empty one."""
    learner = learner_of(agent_of(settings(world)), [])

    def fails() -> None:
        raise UserError("diverged")

    learner.note({"a": 1.0})
    learner._noted.append(fails)
    learner.note({"b": 2.0})
    for _ in range(2):
        with pytest.raises(UserError, match="diverged"):
            _ = learner.log
    assert learner._log == {"update/a": 1.0} and len(learner._noted) == 2
