"""Rows are cut in every tensor, and counts stay in CPU memory."""

from __future__ import annotations

import pytest
import torch

from tether.models import scoring
from tether.rows import _Index
from tether.types import Sequences


def some() -> Sequences:
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    ids = torch.arange(16).view(4, 4)
    return Sequences(ids[:, :2], torch.ones(4, 2, dtype=torch.bool), ids, mask)


def test_counts_follow_their_rows() -> None:
    s = some()
    assert s.count is None
    counted = s.counted()
    assert counted.count is not None and counted.count.tolist() == [2, 2, 0, 4]
    assert counted.rows(torch.tensor([3, 0])).count.tolist() == [4, 2]  # type: ignore[union-attr]
    moved = counted.to("meta")
    assert moved.completion_mask.is_meta
    assert moved.count is not None and moved.count.device.type == "cpu"


@pytest.mark.parametrize("index", [[0, 1, 2, 3], [3, 1], [2], []])
def test_places_of_real_tokens_with_and_without_counts(index: list[int]) -> None:
    rows = torch.tensor(index, dtype=torch.long)
    wanted = scoring._places(some().rows(rows))
    found = scoring._places(some().counted().rows(rows))
    assert torch.equal(found, wanted)
    assert wanted.tolist() == some().rows(rows).completion_mask.flatten().nonzero()[:, 0].tolist()


def test_row_numbers_are_sent_once_to_a_device() -> None:
    index = _Index(torch.tensor([1, 0]))
    assert index.on(torch.device("cpu")).tolist() == [1, 0]
    meta = torch.device("meta")
    assert index.on(meta) is index.on(meta) and index.on(meta).is_meta
