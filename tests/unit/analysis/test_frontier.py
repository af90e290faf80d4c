"""Frontier arithmetic against numbers worked out by hand and by brute force."""

from __future__ import annotations

import itertools
import random

import pytest

from tether.analysis.frontier import (
    Checkpoint,
    area,
    at,
    best_within,
    mean_reward,
    mean_steps,
    non_dominated,
    steps,
)


def points(*pairs: tuple[float, float]) -> list[Checkpoint]:
    return [Checkpoint(d, r, r, update=i) for i, (d, r) in enumerate(pairs)]


# initial .5; .7 at 1 nat; .6 at 2 nats (beaten); .9 at 5 nats
LINE = points((0.0, 0.5), (1.0, 0.7), (2.0, 0.6), (5.0, 0.9))


def test_non_dominated_by_hand() -> None:
    assert non_dominated([(0.0, 0.5), (1.0, 0.7), (2.0, 0.6), (5.0, 0.9)]) == [0, 1, 3]
    assert non_dominated([(1.0, 0.7), (1.0, 0.8)]) == [1]  # same drift: the better reward
    assert non_dominated([(2.0, 0.7), (1.0, 0.7)]) == [1]  # same reward: the smaller drift
    assert non_dominated([(1.0, 0.7), (1.0, 0.7)]) == [0, 1]  # equal pairs stand together
    assert non_dominated([]) == []


def test_non_dominated_is_the_definition() -> None:
    draw = random.Random(0)
    for _ in range(200):
        cloud = [(draw.randint(0, 5) / 2, draw.randint(0, 5) / 5) for _ in range(9)]
        kept = {
            i
            for i, (d, r) in enumerate(cloud)
            if not any(dj <= d and rj >= r and (dj < d or rj > r) for dj, rj in cloud)
        }
        assert set(non_dominated(cloud)) == kept


def test_reward_within_a_budget_is_chosen_on_validation_and_reported_on_test() -> None:
    several = [
        Checkpoint(0.0, 0.50, 0.51),
        Checkpoint(1.5, 0.80, 0.70, update=2),  # the choice: best validation reward
        Checkpoint(1.9, 0.75, 0.90, update=4),  # a better test reward must not be looked at
        Checkpoint(3.0, 0.99, 0.95, update=6),
    ]
    chosen = best_within(several, 2.0)
    assert chosen is not None and (chosen.reward, chosen.update) == (0.70, 2)
    chosen = best_within(several, 1.0)
    assert chosen is not None and chosen.reward == 0.51
    chosen = best_within(several, 3.0)  # the budget itself is within
    assert chosen is not None and chosen.reward == 0.95
    assert best_within(several[1:], 1.0) is None


def test_ties_go_to_the_smaller_drift() -> None:
    chosen = best_within([Checkpoint(2.0, 0.8, 0.1), Checkpoint(1.0, 0.8, 0.2)], 4.0)
    assert chosen is not None and chosen.reward == 0.2


def test_steps_and_their_values() -> None:
    f = steps(LINE)
    assert [(s.start, s.checkpoint.reward) for s in f] == [(0.0, 0.5), (1.0, 0.7), (5.0, 0.9)]
    assert [at(f, b).reward for b in (0, 0.99, 1, 4, 5, 16)] == [0.5, 0.5, 0.7, 0.7, 0.9, 0.9]
    for b in (0.0, 0.5, 1.0, 3.3, 5.0, 9.0):
        assert at(f, b) == best_within(LINE, b)
    with pytest.raises(ValueError, match="initial model"):
        steps(LINE[1:])
    with pytest.raises(ValueError, match="at least 0"):
        at(f, -1.0)


def test_area_by_hand() -> None:
    f = steps(LINE)
    # [0,1): .5, [1,5): .7, [5,16]: .9 -> (0.5 + 2.8 + 9.9) / 16 = .825; (.825 - .5) / .5 = .65
    assert mean_reward(f, 16.0) == pytest.approx(0.825, abs=1e-12)
    assert area(f, 0.5) == pytest.approx(0.65, abs=1e-12)
    # [0,1): .5, [1,4]: .7 -> 2.6 / 4 = .65; .15 / .5 = .3
    assert area(f, 0.5, limit=4.0) == pytest.approx(0.30, abs=1e-12)
    # on a scale up to 2: (.825 - .5) / 1.5
    assert area(f, 0.5, ceiling=2.0) == pytest.approx(0.325 / 1.5, abs=1e-12)
    assert area(steps(LINE[:1]), 0.5) == 0.0
    with pytest.raises(ValueError, match="below 1"):
        area(f, 1.0)
    with pytest.raises(ValueError, match="above 0"):
        area(f, 0.5, limit=0.0)


def test_area_is_the_hypervolume_where_choice_and_report_are_the_same() -> None:
    draw = random.Random(1)
    for _ in range(20):
        cloud = [(0.0, 0.3), *((draw.uniform(0, 20), draw.random()) for _ in range(8))]
        cells, count = 4000, 0  # midpoints in drift; exact in reward
        total = 0.0
        for i in range(cells):
            b = 16 * (i + 0.5) / cells
            total += max(r for d, r in cloud if d <= b)
            count += 1
        expected = (total / count - 0.3) / 0.7
        assert area(steps(points(*cloud)), 0.3) == pytest.approx(expected, abs=2e-3)


def test_a_test_reward_below_the_start_counts_as_it_is() -> None:
    f = steps([Checkpoint(0.0, 0.5, 0.5), Checkpoint(2.0, 0.6, 0.4)])
    assert area(f, 0.5, limit=4.0) == pytest.approx((0.45 - 0.5) / 0.5, abs=1e-12)


def test_mean_steps_over_seeds() -> None:
    a = steps(points((0.0, 0.5), (1.0, 0.7)))
    b = steps(points((0.0, 0.5), (3.0, 0.9)))
    assert mean_steps([a, b]) == [(0.0, [0.5, 0.5]), (1.0, [0.7, 0.5]), (3.0, [0.7, 0.9])]


def test_order_of_the_checkpoints_does_not_matter() -> None:
    expected = steps(LINE)
    for shuffled in itertools.permutations(LINE):
        assert steps(shuffled) == expected
