"""Seeds are functions of their key; totals are the identity in a single process."""

from __future__ import annotations

import pytest
import torch

from tether.distributed.seeds import generator, seed_of
from tether.distributed.shards import reshard
from tether.distributed.total import broadcast_object, main_process, rank, total, world_size


def test_equal_keys_give_equal_streams_and_any_part_changes_them() -> None:
    a = torch.rand(4, generator=generator(1, "agent", "train", 7))
    assert torch.equal(a, torch.rand(4, generator=generator(1, "agent", "train", 7)))
    for key in ((2, "agent", "train", 7), (1, "b", "train", 7), (1, "agent", "train", 8)):
        assert not torch.equal(a, torch.rand(4, generator=generator(*key)))


def test_a_key_is_read_by_type_and_by_structure() -> None:
    keys = [(1,), ("1",), (True,), ((1,),), (1, 2), ((1, 2),), ("1,2",), ("a", "b"), ("ab",)]
    assert len({seed_of(*k) for k in keys}) == len(keys)
    assert all(0 <= seed_of(*k) < 2**63 for k in keys)


def test_the_value_of_a_seed_never_changes_between_versions() -> None:
    assert seed_of(0, "agent", "sampling") == 9186367945580577238


def test_a_float_is_no_key() -> None:
    with pytest.raises(TypeError, match="a seed key holds numbers"):
        seed_of(0.5)


def test_the_global_generator_is_not_touched() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=generator(1))
    assert torch.equal(before, torch.get_rng_state())


def test_one_process_is_its_own_group() -> None:
    x = torch.tensor([1.0, 2.0])
    assert total(x) is x
    assert (rank(), world_size(), main_process()) == (0, 1, True)
    assert broadcast_object({"a": 1}) == {"a": 1}


def test_reshard_calls_every_sharded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sharded(torch.nn.Linear):
        calls = 0

        def reshard(self) -> None:
            self.calls += 1

    parts = [Sharded(1, 1), torch.nn.Linear(1, 1), Sharded(1, 1)]
    reshard(torch.nn.Sequential(*parts))  # one process alone has nothing sharded
    assert [getattr(p, "calls", 0) for p in parts] == [0, 0, 0]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    reshard(torch.nn.Sequential(*parts))
    assert [getattr(p, "calls", 0) for p in parts] == [1, 0, 1]
