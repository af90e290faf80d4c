"""Each self-check, broken on purpose, fires; in a healthy run none does."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.runs_for_tests import (
    MAIN,
    agent_of,
    collected,
    lines,
    make_world,
    metrics,
    run,
    settings,
)
from tether.config.errors import UserError
from tether.tethers.triggers import Every
from tether.train import collect as collecting
from tether.train import self_checks
from tether.train import update as updating
from tether.types import Clock


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("checks"), layers=1)


def test_a_healthy_run_is_quiet_and_exact(world: Path) -> None:
    rows = metrics(run(settings(world, MAIN, name="healthy")))
    assert max(m["engine/logprob_error.max"] for m in rows) < 1e-4
    assert rows[0]["kl/initial.k1_nats_per_seq"] == 0.0


def shifted(real: Any, by: float, which: str) -> Any:
    def score(*a: Any, **k: Any) -> Any:
        out = copy.copy(real(*a, **k))
        object.__setattr__(out, which, getattr(out, which) - by)
        return out

    return score


@pytest.mark.parametrize("how", ["scoring", "nan"])
def test_engine_against_scoring(world: Path, monkeypatch: Any, how: str) -> None:
    by = 0.01 if how == "scoring" else float("nan")
    monkeypatch.setattr(collecting, "score_all", shifted(collecting.score_all, by, "logprobs"))
    with pytest.raises(RuntimeError, match="engine and scoring disagree") as caught:
        run(settings(world, name=f"engine-{how}"))
    assert "position" in str(caught.value) and "token" in str(caught.value)
    assert any("run folder" in note for note in caught.value.__notes__)


def test_step_zero_kl(world: Path, monkeypatch: Any) -> None:
    """The initial copy is not what the policy starts from: a leftover adapter, a late cast..."""
    from tether.train import build

    real = build.WeightSets

    def broken(*a: Any, **k: Any) -> Any:
        sets = real(*a, **k)
        next(iter(sets.sets["initial"].values())).mul_(1.05)  # adding would cancel in a norm
        return sets

    monkeypatch.setattr(build, "WeightSets", broken)
    with pytest.raises(RuntimeError, match="KL to the initial model is not 0 before the first"):
        run(settings(world, name="home"))


def test_first_ratios(world: Path, monkeypatch: Any) -> None:
    """The update scores at another temperature than the old policy was scored at."""
    real = updating.scored_as
    monkeypatch.setattr(updating, "scored_as", lambda s, r: real(s, r) | {"temperature": 1.3})
    with pytest.raises(RuntimeError, match="ratios of the first minibatch differ from 1 by"):
        run(settings(world, name="ratios"))


def test_first_ratios_see_dropout_that_nobody_asked_for(tmp_path: Path, monkeypatch: Any) -> None:
    from tether.models.language_model import LanguageModel

    here = make_world(tmp_path, dropout=0.1)
    asked = {"model": {"dropout": True}}
    assert lines(run(settings(here, asked, name="asked", updates=1)))[-1]["kind"] == "end"
    agent = agent_of(settings(here, asked))
    metrics_of_first = {"ratio_error": 0.2}
    self_checks.first_ratios(agent, metrics_of_first)
    agent.lm.dropout = False
    assert isinstance(agent.lm, LanguageModel)
    with pytest.raises(RuntimeError, match="dropout, temperature, mask or weights differ"):
        self_checks.first_ratios(agent, metrics_of_first)


def test_nan_ratios_fire() -> None:
    lm = SimpleNamespace(dropout=False, module=torch.nn.Linear(1, 1))
    agent: Any = SimpleNamespace(lm=lm, found_again=None)
    with pytest.raises(RuntimeError, match="differ from 1 by nan"):
        self_checks.first_ratios(agent, {"ratio_error": float("nan")})


def test_clocks_kept(world: Path, monkeypatch: Any) -> None:
    """A reset whose ticks somebody swallows is an error at the end, not a run without resets."""
    monkeypatch.setattr(Every, "fires", lambda self, clock, measured=None: None)
    with pytest.raises(UserError, match=r"tethers\.elastic_reset\.reset: .*fired 0 times"):
        run(settings(world, MAIN, name="swallowed"))
    rows = lines(world / "runs" / "swallowed")
    assert rows[-1]["kind"] != "end", "such a run is not called complete"


def test_clocks_that_were_kept_are_counted(world: Path) -> None:
    end = lines(run(settings(world, MAIN, name="kept")))[-1]
    assert end["counts"]["agent"] == {"ema<-initial": 2, "ema<-policy": 12, "policy<-ema": 2}


def test_a_trigger_that_never_fired_is_a_note(world: Path) -> None:
    budget = {"kind": "drift_budget", "budget": 1e6}
    change = {"tethers": {"er": {"kind": "elastic_reset", "reset": budget}}}
    end = lines(run(settings(world, change, name="never", updates=2)))[-1]
    assert end["notes"]["agent"] == ["tethers.er.reset never fired"]


def test_the_engine_check_reads_sampled_tokens_only(world: Path) -> None:
    agent = agent_of(settings(world))
    e = collected(agent)
    assert e.rollout.logprobs is not None
    wrong = torch.where(e.mask, e.rollout.logprobs, 99.0)
    self_checks.engine_agrees(agent, replace(e.rollout, logprobs=wrong), e.old.logprobs)


def test_probes_of_a_limit_are_no_moves_and_call_no_reward(world: Path) -> None:
    """`Until`: the share is found by bisection; only the move itself is counted."""
    from tether.train.evaluate import probe
    from tether.train.events import apply_event
    from tether.types import Move, Until, WeightEvent

    agent = agent_of(settings(world, MAIN))
    for t in agent.sets.sets["ema"].values():
        t.add_(0.1 * torch.randn(t.shape, generator=torch.Generator().manual_seed(1)))
    scored: list[int] = []
    real = type(agent.rewards).score
    type(agent.rewards).score = lambda self, batch: scored.append(1) or real(self, batch)
    try:
        name = "drift/kl_initial.exact_nats_per_seq"
        event = WeightEvent((Move("policy", "ema", Until(name, 0.05)),), "a test")
        done = apply_event(agent, event, agent.optimizer, probe)
        assert 0 < done[0]["by"] < 1  # type: ignore[operator]
        assert 0 < probe(agent)[name] <= 0.05
    finally:
        type(agent.rewards).score = real
    assert scored == []
    assert dict(agent.sets.counts) == {"policy<-ema": 1}


def test_the_clock_of_a_run_that_ends_early_is_known() -> None:
    every = Every(3, "update")
    for n in range(1, 8):
        every.fires(Clock(update=n))
    agent: Any = SimpleNamespace(tethers={"t": SimpleNamespace(clocked=lambda: {"reset": every})})
    assert self_checks.clocks_kept(agent, Clock(update=7)) == []
    assert "tethers.t.reset" in self_checks.clocks_kept(agent, Clock(update=9))[0]
