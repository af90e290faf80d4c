"""Elastic Reset against the papers' own loops, written out beside it.

Conventions: mnoukhov/RL4LMs branch `paper` (IMDB), mnoukhov/trl@dd79a2d (StackLLaMA),
mnoukhov/langauge_drift_lewis_game branch `mine` (Lewis game). Formulas only, no code of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from tether.core.averages import half_life_decay, kept_fraction, trajectory_weight
from tether.core.weights import WeightSet, lerp_, snapshot
from tether.tethers.base import Tether
from tether.tethers.elastic_reset import ElasticReset
from tether.tethers.reset_to_init import ResetToInit
from tether.tethers.triggers import Every
from tether.types import Clock, Measured, Move, Unit, WeightEvent

D = 0.995


@dataclass
class House:
    """Executes moves as the trainer does: quiet moves at once, events after them."""

    tether: Tether
    clock: Clock = field(default_factory=Clock)
    sets: dict[str, WeightSet] = field(default_factory=dict)
    resets: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = {"w": torch.tensor([1.0, -2.0])}
        self.sets = {name: snapshot(start) for name in ("policy", "initial", "ema")}

    @property
    def policy(self) -> torch.Tensor:
        return self.sets["policy"]["w"]

    def move(self, moves: list[Move]) -> None:
        for m in moves:
            assert isinstance(m.by, float)
            lerp_(self.sets[m.what], self.sets[m.toward], m.by)

    def tick(self, unit: Unit) -> None:
        self.clock = self.clock.tick(unit)
        wishes = list(self.tether.after(unit, self.clock, Measured()))
        self.move([w for w in wishes if isinstance(w, Move)])
        for event in (w for w in wishes if isinstance(w, WeightEvent)):
            self.move(list(event.moves))
            self.resets.append(getattr(self.clock, unit) - 1)
            self.reasons.append(event.reason)


def drift(i: int) -> torch.Tensor:
    """The learning step of index i."""
    return torch.tensor([0.01, -0.003]) * (1 + (i % 7) / 7)


def original(
    count: int, resets: Callable[[int], bool], averages: Callable[[int], bool]
) -> list[torch.Tensor]:
    """learn, average, reset: w <- e, then e <- w0; in plain fp32 arithmetic."""
    w0 = torch.tensor([1.0, -2.0])
    w, e, seen = w0.clone(), w0.clone(), []
    for i in range(count):
        w = w + drift(i)
        if averages(i):
            e = D * e + (1 - D) * w
        if resets(i):
            w, e = e.clone(), w0.clone()
        seen.append(w.clone())
    return seen


def ours(house: House, count: int) -> list[torch.Tensor]:
    seen = []
    for i in range(count):
        house.policy.add_(drift(i))
        for unit in ("minibatch", "epoch", "update"):
            house.tick(unit)  # type: ignore[arg-type]
        seen.append(house.policy.clone())
    return seen


def agree(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
    assert torch.allclose(torch.stack(a), torch.stack(b), atol=1e-5)


def test_imdb() -> None:
    """`epoch % 17 == 0`, index 0 included, average once an iteration, before the reset."""
    house = House(ElasticReset(Every(17, "update", start=1), Every(1, "update"), D))
    seen = ours(house, 50)
    assert house.resets == [0, 17, 34]
    agree(seen, original(50, lambda i: i % 17 == 0, lambda i: True))
    assert [r.split("; ")[1] for r in house.reasons] == [
        f"{n} averagings since the last reset" for n in (1, 17, 17)
    ]


def test_stackllama() -> None:
    """`epoch and epoch % 260 == 0`: index 0 never resets. Average once a PPO epoch."""
    house = House(ElasticReset(Every(260, "update", start=261), Every(1, "epoch"), D))
    seen = ours(house, 600)
    assert house.resets == [260, 520]
    agree(seen, original(600, lambda i: bool(i) and i % 260 == 0, lambda i: True))


def test_lewis_game() -> None:
    """`(step + 1) % 2000 == 0` of optimizer steps, average every 100 of them."""
    house = House(ElasticReset(Every(2000, "minibatch"), Every(100, "minibatch"), D))
    seen = ours(house, 4100)
    assert house.resets == [1999, 3999]
    at = original(4100, lambda i: (i + 1) % 2000 == 0, lambda i: (i + 1) % 100 == 0)
    agree(seen, at)


def test_after_a_reset_the_average_is_the_start_bit_for_bit() -> None:
    house = House(ElasticReset(Every(3, "update"), Every(1, "update"), D))
    start = house.sets["initial"]["w"].clone()
    for _ in range(4):
        ours(house, 3)
        assert torch.equal(house.sets["ema"]["w"], start)
        assert torch.equal(house.sets["initial"]["w"], start)
        assert not torch.equal(house.policy, start)


def test_reset_to_init_is_bit_for_bit() -> None:
    house = House(ResetToInit(Every(17)))
    ours(house, 17)
    assert house.resets == [16]
    assert torch.equal(house.policy, house.sets["initial"]["w"])


@pytest.mark.parametrize(
    ("decay", "n", "weight", "kept"),
    [
        (0.995, 17, 0.082, 0.044),
        (0.95, 17, 0.58, 0.35),
        (0.995, 1700, 1.0, 0.88),
        (0.995, 260, 0.73, 0.44),
        (0.995, 1040, 0.995, 0.81),
        (0.995, 20, 0.095, 0.05),
    ],
)
def test_what_a_reset_keeps(decay: float, n: int, weight: float, kept: float) -> None:
    digits = 0.0055
    assert trajectory_weight(decay, n) == pytest.approx(weight, abs=digits)
    assert kept_fraction(decay, n) == pytest.approx(kept, abs=digits)


@pytest.mark.parametrize(
    ("decay", "kept"), [(0.988, 0.1), (0.967, 0.25), (0.95, 0.35), (0.917, 0.5), (0.63, 0.9)]
)
def test_kept_fraction_as_the_dial(decay: float, kept: float) -> None:
    assert kept_fraction(decay, 17) == pytest.approx(kept, abs=0.005)


def test_kept_fraction_is_what_the_tether_does() -> None:
    """A linear drift of 17 updates, one reset: 4.4 % of the displacement is left."""
    house = House(ElasticReset(Every(17, "update"), Every(1, "update"), D))
    start = house.policy.clone()
    for _ in range(17):
        house.policy.add_(torch.tensor([0.1, -0.2]))
        house.tick("update")
    left = (house.policy - start) / (17 * torch.tensor([0.1, -0.2]))
    assert left.tolist() == pytest.approx([kept_fraction(D, 17)] * 2, abs=1e-4)
    assert left.tolist() == pytest.approx([0.044] * 2, abs=5e-4)


def test_half_life_is_the_same_dial() -> None:
    """d .995 with 100 optimizer steps between averagings is a half-life of 13,828 steps."""
    assert half_life_decay(13_828, 100) == pytest.approx(0.995, abs=1e-6)
    a = House(ElasticReset(Every(9), Every(1, "update"), D))
    b = House(ElasticReset(Every(9), Every(1, "update"), half_life=13_828))
    for house in (a, b):
        for i in range(20):
            house.policy.add_(drift(i))
            for _ in range(100):
                house.tick("minibatch")
            house.tick("update")
    assert a.resets == b.resets == [8, 17]
    assert torch.allclose(a.policy, b.policy, atol=1e-6)
