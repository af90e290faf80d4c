"""Drawing by counters, batches with masks."""

from __future__ import annotations

import pytest
import torch

from tether.config.errors import UserError
from tether.tasks.task import Task


def task(n: int = 10) -> Task:
    return Task([[8 + i] * (i + 1) for i in range(n)], [[50 + i, 1] for i in range(n)])


def test_a_draw_depends_on_the_counters_only() -> None:
    first = [task().draw(u, 4, seed=0).tolist() for u in range(6)]
    one = task()
    again = [one.draw(u, 4, seed=0).tolist() for u in (5, 0, 3, 1, 4, 2)]
    assert first == [again[1], again[3], again[5], again[2], again[4], again[0]]
    assert first != [task().draw(u, 4, seed=1).tolist() for u in range(6)]


def test_no_update_holds_a_row_twice_and_passes_are_permutations() -> None:
    t = task(10)
    for u in range(20):
        assert len(set(t.draw(u, 4, seed=3).tolist())) == 4
    # a pass of 10 rows holds two updates of 4; its rows are all different
    assert len({*t.draw(0, 4, seed=3).tolist(), *t.draw(1, 4, seed=3).tolist()}) == 8
    seen = {i for u in range(40) for i in t.draw(u, 4, seed=3).tolist()}
    assert seen == set(range(10))


def test_ranks_get_disjoint_rows_that_make_up_the_single_process_draw() -> None:
    t = task(10)
    whole = t.draw(7, 6, seed=0)
    parts = [t.draw(7, 6, seed=0, rank=r, world=3) for r in range(3)]
    assert torch.equal(torch.cat(parts), whole)
    assert all(len(p) == 2 for p in parts)


def test_more_prompts_than_rows_use_every_row_before_any_comes_again() -> None:
    t = task(3)
    stream = torch.cat([t.draw(u, 7, seed=0) for u in range(3)]).tolist()
    assert len(stream) == 21
    for i in range(0, 21, 3):
        assert sorted(stream[i : i + 3]) == [0, 1, 2]


def test_a_batch_that_does_not_divide_names_the_nearest_number() -> None:
    with pytest.raises(UserError, match=r"batch.prompts 7 does not divide over 2 ranks; use 8"):
        task().draw(0, 7, seed=0, world=2)


def test_batch_pads_on_the_given_side_and_keeps_the_mask() -> None:
    s = task().batch([0, 2], "left", pad=0)
    assert s.prompt.tolist() == [[0, 0, 8], [10, 10, 10]]
    assert s.prompt_mask.tolist() == [[False, False, True], [True, True, True]]
    assert s.completion.shape == (2, 0)
    r = task().batch(torch.tensor([1]), "right", pad=0, references=True)
    assert r.completion.tolist() == [[51, 1]]
    assert r.completion_mask.tolist() == [[True, True]]
    assert task().batch([1], "left", 0, references=True, limit=1).completion.tolist() == [[51]]


def test_references_that_are_not_there_and_empty_tasks_are_errors() -> None:
    with pytest.raises(UserError, match=r"data.reference"):
        Task([[1]]).batch([0], "left", 0, references=True)
    with pytest.raises(UserError, match="no rows left"):
        Task([], notes={"dropped_too_long": 3})
