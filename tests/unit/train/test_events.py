"""Moves with a limit: the share that the house finds, and what it writes down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.runs_for_tests import MAIN, agent_of, make_world, settings
from tether.config.errors import UserError
from tether.core.weights import snapshot
from tether.train.events import BISECTIONS, Resolved, apply_event, resolve
from tether.types import Move, Until, WeightEvent

BACK = Move("policy", "ema", Until("drift/x", 0.5))


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Its average is 1 away from the policy in every weight."""
    found = agent_of(settings(make_world(tmp_path_factory.mktemp("events")), MAIN))
    for t in found.sets.sets["ema"].values():
        t.add_(1.0)
    return found


class Gauge:
    """`drift/x` as a function of how far the policy has gone."""

    def __init__(self, agent: Any, f: Callable[[float], float]) -> None:
        self.f, self.seen = f, []
        self.start = snapshot(agent.sets.sets["policy"])

    def __call__(self, agent: Any) -> dict[str, float]:
        name, t = next(iter(agent.sets.sets["policy"].items()))
        by = float((t.detach() - self.start[name]).mean())
        self.seen.append(by)
        return {"drift/x": self.f(by)}


def found(agent: Any, f: Callable[[float], float]) -> Resolved:
    gauge = Gauge(agent, f)
    out = resolve(agent, BACK, gauge)
    for n, t in agent.sets.sets["policy"].items():
        assert torch.equal(t, gauge.start[n]), "a trial is left in the weights"
    assert agent.sets.counts == {}, "a trial is no move"
    assert len(gauge.seen) <= BISECTIONS + 2
    return out


def test_all_of_the_way_where_that_is_within(agent: Any) -> None:
    out = found(agent, lambda by: 0.4 * by)
    assert (out.by, out.measured) == (1.0, pytest.approx(0.4, abs=1e-5))


def test_the_largest_share_by_bisection(agent: Any) -> None:
    """x = 2 by^2 is .5 at by = .5: found to within 1/128 from below."""
    out = found(agent, lambda by: 2 * by**2)
    assert 0.5 - 1 / 128 <= out.by <= 0.5
    assert out.measured == pytest.approx(2 * out.by**2, abs=1e-4) and out.measured <= 0.5
    assert out.move.by == out.by


@pytest.mark.parametrize("seed", range(8))
def test_where_drift_does_not_grow_with_the_share_it_is_within_all_the_same(
    agent: Any, seed: int
) -> None:
    """Bumps: the share is one that was measured, or 0."""
    bumps = torch.rand(9, generator=torch.Generator().manual_seed(seed)).tolist()

    def f(by: float) -> float:
        return 0.0 if by < 1e-3 else bumps[round(8 * by)] + 0.3

    out = found(agent, f)
    assert out.measured is not None and out.measured <= 0.5
    assert f(out.by) == out.measured


def test_where_nothing_is_within_the_share_is_0_and_the_record_says_so(agent: Any) -> None:
    out = found(agent, lambda by: 0.7 + by)
    assert (out.by, out.measured) == (0.0, pytest.approx(0.7))
    assert out.record(BACK) == {
        "what": "policy", "toward": "ema", "by": 0.0,
        "metric": "drift/x", "limit": 0.5, "measured": pytest.approx(0.7),
    }  # fmt: skip


def test_a_nan_is_not_within(agent: Any) -> None:
    assert found(agent, lambda by: float("nan") if by > 0.5 else by).by == pytest.approx(0.5)


def test_an_unknown_metric_is_named(agent: Any) -> None:
    start = snapshot(agent.sets.sets["policy"])
    with pytest.raises(UserError, match=r"limit is on 'drift/x'; measured .* are drift/y, drift/z"):
        resolve(agent, BACK, lambda a: {"drift/z": 0.0, "drift/y": 0.0})
    for n, t in agent.sets.sets["policy"].items():
        assert torch.equal(t, start[n])


def test_an_event_writes_down_share_limit_and_measurement(agent: Any) -> None:
    gauge = Gauge(agent, lambda by: by)
    plain = Move("policy", "initial")
    version = agent.version
    agent.sets.counts.clear()
    done = apply_event(agent, WeightEvent((plain, BACK), "why"), agent.optimizer, gauge)
    assert done[0] == {"what": "policy", "toward": "initial", "by": 1.0}
    assert done[1]["by"] == 0.5 and done[1]["measured"] == pytest.approx(0.5, abs=1e-5)
    assert dict(agent.sets.counts) == {"policy<-initial": 1, "policy<-ema": 1}
    assert agent.version == version + 1
    for n, t in agent.sets.sets["policy"].items():
        assert torch.allclose(t, gauge.start[n] + 0.5, atol=1e-5)
