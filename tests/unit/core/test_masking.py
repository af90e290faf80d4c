"""Positions and sums over real tokens (whitening, weights, empty masks: faults B15, B17, B18)."""

import pytest
import torch

from tether.core.masking import at_last, last_index, masked_mean, masked_sum, weighted_sum

RIGHT = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)


def test_last_index_for_either_padding_side() -> None:
    assert last_index(RIGHT).tolist() == [2, 0, 3]
    assert last_index(RIGHT.flip(1)).tolist() == [3, 3, 3]
    holes = torch.tensor([[0, 1, 0, 1, 0]], dtype=torch.bool)
    assert last_index(holes).tolist() == [3]
    assert last_index(torch.zeros(1, 3, dtype=torch.bool)).tolist() == [0]


def test_score_stands_on_the_last_real_token() -> None:
    out = at_last(torch.tensor([1.0, 2.0, 3.0]), RIGHT)
    assert out.tolist() == [[0, 0, 1, 0], [2, 0, 0, 0], [0, 0, 0, 3]]
    assert out.sum(1).tolist() == [1, 2, 3]


def test_sums_and_means_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 99.0], [4.0, 99, 99, 99], [1, 1, 1, 1]])
    assert float(masked_sum(x, RIGHT)) == 14
    assert float(masked_mean(x, RIGHT)) == pytest.approx(14 / 8)
    two_ranks = masked_mean(x, RIGHT, lambda v: 2 * v)
    assert float(two_ranks) == pytest.approx(14 / 8)


def test_weighted_sum_never_reads_outside() -> None:
    x = torch.tensor([[2.0, float("nan")], [float("inf"), 4.0]], requires_grad=True)
    w = torch.tensor([[0.25, 0.0], [0.0, 0.5]])
    out = weighted_sum(w, x)
    assert float(out.detach()) == 2.5
    out.backward()
    assert x.grad is not None and torch.equal(x.grad, w)
