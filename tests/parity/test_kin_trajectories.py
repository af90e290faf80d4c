"""The kin of Elastic Reset on two weights, against numbers worked out by hand.

The initial weights are w0 = (1, -2), every learning step adds s = (.1, -.2); what stands in the
lists is how many steps s a set is away from w0. Sources: TR-DPO (arXiv 2404.09656), ProRL
(2505.24864), WARP (2406.16768), elastic averaging (1412.6651), shrink-and-perturb (1910.08475),
and the ablation without the average's way home of arXiv 2312.07551.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from tether.core.weights import WeightSet, lerp_, snapshot
from tether.tethers.base import Tether
from tether.tethers.elastic_pull import ElasticPull
from tether.tethers.elastic_reset import ElasticReset
from tether.tethers.ema_anchor import EMAAnchor
from tether.tethers.ref_sync import RefSync
from tether.tethers.reset_to_ema import ResetToEMA
from tether.tethers.reset_to_init import ResetToInit
from tether.tethers.triggers import Every
from tether.types import Clock, Measured, Move, Unit, WeightEvent

START = {"h.0.w": torch.tensor([1.0]), "h.1.w": torch.tensor([-2.0])}
STEP = {"h.0.w": torch.tensor([0.1]), "h.1.w": torch.tensor([-0.2])}
SECOND = ("*.1.*",)
STEPS, UPDATE = Every(1, "minibatch"), Every(1, "update")


@dataclass
class House:
    """Executes moves as the trainer does; an update is one optimizer step here."""

    tether: Tether
    clock: Clock = field(default_factory=Clock)
    sets: dict[str, WeightSet] = field(default_factory=dict)
    events: list[WeightEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = ("policy", "initial", *self.tether.keeps())
        self.sets = {name: snapshot(START) for name in names}

    def run(self, updates: int, name: str = "policy", parameter: str = "h.0.w") -> list[float]:
        """Distance of a set from the start after each update, in steps."""
        out = []
        for _ in range(updates):
            for k, s in STEP.items():
                self.sets["policy"][k].add_(s)
            for unit in ("minibatch", "epoch", "update"):
                self._tick(unit)
            out.append(self._steps(name, parameter))
        return out

    def _steps(self, name: str, parameter: str) -> float:
        away = self.sets[name][parameter] - START[parameter]
        return float(away / STEP[parameter])

    def _tick(self, unit: Unit) -> None:
        self.clock = self.clock.tick(unit)
        wishes = list(self.tether.after(unit, self.clock, Measured()))
        events = [w for w in wishes if isinstance(w, WeightEvent)]
        for m in [w for w in wishes if isinstance(w, Move)] + [m for e in events for m in e.moves]:
            assert isinstance(m.by, float)
            lerp_(self.sets[m.what], self.sets[m.toward], m.by, m.where)
        self.events += events


def near(values: list[float]) -> object:
    return pytest.approx(values, abs=1e-5)


def test_elastic_pull() -> None:
    """x <- .9 (x + 1): .9, 1.71, 2.439, 3.0951, and 9 in the end."""
    seen = House(ElasticPull(0.1)).run(300)
    assert seen[:4] == near([0.9, 1.71, 2.439, 3.0951])
    assert seen[-1] == pytest.approx(9.0, abs=1e-3)


def test_elastic_pull_on_a_slower_clock() -> None:
    """1, then .5 x 2 = 1, 2, .5 x 3 = 1.5, 2.5, 1.75."""
    seen = House(ElasticPull(0.5, Every(2, "update"))).run(6)
    assert seen == near([1, 1, 2, 1.5, 2.5, 1.75])


def test_reset_to_init_and_its_half() -> None:
    assert House(ResetToInit(Every(2))).run(5) == near([1, 0, 1, 0, 1])
    assert House(ResetToInit(Every(2), by=0.5)).run(6) == near([1, 1, 2, 1.5, 2.5, 1.75])


def test_reset_to_ema_keeps_what_elastic_reset_gives_up() -> None:
    """d = .5. e: .5, 1.25 (reset: w 1.25), 1.75, 2.5 (reset: w 2.5); Elastic Reset's e starts anew
    after 1.25: 1.125, 2.1875."""
    stays = ResetToEMA(Every(2), UPDATE, 0.5)
    assert House(stays).run(5) == near([1, 1.25, 2.25, 2.5, 3.5])
    assert House(ResetToEMA(Every(2), Every(1), 0.5)).run(4, "ema") == near([0.5, 1.25, 1.75, 2.5])
    elastic = ElasticReset(Every(2), Every(1), 0.5)
    assert House(elastic).run(5) == near([1, 1.25, 2.25, 2.1875, 3.1875])


def test_the_anchor_is_an_average_of_its_own() -> None:
    """d = .9: .1, .09 + .2 = .29, .261 + .3 = .561, .5049 + .4 = .9049; the policy is free."""
    house = House(EMAAnchor(average=Every(1, "minibatch"), decay=0.9))
    assert house.run(4, "anchor") == near([0.1, 0.29, 0.561, 0.9049])
    assert house.sets["policy"]["h.0.w"] == pytest.approx(1.4)


def test_the_anchor_by_half_life() -> None:
    """Half-life 2, averaged every 2 steps: d = .5. 1, then .5 + 2 = 2.5."""
    house = House(EMAAnchor(average=Every(2, "minibatch"), half_life=2.0))
    assert house.run(4, "anchor") == near([0, 1, 1, 2.5])


def test_soft_sync_of_tr_dpo() -> None:
    """alpha .6 weighs the new weights: .6 x 2 = 1.2; .4 x 1.2 + .6 x 4 = 2.88; 4.752."""
    house = House(RefSync(every=Every(2, "minibatch"), by=0.6))
    assert house.run(6, "reference") == near([0, 1.2, 1.2, 2.88, 2.88, 4.752])
    assert not house.events, "a sync is quiet"


def test_hard_sync_of_prorl_clears_the_moments() -> None:
    """The reference becomes the policy; as an event, after the update."""
    house = House(RefSync(every=Every(2, "minibatch"), by=1.0, optimizer="clear"))
    assert house.run(5, "reference") == near([0, 2, 2, 4, 4])
    assert [(e.optimizer, e.reason) for e in house.events] == [
        ("clear", "2 optimizer steps"), ("clear", "4 optimizer steps"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "first", "second"),
    [
        (lambda: ResetToInit(Every(2), layers=SECOND), [1, 2, 3, 4], [1, 0, 1, 0]),
        (lambda: ElasticPull(0.1, layers=SECOND), [1, 2, 3, 4], [0.9, 1.71, 2.439, 3.0951]),
        (
            lambda: ResetToEMA(Every(2), Every(1), 0.5, layers=SECOND),
            [1, 2, 3, 4],
            [1, 1.25, 2.25, 2.5],
        ),
        (
            lambda: ElasticReset(Every(2), Every(1), 0.5, layers=SECOND),
            [1, 2, 3, 4],
            [1, 1.25, 2.25, 2.1875],
        ),
    ],
)
def test_chosen_layers_only(make, first: list[float], second: list[float]) -> None:  # type: ignore[no-untyped-def]
    """The first layer goes its way as if there were no rule, the second as in the whole model."""
    assert House(make()).run(4, parameter="h.0.w") == near(first)
    assert House(make()).run(4, parameter="h.1.w") == near(second)
