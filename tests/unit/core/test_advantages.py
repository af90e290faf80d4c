"""Groups of completions of one prompt (B28's numbers)."""

import pytest
import torch

from tether.core.advantages import group_mean_std


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
