"""B13, B17 and B18 in the trainer itself: cuts, empty steps, and the head after a resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import (
    MAIN,
    agent_of,
    collected,
    gradients,
    make_world,
    run,
    settings,
)  # fmt: skip
from tether.config.errors import UserError
from tether.core.masking import local
from tether.train import checkpoint
from tether.train.run import load_finished
from tether.train.update import PolicyLearner
from tether.types import Clock


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b17"))


@pytest.mark.parametrize("critic", ["separate", "shared"])
@pytest.mark.parametrize("average", ["tokens", "sequences"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cut_changes_no_gradient(world: Path, critic: str, average: str, dtype: str) -> None:
    """1x8, 2x4, 8x1 on one experience; bf16 masters add every microbatch's gradient in fp32."""
    change = {
        "batch": {"prompts": 8, "microbatch": 8},
        "critic": {"kind": critic},
        "algorithm": {"average": average, "ent_coef": 0.01},
        "model": {"dtype": dtype},
    }
    agent = agent_of(settings(world, MAIN, change))
    e = collected(agent)
    e.rollout.sampled[3, 1:] = False
    found = []
    for size in (8, 4, 1):
        agent.microbatch = size
        found.append(gradients(agent, e))
    big = max(float(g.abs().max()) for g in found[0].values())
    assert big > 1e-3
    limit = 1e-6 if dtype == "float32" else 0.05 * big
    for other in found[1:]:
        for name, g in found[0].items():
            torch.testing.assert_close(other[name], g, atol=limit, rtol=1e-5)


def test_a_step_with_nothing_in_the_mask(world: Path) -> None:
    agent = agent_of(settings(world, MAIN, algorithm={"ent_coef": 0.01}))
    e = collected(agent)
    lengths = e.rollout.sequences.completion_mask.sum(1)
    empty = replace(e, rollout=replace(e.rollout, sampled=torch.zeros_like(e.rollout.sampled)))
    before = {n: t.clone() for n, t in agent.sets.sets["policy"].items()}
    ticks: list[str] = []
    learner = PolicyLearner(agent, agent.algorithm, ticks.append, Clock, 0)
    targets = agent.algorithm.advantages(empty, local)
    agent.algorithm.update(learner, empty, targets)
    assert learner.log["update/loss"] == 0.0
    assert all(torch.isfinite(torch.tensor(v)) for v in learner.log.values())
    assert learner.log["update/grad_norm_policy"] == 0.0
    assert all(torch.equal(t, before[n]) for n, t in agent.sets.sets["policy"].items())
    assert ticks == ["minibatch", "minibatch", "epoch"] * 2, "an empty step is counted"
    assert torch.equal(empty.rollout.sequences.completion_mask.sum(1), lengths)


@pytest.mark.parametrize("kind", ["separate", "shared", "detached", "frozen"])
def test_resume_brings_the_head_back(world: Path, kind: str) -> None:
    folder = run(settings(world, critic={"kind": kind, "lr": 1e-2}, name=f"head-{kind}", updates=2))
    state = checkpoint.load(checkpoint.newest(folder / "checkpoints")[0])  # type: ignore[arg-type]
    saved = state["agents"]["agent"]["sets"]["tensors"]
    _, agent = load_finished(folder)
    critic = agent.sets.sets["critic"]
    assert critic["head.weight"].abs().max() > 0
    for name, t in critic.items():
        assert torch.equal(t, saved[f"critic/{name}"])
    moments = state["agents"]["agent"]["optimizer"]["critic"]
    assert len(moments) == len(critic), "every critic tensor has its moments"


def test_a_checkpoint_without_a_head_is_refused(world: Path, monkeypatch: Any) -> None:
    folder = run(settings(world, name="headless", updates=2))
    real = checkpoint.load

    def load(path: Path) -> dict[str, Any]:
        state = real(path)
        del state["agents"]["agent"]["sets"]["tensors"]["critic/head.weight"]
        return state

    monkeypatch.setattr(checkpoint, "load", load)
    with pytest.raises(UserError, match=r"lacks weights 'critic/head\.weight'"):
        load_finished(folder)
