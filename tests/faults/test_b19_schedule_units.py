"""B19: the learning-rate schedule counts optimizer steps, all of them, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.runs_for_tests import agent_of, lines, make_world, settings
from tether.algorithms.ppo import PPO
from tether.config.run import OptimizerSettings
from tether.train import self_checks
from tether.train.optimizer import MasterOptimizer
from tether.train.refuse import steps_of
from tether.train.run import train
from tether.types import Clock


def optimizer(total: int, **change: Any) -> MasterOptimizer:
    p = torch.nn.Parameter(torch.zeros(1))
    groups = {"policy": [p]}
    return MasterOptimizer(groups, groups, OptimizerSettings(**change), total)


def test_ten_batches_of_four_minibatches() -> None:
    end = steps_of(PPO(epochs=1, minibatches=4), 10)
    assert end == Clock(minibatch=40, epoch=10, update=10)
    linear = optimizer(end.minibatch, schedule="linear")
    assert linear.factor(10) == 0.75  # after 10 optimizer steps
    assert linear.factor(0) == 1.0 and linear.factor(39) == pytest.approx(0.025)
    assert optimizer(40).factor(39) == 1.0
    warm = optimizer(40, schedule="linear", warmup_steps=4)
    assert [warm.factor(i) for i in range(5)] == pytest.approx(
        [0.25, 0.5 * 39 / 40, 0.75 * 38 / 40, 37 / 40, 36 / 40]
    )


def test_microbatches_and_ranks_do_not_count(tmp_path: Path, monkeypatch: Any) -> None:
    world = make_world(tmp_path)
    totals = [agent_of(settings(world, batch={"microbatch": n})).optimizer.total_steps
              for n in (1, 4)]  # fmt: skip
    monkeypatch.setattr("tether.train.build.world_size", lambda: 2)
    totals.append(agent_of(settings(world)).optimizer.total_steps)
    assert totals == [24, 24, 24]  # 6 updates x 2 epochs x 2 minibatches


def test_a_run_follows_it_to_the_end(tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[float] = []
    real = torch.optim.AdamW.step

    def step(self: Any, *a: Any, **k: Any) -> Any:
        seen.append(self.param_groups[0]["lr"])
        return real(self, *a, **k)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    said: list[str] = []
    chosen = settings(make_world(tmp_path), optimizer={"schedule": "linear"}, updates=3)
    folder = train(chosen, say=said.append)
    assert any(x.endswith("= 12 optimizer steps") for x in said)
    assert seen == pytest.approx([1e-3 * (1 - i / 12) for i in range(12)])
    assert lines(folder)[-1]["notes"] == {"agent": []}


@pytest.mark.parametrize(("taken", "left_out"), [(13, 0), (12, 1)])
def test_more_steps_than_planned_are_an_error(taken: int, left_out: int) -> None:
    agent: Any = SimpleNamespace(optimizer=optimizer(12), not_taken=left_out)
    with pytest.raises(RuntimeError, match="13 optimizer steps where 12 were planned"):
        self_checks.steps_kept(agent, Clock(minibatch=taken))


def test_fewer_steps_are_noted() -> None:
    agent: Any = SimpleNamespace(optimizer=optimizer(12), not_taken=2)
    assert self_checks.steps_kept(agent, Clock(minibatch=10)) == [
        "10 of 12 planned optimizer steps taken, 2 left out by early stops"
    ]
