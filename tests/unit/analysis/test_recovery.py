"""Recovery after a reset, by hand."""

from __future__ import annotations

from tether.analysis.recovery import Seen, recoveries

RUN = [
    Seen(0, "", 0.50, 0.0),
    Seen(5, "", 0.70, 3.0),
    Seen(7, "before", 0.80, 6.0),
    Seen(7, "after", 0.60, 1.0),
    Seen(10, "", 0.79, 2.0),
    Seen(12, "", 0.80, 2.5),  # regained: 5 updates, 2.5 nats
    Seen(14, "before", 0.90, 7.0),
    Seen(14, "after", 0.65, 1.5),
    Seen(20, "", 0.89, 4.0),  # not regained by the end: censored at 6
]


def test_regained_and_censored() -> None:
    first, second = recoveries(RUN)
    assert (first.update, first.updates, first.drift) == (7, 5, 2.5)
    assert (first.reward_before, first.drift_before) == (0.80, 6.0)
    assert (first.reward_after, first.drift_after) == (0.60, 1.0)
    assert first.watched == 7
    assert (second.updates, second.drift, second.watched) == (None, None, 6)


def test_a_reset_that_costs_nothing_is_regained_at_once() -> None:
    (only,) = recoveries([Seen(4, "before", 0.5, 2.0), Seen(4, "after", 0.5, 0.5)])
    assert (only.updates, only.drift) == (0, 0.5)


def test_the_next_reset_ends_the_window() -> None:
    run = [
        Seen(4, "before", 0.9, 4.0),
        Seen(4, "after", 0.5, 1.0),
        Seen(8, "before", 0.7, 3.0),
        Seen(8, "after", 0.95, 1.0),  # after the next reset: does not count for the first
    ]
    first, second = recoveries(run)
    assert (first.updates, first.watched) == (None, 4)
    assert second.updates == 0


def test_the_evaluation_before_the_next_reset_belongs_to_the_window() -> None:
    run = [
        Seen(4, "before", 0.6, 4.0),
        Seen(4, "after", 0.5, 1.0),
        Seen(8, "before", 0.7, 3.0),
        Seen(8, "after", 0.6, 1.0),
    ]
    assert (recoveries(run)[0].updates, recoveries(run)[0].drift) == (4, 3.0)


def test_a_reset_at_the_very_end_and_no_reset() -> None:
    (last,) = recoveries([Seen(4, "before", 0.9, 4.0)])
    assert (last.updates, last.watched, last.reward_after) == (None, 0, None)
    assert recoveries(RUN[:2]) == []
