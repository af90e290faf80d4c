"""When triggers fire; each case a small timetable."""

from __future__ import annotations

import json

import pytest

from tether.config.errors import UserError
from tether.tethers.triggers import DRIFT, AllOf, AnyOf, DriftBudget, Every, Plateau, Trigger
from tether.types import Clock, Measured, Unit

SCORE = "reward/score.mean"


def fired(trigger: Trigger, values: list[float | None], metric: str = DRIFT) -> list[int]:
    """Updates (from 1) after which it fires; None = no new measurement."""
    clock, measured, out = Clock(), Measured(), []
    for version, value in enumerate(values):
        clock = clock.tick("update")
        if value is not None:
            measured[metric] = (value, version)
        if trigger.fires(clock, measured) is not None:
            out.append(clock.update)
    assert trigger.fired == len(out)
    return out


def counted(every: Every, count: int, unit: Unit = "update") -> list[int]:
    """0-based indices at which it fires, every unit being asked as the house asks."""
    clock, out = Clock(), []
    for i in range(count):
        clock = clock.tick(unit)
        if every.fires(clock):
            out.append(i)
        for other in ("minibatch", "epoch", "update"):
            if other != unit:
                assert every.fires(clock) is None, "fires twice at one count"
    assert every.fired == len(out) == every.expected(clock)
    assert every.problem(clock) is None
    return out


def test_the_three_conventions() -> None:
    assert counted(Every(17, start=1), 50) == [0, 17, 34]
    assert counted(Every(260, start=261), 600) == [260, 520]
    assert counted(Every(2000, "minibatch"), 4100, "minibatch") == [1999, 3999]
    assert counted(Every(), 3) == [0, 1, 2]


def test_other_units_do_not_count() -> None:
    every = Every(2, "epoch")
    assert every.fires(Clock(minibatch=9, epoch=1, update=7)) is None
    assert every.fires(Clock(epoch=2)) == "2 epochs"
    assert Every(1, "minibatch").fires(Clock(minibatch=1)) == "1 optimizer step"


def test_a_fine_clock_asked_rarely_fires_once_a_time() -> None:
    every, clock = Every(3, "minibatch"), Clock()
    out = []
    for _ in range(4):
        for _ in range(8):
            clock = clock.tick("minibatch")
        clock = clock.tick("update")
        out.append(every.fires(clock))
    assert out == [
        "8 optimizer steps",
        "16 optimizer steps",
        "24 optimizer steps",
        "32 optimizer steps",
    ]
    assert every.expected(clock) == 10 and every.fired == 4
    assert every.problem(clock) is None


def test_what_a_run_is_too_short_for() -> None:
    assert Every(17).expected(Clock(update=16)) == 0
    assert Every(17).expected(Clock(update=17)) == 1
    assert Every(260, start=261).expected(Clock(update=260)) == 0
    assert Every(17, start=1).first() == 1 and Every(17).first() == 17
    assert Every(40, "minibatch").expected(Clock(update=99)) == 0
    assert DriftBudget().expected(Clock(update=99)) is None


def test_a_clock_that_was_not_asked_is_a_problem() -> None:
    every = Every(2)
    message = "every 2 updates: fired {} times, was due {} times in {}"
    assert every.problem(Clock(update=1)) == message.format(0, 0, "1 update")
    assert every.problem(Clock(update=4)) == message.format(0, 2, "4 updates")
    every.fires(Clock(update=2))
    assert every.problem(Clock(update=3)) is None
    assert every.problem(Clock(update=4)) == message.format(1, 2, "4 updates")


def test_drift_budget_fires_once_a_measurement_and_rearms_below() -> None:
    budget = DriftBudget(1.0, rearm=0.8)
    assert fired(budget, [0.5, 1.2, None, 1.3, 0.9, 1.5, 0.7, 1.1]) == [2, 8]
    assert fired(DriftBudget(1.0, rearm=1.0), [1.2, 0.9, 1.5]) == [1, 3]
    assert fired(DriftBudget(1.0), [1.0, 1.0]) == [], "the budget itself is within the budget"


def test_drift_budget_keeps_its_gap() -> None:
    values: list[float | None] = [1.2, 0.1, 1.2, 0.1, 1.2, 1.2]
    assert fired(DriftBudget(1.0), values) == [1, 3, 5]
    assert fired(DriftBudget(1.0, gap=3), values) == [1, 5]
    stale: list[float | None] = [1.2, 0.1, 1.2, None, None, 1.2]
    assert fired(DriftBudget(1.0, gap=3), stale) == [1, 6], "fires on an old measurement"


def test_drift_budget_says_why() -> None:
    measured = Measured({DRIFT: (4.5, 3)})
    assert DriftBudget(4.0).fires(Clock(update=1), measured) == (f"{DRIFT} 4.5 > 4, passed by 0.5")


def test_plateau_by_hand() -> None:
    rising: list[float | None] = [1, 2, 3, 4, 5, 6]
    assert fired(Plateau(patience=2), rising, SCORE) == []
    assert fired(Plateau(patience=2), [1, 1, 1, 1, 1, 1, 1], SCORE) == [3, 6]
    assert fired(Plateau(patience=2), [1, None, None, 1, 1], SCORE) == [5]
    assert fired(Plateau(patience=2, min_delta=0.5), [1, 1.4, 1.6, 1.7, 1.8], SCORE) == [5]
    assert fired(Plateau(patience=2, direction="min"), rising, SCORE) == [3, 6]
    assert fired(Plateau(patience=1, gap=3), [1, 1, 1, 1, 1], SCORE) == [2, 5]


def test_any_of_asks_all_of_them() -> None:
    both = AnyOf((Every(2), Every(3)))
    assert fired(both, [None] * 6) == [2, 3, 4, 6]
    assert both.triggers[0].fired == 3 and both.triggers[1].fired == 2
    again = AnyOf((Every(2), Every(2)))
    assert again.fires(Clock(update=2), Measured()) == "2 updates and 2 updates"


def test_all_of_waits_for_the_last() -> None:
    """The budget is passed at 2 and 7, the clock at 4 and 8."""
    both = AllOf((Every(4), DriftBudget(1.0)))
    assert fired(both, [0.1, 1.2, 0.1, 0.1, 0.1, 0.1, 1.2, 0.1]) == [4, 8]
    late = AllOf((Every(2), DriftBudget(1.0)))
    assert fired(late, [0.1, 0.1, 0.1, 0.1, 1.2]) == [5]


@pytest.mark.parametrize(
    "trigger",
    [
        lambda: DriftBudget(1.0, gap=2),
        lambda: Plateau(DRIFT, patience=2),
        lambda: AllOf((Every(3), DriftBudget(1.0))),
        lambda: AnyOf((Every(3), AllOf((Plateau(DRIFT, 1), Every(2))))),
    ],
)
def test_resume_anywhere_fires_at_the_same_updates(trigger) -> None:  # type: ignore[no-untyped-def]
    values = [((5 * i) % 7) / 4 for i in range(20)]
    whole = fired(trigger(), values)  # type: ignore[arg-type]
    assert len(whole) > 1
    for cut in range(1, 20):
        one, other = trigger(), trigger()
        first = fired(one, values[:cut])  # type: ignore[arg-type]
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        rest = []
        for i in range(cut, 20):
            if other.fires(Clock(update=i + 1), Measured({DRIFT: (values[i], i)})):
                rest.append(i + 1)
        assert first + rest == whole


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: Every(0), "every.n must be at least 1"),
        (lambda: Every(3, start=0), "every.start counts from 1"),
        (lambda: Every(3, "step"), "minibatch, epoch or update, not 'step'"),  # type: ignore[arg-type]
        (lambda: DriftBudget(0.0), "budget must be > 0"),
        (lambda: DriftBudget(rearm=0.0), r"rearm must be in \(0, 1\]"),
        (lambda: Plateau(patience=0), "patience must be at least 1"),
        (lambda: Plateau(min_delta=-1), "min_delta must be >= 0"),
        (lambda: Plateau(direction="up"), "max or min, not 'up'"),  # type: ignore[arg-type]
        (lambda: AnyOf(), "any_of.triggers needs at least two triggers, not 0"),
        (lambda: AllOf((Every(),)), "all_of.triggers needs at least two triggers, not 1"),
    ],
)
def test_refusals(bad, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message):
        bad()
