"""What Elastic Reset and reset-to-init ask for (trajectories: tests/parity)."""

from __future__ import annotations

import pytest

from tests.contracts.examples import experience
from tether.config.errors import UserError
from tether.core.masking import local
from tether.tethers.base import Tether
from tether.tethers.elastic_reset import ElasticReset
from tether.tethers.reset_to_init import ResetToInit
from tether.tethers.triggers import AnyOf, DriftBudget, Every
from tether.types import Clock, Measured, Move, WeightEvent

NOTHING = Measured()


def test_average_then_reset_at_one_tick() -> None:
    tether = ElasticReset(Every(2), Every(1, "update"), 0.9, optimizer="clear", critic="clear")
    assert list(tether.after("update", Clock(update=1), NOTHING)) == [
        Move("ema", "policy", pytest.approx(0.1))
    ]
    average, event = tether.after("update", Clock(update=2), NOTHING)
    assert average == Move("ema", "policy", pytest.approx(0.1))
    assert event == WeightEvent(
        (Move("policy", "ema"), Move("ema", "initial")),
        "2 updates; 2 averagings since the last reset",
        "clear",
        "clear",
        "keep",
    )


def test_a_reset_waits_for_the_end_of_the_update() -> None:
    tether = ElasticReset(Every(3, "minibatch"), Every(1, "minibatch"))
    for i in range(1, 5):
        wishes = list(tether.after("minibatch", Clock(minibatch=i), NOTHING))
        assert len(wishes) == 1 and isinstance(wishes[0], Move)
    wishes = list(tether.after("update", Clock(minibatch=4, update=1), NOTHING))
    assert len(wishes) == 1 and isinstance(wishes[0], WeightEvent)


def test_everything_is_kept_by_default() -> None:
    for tether in (ElasticReset(Every(1)), ResetToInit(Every(1))):
        *_, event = tether.after("update", Clock(update=1), NOTHING)
        assert isinstance(event, WeightEvent)
        assert (event.optimizer, event.critic, event.controllers) == ("keep", "keep", "keep")


def test_half_life_counts_the_steps_that_were_taken() -> None:
    """Half-life 10 steps; updates of 10, 5 and (an early stop at once) 0 optimizer steps."""
    tether = ElasticReset(Every(99), Every(1, "update"), half_life=10)
    taken = []
    for clock in (Clock(10, 1, 1), Clock(15, 2, 2), Clock(15, 2, 3)):
        taken += [m.by for m in tether.after("update", clock, NOTHING) if isinstance(m, Move)]
    assert taken == pytest.approx([0.5, 1 - 2**-0.5, 0.0])


def test_half_life_of_a_minibatch_clock_is_two_to_minus_n_over_h() -> None:
    tether = ElasticReset(Every(99), Every(4, "minibatch"), half_life=16)
    moves = [m for i in range(1, 13) for m in tether.after("minibatch", Clock(i), NOTHING)]
    assert [m.by for m in moves] == pytest.approx([1 - 2**-0.25] * 3)  # type: ignore[union-attr]


def test_the_record_counts_averagings() -> None:
    tether, e = ElasticReset(Every(3), Every(1, "minibatch")), experience()
    for i in range(1, 6):
        tether.after("minibatch", Clock(minibatch=i), NOTHING)
    assert tether.report(e, local) == {"averagings_since_reset": 5}
    (event,) = tether.after("update", Clock(minibatch=5, update=3), NOTHING)
    assert isinstance(event, WeightEvent)
    assert event.reason == "3 updates; 5 averagings since the last reset"
    assert tether.report(e, local) == {"averagings_since_reset": 0}


def test_every_clock_is_found_by_its_path() -> None:
    inner = AnyOf((DriftBudget(), Every(30)))
    tether = ElasticReset(inner, Every(5, "minibatch"))
    assert set(tether.clocked()) == {"average", "reset.triggers.1"}
    assert tether.clocked()["reset.triggers.1"] is inner.triggers[1]
    assert set(ElasticReset().clocked()) == {"reset", "average"}
    assert Tether().clocked() == {}
    short = {k: c.expected(Clock(minibatch=64, epoch=16, update=4)) for k, c in
             tether.clocked().items()}  # fmt: skip
    assert short == {"average": 12, "reset.triggers.1": 0}


def test_nested_memory_is_in_the_state() -> None:
    one, other = (ElasticReset(AnyOf((Every(3), DriftBudget()))) for _ in range(2))
    for i in range(1, 5):
        one.after("update", Clock(update=i), NOTHING)
    other.load_state_dict(one.state_dict())
    assert other.reset.fired == 1 and other.average.fired == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 1.5}, r"decay must be in \[0, 1\], not 1.5"),
        ({"decay": 0.9, "half_life": 10.0}, "decay or half_life, not both"),
        ({"half_life": 0.0}, "half_life must be > 0 optimizer steps"),
    ],
)
def test_refusals(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ElasticReset(**settings)  # type: ignore[arg-type]
