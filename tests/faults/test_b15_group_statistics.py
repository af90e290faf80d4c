"""B14 to B16 and B28 for the methods that compare completions or have a critic: what enters their
statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.contracts.examples import experience
from tests.unit.core.test_advantages import on_ranks
from tether.algorithms.a2c import A2C
from tether.algorithms.base import Algorithm
from tether.algorithms.best_of_n import BestOfN
from tether.algorithms.grpo import GRPO
from tether.algorithms.rloo import RLOO
from tether.algorithms.trpo import TRPO
from tether.core.masking import at_last, local
from tether.types import Experience, Scores, Targets


def made(lengths: list[int], rewards: list[float], group: list[int]) -> Experience:
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    e = experience(mask)
    done = torch.ones(len(lengths), dtype=torch.bool)
    rollout = replace(e.rollout, group=torch.tensor(group), finished=done)
    return replace(e, rollout=rollout, rewards=at_last(torch.tensor(rewards), mask))


def row(targets: Targets) -> list[float]:
    return targets.advantages[:, 0].tolist()  # type: ignore[no-any-return]


def test_pads_enter_no_group() -> None:
    """B15: 1, 2, 3 with 1e9 in every pad: deviations -1, 0, 1 of the sample's 1."""
    e = made([1, 3, 2], [1.0, 2.0, 3.0], [0, 0, 0])
    e = replace(e, rewards=torch.where(e.mask, e.rewards, 1e9))
    assert row(GRPO().advantages(e, local)) == pytest.approx([-1, 0, 1], abs=1e-3)
    assert row(RLOO().advantages(e, local)) == pytest.approx([-1.5, 0, 1.5])
    assert BestOfN().advantages(e, local).mask.any(1).tolist() == [False, False, True]


def test_it_is_the_completions_reward_that_is_scaled() -> None:
    """B16: scores 0, 1 on 1 and 100 tokens: -1 and 1 over the deviation sqrt 2 / 2 of two scores;
    over tokens, mostly zeros, they would be -.1 and 9.9."""
    e = made([1, 100], [0.0, 1.0], [0, 0])
    assert row(GRPO().advantages(e, local)) == pytest.approx([-(2**-0.5), 2**-0.5], abs=1e-3)
    batch = GRPO(scale="batch").advantages(e, local)
    assert row(batch) == pytest.approx([-(2**-0.5), 2**-0.5], abs=1e-3)


@pytest.mark.parametrize("algorithm", [GRPO(scale="none"), RLOO()], ids=["grpo", "rloo"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1], [3, 1, 0, 2]])
def test_groups_travel_with_the_sample(algorithm: Algorithm, order: list[int]) -> None:
    """B28: A has 0, 2 and B 10, 12: means 1 and 11 in any order of rows."""
    e = made([2, 1, 3, 2], [0.0, 2.0, 10.0, 12.0], [4, 4, 9, 9]).rows(torch.tensor(order))
    size = 1.0 if isinstance(algorithm, GRPO) else 2.0
    expected = torch.tensor([-size, size, -size, size])[order]
    assert row(algorithm.advantages(e, local)) == pytest.approx(expected.tolist())


def test_equal_numbers_on_two_ranks_are_two_prompts() -> None:
    """B28: each rank counts its prompts from 0; only counts and a batch's deviation are summed."""
    parts = [
        made([2, 1], [0.0, 2.0], [0, 0]),
        made([3, 2], [10.0, 12.0], [0, 0]),
    ]  # fmt: skip

    def work(rank: int, total: Any) -> tuple[list[float], dict[str, float], list[float]]:
        one, batch = GRPO(scale="none"), GRPO(scale="batch")
        return (
            row(one.advantages(parts[rank], total)),
            one.groups,
            row(batch.advantages(parts[rank], total)),
        )

    spread = float(torch.tensor([0.0, 2.0, 10.0, 12.0]).std())
    for advantages, groups, scaled in on_ranks(work):
        assert advantages == [-1, 1]
        assert groups == {"update/groups": 2.0, "update/groups_flat": 0.0}
        assert scaled == pytest.approx([-1 / spread, 1 / spread], rel=1e-3)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (TRPO(), [-0.43675, -0.565, -0.7]),
        (TRPO(truncated="bootstrap"), [0.28525, 0.195, 0.1]),
        (A2C(gae_lambda=0.95), [-0.43675, -0.565, -0.7]),
        (A2C(gae_lambda=0.95, truncated="bootstrap"), [0.28525, 0.195, 0.1]),
    ],
)
def test_cut_completions_have_a_next_value_or_end(
    algorithm: Algorithm, expected: list[float]
) -> None:
    """B14's numbers: values .5 .6 .7, then .8, no reward."""
    mask = torch.ones(1, 3, dtype=torch.bool)
    e, none = experience(mask), torch.zeros(1, 3)
    values = torch.tensor([[0.5, 0.6, 0.7]])
    old = Scores(none, none, None, values, torch.tensor([0.8]))  # type: ignore[arg-type]
    rollout = replace(e.rollout, finished=torch.tensor([False]))
    found = algorithm.advantages(replace(e, rollout=rollout, rewards=none, old=old), local)
    assert found.advantages[0].tolist() == pytest.approx(expected, abs=1e-6)
    rollout = replace(e.rollout, finished=torch.tensor([True]))
    found = algorithm.advantages(replace(e, rollout=rollout, rewards=none, old=old), local)
    assert found.advantages[0].tolist() == pytest.approx([-0.43675, -0.565, -0.7], abs=1e-6)
