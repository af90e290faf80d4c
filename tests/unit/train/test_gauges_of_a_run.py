"""Gauges and guards of a run against a second way of computing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import agent_of, make_world, run, settings
from tether.models.scoring import score_all
from tether.records import DRIFT
from tether.train import persist
from tether.train.evaluate import _Evaluation, evaluate


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("gauges"))


def moved(world: Path) -> Any:
    """An agent whose policy is no longer the initial one."""
    agent = agent_of(settings(world))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for t in agent.sets.sets["policy"].values():
            t.add_(0.05 * torch.randn(t.shape, generator=g))
    agent.sets.publish("policy")
    return agent


def test_the_initial_models_numbers_are_its_own(world: Path) -> None:
    """One pass gives both sides of the KL: they equal two passes of two models."""
    agent = moved(world)
    with agent.sets.beside("initial") as initial:
        one = _Evaluation(agent, initial, "validation", False, None)
        s = one.plain.sequences
        alone = score_all(initial, s, microbatch=agent.microbatch).free_logprobs
        torch.testing.assert_close(one.initial.free_logprobs, alone)
        torch.testing.assert_close(one.policy.set_logprobs["initial"], alone)
    own = score_all(agent.lm, s, microbatch=agent.microbatch).free_logprobs
    k1 = float(torch.where(s.completion_mask, own - alone, 0.0).sum() / len(own))
    assert abs(k1) > 1e-3
    ((point, _),) = evaluate(agent, 0, "validation")
    assert point.drift["drift/kl_initial.k1_nats_per_seq"] == pytest.approx(k1, rel=1e-4)
    assert point.drift[DRIFT] > 1e-3
    nll = -float(torch.where(s.completion_mask, alone, 0.0).sum() / s.completion_mask.sum())
    under = point.metrics["text/perplexity_under_initial"]
    assert under == pytest.approx(float(torch.tensor(nll).exp()), rel=1e-4)


def test_a_base_that_changes_ends_the_run(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(run: Any) -> None:
        module = run.agents[0].lm.module
        frozen = next(p for p in module.parameters() if not p.requires_grad)
        with torch.no_grad():
            frozen.add_(1.0)

    chosen = settings(world, model={"lora": {"rank": 2}}, name="base", updates=1)
    monkeypatch.setattr(persist, "save", save)
    with pytest.raises(RuntimeError, match="frozen base of the adapter has changed"):
        run(chosen)


def test_the_end_of_a_human_text_is_predicted(world: Path, tmp_path: Path) -> None:
    """As docs/metrics.md says; a text of another domain ends as its file has it."""
    (tmp_path / "other.txt").write_text("one two three four five six seven eight nine\n")
    own = {"evaluation": {"domains": {"other": str(tmp_path / "other.txt")}, "human_tokens": 500}}
    agent = agent_of(settings(world, own))
    end = agent.lm.tokenizer.eos_token_id
    domain, other = agent.human.domain, agent.human.others["other"]
    rows = zip(domain.completion, domain.completion_mask, strict=True)
    assert all(row[mask][-1] == end for row, mask in rows)
    assert end not in other.completion[0][other.completion_mask[0]]
