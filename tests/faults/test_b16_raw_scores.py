"""B16: rewards are not normalised here; what is logged, plotted and chosen by is the raw score."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import agent_of, lines, make_world, metrics, run, settings
from tether.algorithms.ppo import PPO
from tether.config.run import RunSettings
from tether.core.masking import local
from tether.rewards.combine import RewardResult
from tether.train.build import build_parts
from tether.train.collect import token_rewards


def test_the_record_holds_raw_scores(tmp_path: Path) -> None:
    """Scores of a few thousands, far from mean 0 and variance 1, in every place that shows one."""
    given: list[list[float]] = []

    def thousands(completion_ids: list[list[int]], **_: Any) -> list[float]:
        given.append([5000.0 + 10 * len(x) + sum(x) / 7 for x in completion_ids])
        return given[-1]

    chosen = settings(make_world(tmp_path), updates=2, evaluation={"samples": 4})
    parts = build_parts(chosen)
    reward = replace(parts.rewards.rewards["reward"], function=thousands)
    parts = replace(parts, rewards=type(parts.rewards)({"reward": reward}))
    folder = run(chosen, parts=parts)
    evals = [x for x in lines(folder) if x["kind"] == "eval"]
    means = [sum(x) / len(x) for x in given]  # evaluation 0, updates 1 and 2, evaluation 2
    assert [m["reward/score.mean"] for m in metrics(folder)] == pytest.approx(means[1:3])
    assert [m["reward/reward.mean"] for m in metrics(folder)] == pytest.approx(means[1:3])
    assert [x["reward"] for x in evals] == pytest.approx([means[0], means[3]])
    assert [x["scores"]["reward"] for x in evals] == pytest.approx([means[0], means[3]])
    samples = [json.loads(x) for x in (folder / "samples.jsonl").read_text().splitlines()]
    assert [x["score"] for x in samples] == pytest.approx(given[0] + given[3])


def test_scores_reach_the_tokens_as_they_are() -> None:
    """Scores 0 and 1 on completions of 1 and 100 tokens: one number each, not a mean of zeros."""
    mask = torch.arange(100) < torch.tensor([1, 100])[:, None]
    raw, rewards, has = token_rewards(RewardResult([0.0, 1.0], {}), mask)
    assert raw.tolist() == [0.0, 1.0] and has.all()
    assert rewards.sum(1).tolist() == [0.0, 1.0] and rewards[1, 99] == 1.0


def test_normalised_advantages_leave_the_score_alone(tmp_path: Path) -> None:
    from tests.runs_for_tests import collected

    a = agent_of(settings(make_world(tmp_path)))
    e = collected(a)
    before = e.score.clone(), e.rewards.clone()
    a.algorithm.advantages(e, local)
    assert torch.equal(e.score, before[0]) and torch.equal(e.rewards, before[1])


def test_nothing_offers_to_normalise_rewards() -> None:
    """If it is offered one day, it must say what, over what and from whom, and this test goes."""
    names = [f.name for f in fields(PPO)] + _names(RunSettings)
    assert [n for n in names if ("norm" in n and "reward" in n) or "whiten" in n] == []


def _names(settings_class: Any) -> list[str]:
    out = []
    for f in fields(settings_class):
        out.append(f.name)
        value = f.default_factory() if callable(f.default_factory) else None  # type: ignore[misc]
        if is_dataclass(value):
            out += _names(type(value))
    return out
