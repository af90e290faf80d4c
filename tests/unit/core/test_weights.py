"""Arithmetic on weight sets (precision: fault B23, buffers and sharing: B24)."""

import pytest
import torch
from torch import nn

from tether.core.weights import (
    clean,
    distance,
    exchange_,
    fingerprint,
    lerp_,
    snapshot,
    trainable,
)


def pair(dtype: torch.dtype = torch.float32) -> tuple[dict[str, torch.Tensor], ...]:
    a = {"x": torch.tensor([0.0, 2.0], dtype=dtype), "y": torch.tensor([[4.0]], dtype=dtype)}
    b = {"x": torch.tensor([1.0, 4.0], dtype=dtype), "y": torch.tensor([[0.0]], dtype=dtype)}
    return a, b


def test_lerp_by_hand_in_place() -> None:
    a, b = pair()
    addresses = [t.data_ptr() for t in a.values()]
    lerp_(a, b, by=0.25)
    assert a["x"].tolist() == [0.25, 2.5] and a["y"].tolist() == [[3.0]]
    lerp_(a, b, where=lambda name: name == "y")
    assert a["x"].tolist() == [0.25, 2.5] and a["y"].tolist() == [[0.0]]
    lerp_(a, b)
    assert torch.equal(a["x"], b["x"])
    assert [t.data_ptr() for t in a.values()] == addresses


@pytest.mark.parametrize("by", [0.005, 0.5, 0.995, 1.0])
def test_fused_and_single_paths_agree(by: float) -> None:
    """bf16 targets and sources take the single path; results differ by bf16 rounding only."""
    a, b = pair()
    low, _ = pair(torch.bfloat16)
    lerp_(a, b, by)
    lerp_(low, b, by)
    assert torch.equal(low["x"], a["x"].bfloat16())


def test_a_bf16_target_is_written_from_the_fp32_result() -> None:
    """Half way from -1 to 1.00390625; rounding the source to bf16 first (1.0) would give 0."""
    low, source = {"w": -torch.ones(1, dtype=torch.bfloat16)}, {"w": torch.tensor([1.00390625])}
    lerp_(low, source, by=0.5)
    assert float(low["w"]) == 0.001953125


def test_parameters_can_be_written_and_keep_no_graph() -> None:
    module = nn.Linear(2, 1)
    policy = trainable(module)
    lerp_(policy, {n: torch.zeros_like(t) for n, t in policy.items()})
    assert not any(bool(p.any()) for p in module.parameters())
    assert all(p.requires_grad and p.is_leaf for p in module.parameters())


def test_exchange_swaps_contents_not_storage() -> None:
    a, b = pair()
    addresses = [t.data_ptr() for t in (*a.values(), *b.values())]
    exchange_(a, b)
    assert a["x"].tolist() == [1, 4] and b["x"].tolist() == [0, 2]
    assert [t.data_ptr() for t in (*a.values(), *b.values())] == addresses
    exchange_(a, b)
    assert a["x"].tolist() == [0, 2]


def test_exchange_through_bf16_is_refused_and_nothing_is_half_swapped() -> None:
    a, b = pair()
    b["y"] = b["y"].bfloat16()
    with pytest.raises(ValueError, match=r"'y' are torch.float32 and torch.bfloat16"):
        exchange_(a, b)
    assert a["x"].tolist() == [0, 2]


def test_missing_names_and_shapes_are_refused() -> None:
    a, b = pair()
    with pytest.raises(ValueError, match="has no 'y'"):
        lerp_(a, {"x": b["x"]})
    with pytest.raises(ValueError, match=r"'y' have shape \(1, 1\) here, \(3,\)"):
        lerp_(a, {**b, "y": torch.zeros(3)})


def test_snapshot_is_an_fp32_copy() -> None:
    source = {"w": torch.tensor([1.3], dtype=torch.bfloat16), "n": torch.tensor([3])}
    copy = snapshot(source, device="cpu", pin=True)
    assert copy["w"].dtype == torch.float32 and float(copy["w"]) == 1.296875
    assert copy["n"].dtype == torch.int64
    source["w"].zero_()
    assert float(copy["w"]) == 1.296875
    assert not any(t.requires_grad for t in snapshot(trainable(nn.Linear(2, 2))).values())


def test_distance_by_hand() -> None:
    """(1, 2, -4): sqrt(1 + 4 + 16)."""
    a, b = pair()
    a["count"], b["count"] = torch.tensor([1]), torch.tensor([100])
    assert distance(a, b) == pytest.approx(21**0.5, abs=1e-6)
    assert distance(a, a) == 0
    assert distance(a, b, lambda x: 4 * x) == pytest.approx(2 * 21**0.5, abs=1e-6)


def test_names_without_wrappers() -> None:
    assert clean("_orig_mod.module.h.0._fsdp_wrapped_module.w") == "h.0.w"
    assert clean("module.module.w") == "w"
    assert clean("my_module.w") == "my_module.w"
    assert clean("encoder.module.w") == "encoder.module.w"


def test_only_what_trains_is_in_the_set() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].requires_grad_(False)
    assert set(trainable(module)) == {"1.weight", "1.bias"}


def test_fingerprint_is_of_bits_types_and_names() -> None:
    a, _ = pair()
    same = {k: a[k].clone() for k in reversed(a)}
    assert fingerprint(a) == fingerprint(same) and len(fingerprint(a)) == 64
    others = [
        {**a, "x": torch.nextafter(a["x"], torch.tensor(9.0))},
        {k: v.double() for k, v in a.items()},
        {"z": a["x"], "y": a["y"]},
        {**a, "x": a["x"].reshape(2, 1)},
    ]
    assert len({fingerprint(x) for x in (a, *others)}) == 5
    scalar = {"b": torch.tensor(2.0, dtype=torch.bfloat16)}
    assert fingerprint(scalar) == fingerprint({"module.b": scalar["b"]})


def test_a_rounded_fingerprint_is_of_the_weights_as_they_were_stored() -> None:
    wide = {"a": torch.randn(50), "n": torch.arange(3)}
    narrow = {"a": wide["a"].bfloat16(), "n": wide["n"]}
    assert fingerprint(wide) != fingerprint(narrow)
    rounded = [fingerprint(x, torch.bfloat16) for x in (wide, narrow)]
    assert rounded[0] == rounded[1] == fingerprint(narrow)
    assert fingerprint({**wide, "a": wide["a"] * 1.01}, torch.bfloat16) != rounded[0]
    assert fingerprint({**wide, "n": torch.arange(3) + 1}, torch.bfloat16) != rounded[0]


def test_fingerprint_of_a_module_sees_frozen_weights_and_buffers() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module.requires_grad_(False)
    before = fingerprint(module)
    module[1].running_mean.add_(1)
    assert fingerprint(module) != before
