"""TRPO's update on a tiny model: what counts as a move, what a failed search leaves behind, whose
losses are in the step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import (
    agent_of,
    collected,
    lines,
    make_world,
    metrics,
    run,
    settings,
)
from tether.algorithms.trpo import TRPO
from tether.config.errors import UserError
from tether.core.masking import weighted_sum
from tether.distributed.total import total
from tether.train.update import PolicyLearner
from tether.types import Clock, LossOutput

SMALL: dict[str, Any] = {
    "kind": "trpo", "lr": 1e-3, "epochs": 1, "minibatches": 1, "cg_steps": 3, "damping": 0.01,
    "critic_epochs": 2, "critic_minibatches": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("trpo"), rows=8, width=16)


def made(world: Path, **algorithm: Any) -> Any:
    change = {"algorithm": {**SMALL, **algorithm}, "data": {"validation_rows": 2}}
    return agent_of(settings(world, change))


def updated(agent: Any, e: Any = None) -> tuple[PolicyLearner, list[str]]:
    ticks: list[str] = []
    learner = PolicyLearner(agent, agent.algorithm, ticks.append, Clock, 0)
    e = collected(agent) if e is None else e
    agent.algorithm.update(learner, e, agent.algorithm.advantages(e, total))
    return learner, ticks


def copies(agent: Any, name: str) -> dict[str, torch.Tensor]:
    return {k: v.detach().clone() for k, v in agent.sets.sets[name].items()}


def same(agent: Any, name: str, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(v, before[k]) for k, v in agent.sets.sets[name].items())


def test_a_step_ticks_once_and_the_critic_ticks_nothing(world: Path) -> None:
    agent = made(world)
    policy, critic = copies(agent, "policy"), copies(agent, "critic")
    learner, ticks = updated(agent)
    assert ticks == ["minibatch", "epoch"]
    assert not same(agent, "policy", policy) and not same(agent, "critic", critic)
    log = learner.log
    assert 0 < log["update/kl_old.exact_nats_per_token"] <= 0.01
    assert log["update/line_search_failed"] == 0 and log["update/line_search_tries"] >= 1
    assert log["update/surrogate_gain"] > 0 and log["update/cg_residual"] > 0
    assert log["update/grad_norm_policy"] > 0 and "update/steps_not_taken" not in log
    assert agent.not_taken == 0
    assert learner.first is not None and learner.first["ratio_error"] < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("why", ["kl", "loss"])
def test_a_failed_search_leaves_every_bit(
    world: Path, why: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is broken at every length, or the loss falls at none: the policy's masters and
    working weights are what they were, no minibatch ticks, and the record counts it."""
    agent = agent_of(settings(world, {"algorithm": SMALL, "model": {"dtype": dtype}}))
    if why == "kl":
        monkeypatch.setattr(PolicyLearner, "kl_from", lambda *_: 1.0)
    else:
        monkeypatch.setattr(PolicyLearner, "kl_from", lambda *_: 0.0)
        whole = PolicyLearner.accumulate

        def never_better(self: Any, *args: Any, gradient: bool = True, **kw: Any) -> Any:
            out = whole(self, *args, gradient=gradient, **kw)
            return out if gradient else {**out, "loss": 1e9}

        monkeypatch.setattr(PolicyLearner, "accumulate", never_better)
    policy = copies(agent, "policy")
    working = {k: v.detach().clone() for k, v in agent.sets.working["policy"].items()}
    critic = copies(agent, "critic")
    learner, ticks = updated(agent)
    assert same(agent, "policy", policy)
    assert all(torch.equal(v, working[k]) for k, v in agent.sets.working["policy"].items())
    assert ticks == ["epoch"]
    assert learner.log["update/line_search_failed"] == 1
    assert learner.log["update/steps_not_taken"] == 1 and agent.not_taken == 1
    assert not same(agent, "critic", critic), "the critic is fitted all the same"
    assert all(p.grad is None for p in policy.values())


def test_no_gradient_is_no_step(world: Path) -> None:
    """Whitened advantages of equal returns are 0."""
    agent = made(world)
    e = collected(agent)
    assert not e.old.values.any(), "the critic starts at 0"
    e = replace(e, rewards=torch.zeros_like(e.rewards))
    policy = copies(agent, "policy")
    learner, ticks = updated(agent, e)
    assert same(agent, "policy", policy) and ticks == ["epoch"]
    assert learner.log["update/line_search_failed"] == 1


def test_a_gradient_that_is_no_number_ends_the_run(world: Path) -> None:
    agent = made(world, normalize_advantages=False)
    e = collected(agent)
    with pytest.raises(UserError, match="gradient of the policy is"):
        updated(agent, replace(e, rewards=e.rewards * float("nan")))


class Likes:
    """A tether's loss that pays for the sampled tokens."""

    acts_on = frozenset({"loss"})

    def loss(self, minibatch: Any, fresh: Any) -> LossOutput:
        return LossOutput(-weighted_sum(minibatch.weights, fresh.free_logprobs))

    def own_text(self, clock: Any, draw: Any) -> None:
        return None


def test_tethers_losses_are_in_the_step(world: Path) -> None:
    """Without any reward the policy still moves where the tether's loss falls."""
    agent = made(world)
    e = collected(agent)
    e = replace(e, rewards=torch.zeros_like(e.rewards))
    agent.tethers = {"likes": Likes()}
    before = float(e.old.free_logprobs[e.mask].mean())
    _, ticks = updated(agent, e)
    assert ticks == ["minibatch", "epoch"]
    with torch.no_grad():
        logp = agent.lm.forward(e.rollout.sequences)[0].log_softmax(-1)
        now = logp.gather(-1, e.rollout.sequences.completion[..., None])[..., 0]
    assert float(now[e.mask].mean()) > before


def test_fisher_rows_are_spread_over_the_batch(world: Path, monkeypatch: Any) -> None:
    agent, seen = made(world, fisher_rows=3), []
    whole = PolicyLearner.fisher

    def spy(self: Any, mb: Any, v: Any) -> Any:
        seen.append(mb.experience.rollout.row.tolist())
        assert float(mb.weights.sum()) == pytest.approx(1)
        return whole(self, mb, v)

    monkeypatch.setattr(PolicyLearner, "fisher", spy)
    e = collected(agent)
    rows = e.rollout.row.tolist()
    learner, _ = updated(agent, e)
    assert {tuple(s) for s in seen} == {(rows[0], rows[1], rows[2])}
    assert learner.log["update/kl_old.exact_nats_per_token"] <= 0.01
    some, _ = TRPO(fisher_rows=2)._some_rows(e, agent.algorithm.advantages(e, total))
    assert some.rollout.row.tolist() == [rows[0], rows[2]]


def test_a_shared_critics_epochs_leave_the_policy_alone(world: Path) -> None:
    """The regression's gradient reaches the trunk, but no step of the policy follows it."""
    agent = agent_of(settings(world, {"algorithm": SMALL, "critic": {"kind": "shared"}}))
    e = collected(agent)
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: None, Clock, 0)
    policy, critic = copies(agent, "policy"), copies(agent, "critic")
    for mb in learner.minibatches(2, e, agent.algorithm.advantages(e, total), 0):
        learner.accumulate(mb, agent.algorithm.critic_loss, tethers=False)
        learner.step(policy=False)
    assert same(agent, "policy", policy) and not same(agent, "critic", critic)
    assert "update/grad_norm_policy" not in learner.log and "update/loss" not in learner.log


def test_a_run_counts_the_steps_that_failed(world: Path, monkeypatch: Any) -> None:
    """Every second search fails: the clock and the note at the end agree."""
    found = PolicyLearner.kl_from
    calls = {"n": -1}

    def update(self: Any, learner: Any, e: Any, t: Any) -> None:
        calls["n"] += 1
        whole(self, learner, e, t)

    whole = TRPO.update
    monkeypatch.setattr(TRPO, "update", update)
    monkeypatch.setattr(
        PolicyLearner, "kl_from", lambda s, o, m: found(s, o, m) if calls["n"] % 2 else 1.0
    )
    change = {"algorithm": SMALL, "data": {"validation_rows": 2}, "checkpoint": {"every": 0}}
    folder = run(settings(world, change, updates=4, name="failures"))
    failed = [m["update/line_search_failed"] for m in metrics(folder)]
    assert failed == [1, 0, 1, 0]
    text = str(lines(folder)[-1])
    assert "2 of 4 planned optimizer steps taken, 2 left out" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 4}, "epochs must be 1 for TRPO.*critic_epochs"),
        ({"minibatches": 2}, "minibatches must be 1 for TRPO.*critic_minibatches"),
        ({"target_kl": 0.0}, "target_kl must be > 0"),
        ({"cg_steps": 0}, "cg_steps must be > 0"),
        ({"fisher_rows": 0}, "fisher_rows must be > 0 or null"),
        ({"damping": -0.1}, "damping must be >= 0"),
        ({"shrink": 1.0}, "shrink must be above 0 and below 1"),
        ({"backtracks": 0}, "backtracks must be > 0"),
        ({"critic_epochs": 0}, "critic_epochs must be > 0"),
        ({"gae_lambda": 2.0}, "gae_lambda must be in"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TRPO(**change)
