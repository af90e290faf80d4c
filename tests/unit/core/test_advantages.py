"""Groups of completions of one prompt (B28's numbers), and choices among them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contracts.examples import numbers
from tether.core.advantages import (
    batch_std,
    best_rows,
    count_groups,
    flat_groups,
    group_mean_std,
    leave_one_out,
    rank_in_group,
)

NAN = float("nan")
ALL = torch.ones(6, dtype=torch.bool)


def on_ranks(work: Callable[[int, Callable[[Tensor], Tensor]], Any], ranks: int = 2) -> list[Any]:
    """`work(rank, total)` in a thread a rank, with a `total` that really sums over them."""
    barrier, slots, out = threading.Barrier(ranks), [torch.zeros(())] * ranks, [None] * ranks

    def one(rank: int) -> None:
        def total(x: Tensor) -> Tensor:
            slots[rank] = x.long() if x.dtype == torch.bool else x
            barrier.wait(timeout=20)
            summed = torch.stack([s.detach().clone() for s in slots]).sum(0)
            barrier.wait(timeout=20)
            return summed

        out[rank] = work(rank, total)

    threads = [threading.Thread(target=one, args=(r,)) for r in range(ranks)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]])
def test_by_hand_in_any_row_order(order: list[int]) -> None:
    """A: 0, 2; B: 10, 12. Means 1 and 11, sample deviation sqrt 2."""
    score = torch.tensor([0.0, 2.0, 10.0, 12.0])[order]
    group = torch.tensor([4, 4, 9, 9])[order]
    mean, std, size = group_mean_std(score, group)
    assert mean.tolist() == torch.tensor([1.0, 1.0, 11.0, 11.0])[order].tolist()
    assert std.tolist() == pytest.approx([2**0.5] * 4)
    assert size.tolist() == [2, 2, 2, 2]


def test_a_group_of_one_has_no_deviation() -> None:
    mean, std, size = group_mean_std(torch.tensor([3.0, 1.0, 5.0]), torch.tensor([0, 1, 1]))
    assert mean.tolist() == [3, 3, 3]
    assert std.tolist() == pytest.approx([0, 8**0.5, 8**0.5])
    assert size.tolist() == [1, 2, 2]


def test_rows_that_do_not_count_enter_nothing() -> None:
    """A: 0, 2 and a dropped NaN; B: dropped alone."""
    score = torch.tensor([0.0, NAN, 2.0, 1e9])
    group, real = torch.tensor([5, 5, 5, 1]), torch.tensor([True, False, True, False])
    mean, std, size = group_mean_std(score, group, real)
    assert mean.tolist() == [1, 1, 1, 0] and size.tolist() == [2, 2, 2, 0]
    assert std.tolist() == pytest.approx([2**0.5] * 3 + [0])
    assert leave_one_out(score, group, real).tolist() == [-2, 0, 2, 0]
    assert flat_groups(score, group, real).tolist() == [False] * 3 + [True]
    assert count_groups(group, real) == 1


def test_flat_is_exactly_equal_however_the_mean_rounds() -> None:
    score = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.2, 0.2])
    group = torch.tensor([0, 0, 0, 1, 1, 2])
    assert flat_groups(score, group, ALL).tolist() == [True] * 3 + [False] * 2 + [True]


def test_rank_in_group_by_hand() -> None:
    """Best first; of equals the earlier one; rows that do not count last."""
    score = torch.tensor([1.0, 5.0, 3.0, 3.0, -1.0, 9.0])
    group = torch.tensor([8, 8, 2, 2, 8, 2])
    assert rank_in_group(score, group, ALL).tolist() == [1, 0, 1, 2, 2, 0]
    real = torch.tensor([True, False, True, True, True, True])
    assert rank_in_group(score, group, real).tolist() == [0, 2, 1, 2, 1, 0]
    low = torch.tensor([1.0, NAN, 3.0, 3.0, -float("inf"), 9.0])
    assert rank_in_group(low, group, real).tolist() == [0, 2, 1, 2, 1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_best_rows_are_those_of_a_sort(seed: int) -> None:
    """Any sign and size, a third of them dropped, many equal."""
    score = (numbers(seed, 40) * 3).round() * 10.0 ** (seed - 2)
    real = numbers(seed + 90, 40) > -0.4
    for share in (0.1, 0.25, 0.5, 0.99):
        found = best_rows(score, real, share)
        n = int(real.sum())
        k = sum(i / n < share - 1e-9 for i in range(n))
        order = sorted((i for i in range(40) if real[i]), key=lambda i: (-float(score[i]), i))
        assert sorted(order[:k]) == found.nonzero()[:, 0].tolist()


def test_best_rows_of_equal_scores_keep_the_share() -> None:
    score = torch.tensor([0.0, -0.0, 0.0, 0.0, 0.0, 0.0])
    assert best_rows(score, ALL, 0.5).tolist() == [True] * 3 + [False] * 3
    assert not best_rows(score, ~ALL, 0.5).any()


def test_two_ranks_choose_what_one_would() -> None:
    score, real = numbers(3, 12), numbers(4, 12) > -0.8
    halves = torch.arange(12).split(6)
    found = on_ranks(lambda r, total: best_rows(score[halves[r]], real[halves[r]], 0.3, total))
    assert torch.equal(torch.cat(found), best_rows(score, real, 0.3))
    tied = torch.zeros(12)
    kept = on_ranks(lambda r, total: best_rows(tied[halves[r]], real[halves[r]], 0.5, total))
    n = int(real.sum())
    assert n // 2 - 1 <= int(torch.cat(kept).sum()) <= (n + 1) // 2


def test_the_deviation_of_all_rows_over_ranks() -> None:
    score, real = numbers(3, 12), numbers(4, 12) > -0.8
    expected = float(score[real].std())
    assert float(batch_std(score, real)) == pytest.approx(expected)
    halves = torch.arange(12).split([3, 9])
    found = on_ranks(lambda r, total: float(batch_std(score[halves[r]], real[halves[r]], total)))
    assert found == pytest.approx([expected] * 2)
