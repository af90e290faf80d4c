"""Weights between weights: by hand, by a second way, and as the function of a real adapter."""

from __future__ import annotations

import math

import pytest
import torch

from tests.models_for_tests import some_sequences, tiny
from tether.config.errors import UserError
from tether.config.run import LoraSettings
from tether.core.weights import snapshot, trainable
from tether.models import lora
from tether.models.interpolation import angle, arc_shares, between, merged


def vectors(*values: list[float]) -> dict[str, torch.Tensor]:
    return {f"t{i}": torch.tensor(v) for i, v in enumerate(values)}


def test_linear_by_hand() -> None:
    a, b = vectors([0.0, 2.0], [4.0]), vectors([1.0, 0.0], [8.0])
    out = between("linear", a, b, 0.25)
    assert out["t0"].tolist() == [0.25, 1.5] and out["t1"].tolist() == [5.0]
    assert a["t0"].tolist() == [0.0, 2.0]  # a new set
    for share, end in ((0.0, a), (1.0, b)):
        for how in ("linear", "slerp", "slerp_global"):
            out = between(how, a, b, share)  # type: ignore[arg-type]
            assert all(torch.equal(out[n], end[n]) for n in end)


def test_angles_small_right_and_none() -> None:
    assert angle(vectors([1.0, 0.0]), vectors([0.0, 5.0])) == pytest.approx(math.pi / 2)
    small = angle(vectors([1.0, 0.0]), vectors([1.0, 1e-5]))
    assert small == pytest.approx(1e-5, rel=1e-4)  # acos of a dot product says 0 or 1.4e-5 in fp32
    assert math.isnan(angle(vectors([0.0]), vectors([1.0])))
    # two tensors as one vector: (1, 0 | 1) and (0, 1 | 1) have cosine 1/2
    assert angle(vectors([1.0, 0.0], [1.0]), vectors([0.0, 1.0], [1.0])) == pytest.approx(
        math.pi / 3
    )


def test_slerp_by_hand_and_by_rotation() -> None:
    a, b = vectors([1.0, 0.0]), vectors([0.0, 1.0])
    for share in (0.25, 0.5, 0.9):
        out = between("slerp", a, b, share)["t0"]
        turned = [math.cos(share * math.pi / 2), math.sin(share * math.pi / 2)]  # second way
        assert out.tolist() == pytest.approx(turned)
    # an angle for each tensor, or one for all
    a, b = vectors([1.0, 0.0], [2.0]), vectors([0.0, 1.0], [2.0])
    each, one = between("slerp", a, b, 0.5), between("slerp_global", a, b, 0.5)
    assert each["t0"].tolist() == pytest.approx([math.sqrt(0.5)] * 2)
    assert each["t1"].tolist() == [2.0]  # parallel: a line
    omega = math.acos(4 / 5)  # cosine of (1, 0, 2) and (0, 1, 2)
    k = math.sin(omega / 2) / math.sin(omega)
    assert one["t0"].tolist() == pytest.approx([k, k])
    assert one["t1"].tolist() == pytest.approx([4 * k])
    norm = math.sqrt(sum(float(t.square().sum()) for t in one.values()))
    assert norm == pytest.approx(math.sqrt(5), rel=1e-6)  # stays on the sphere; linear does not


def test_opposite_and_missing_directions() -> None:
    with pytest.raises(UserError, match="opposite directions"):
        between("slerp", vectors([1.0, 0.0]), vectors([-2.0, 0.0]), 0.5)
    assert arc_shares(math.nan, 0.25) == (0.75, 0.25)
    assert between("slerp", vectors([0.0]), vectors([4.0]), 0.25)["t0"].tolist() == [1.0]


def test_merge_of_task_vectors_by_hand() -> None:
    start = vectors([1.0, 1.0])
    runs = [vectors([2.0, 1.0]), vectors([1.0, 2.0])]  # task vectors (1, 0) and (0, 1)
    half = math.sqrt(0.5)
    assert merged("slerp", start, runs)["t0"].tolist() == pytest.approx([1 + half, 1 + half])
    assert merged("linear", start, runs)["t0"].tolist() == [1.5, 1.5]
    liti = merged("slerp", start, runs, share=0.3)["t0"]
    assert liti.tolist() == pytest.approx([1 + 0.3 * half] * 2)
    uneven = merged("slerp", start, runs, weights=[3.0, 1.0])["t0"]
    turned = [1 + math.cos(math.pi / 8), 1 + math.sin(math.pi / 8)]  # a quarter of 90 degrees
    assert uneven.tolist() == pytest.approx(turned)
    alone = merged("slerp", start, runs[:1], share=0.5)["t0"]
    assert alone.tolist() == [1.5, 1.0]


def test_merge_of_three_is_the_mean_where_it_is_linear() -> None:
    rng = torch.Generator().manual_seed(0)
    start, *runs = [{"w": torch.randn(3, 4, generator=rng)} for _ in range(4)]
    found = merged("linear", start, runs, [1.0, 2.0, 5.0])["w"]
    mean = (runs[0]["w"] + 2 * runs[1]["w"] + 5 * runs[2]["w"]) / 8
    assert torch.allclose(found, mean, atol=1e-6)
    # Three at right angles, one after another: half way (45 degrees), then a third of 90 degrees.
    basis = [{"w": torch.eye(3)[i]} for i in range(3)]
    third = merged("slerp", {"w": torch.zeros(3)}, basis)["w"]
    assert third.tolist() == pytest.approx([math.sqrt(3 / 8), math.sqrt(3 / 8), 0.5])


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_product_moves_an_adapters_logit_update_and_linear_does_not(kind: str) -> None:
    lm = tiny(kind, sharp=2.0)
    bare = tiny(kind, sharp=2.0)
    lm.module = lora.wrap(lm.module, LoraSettings(rank=2, alpha=4.0), seed=3)
    live = trainable(lm.module)
    initial = snapshot(live)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for t in live.values():
            t.add_(0.2 * torch.randn(t.shape, generator=rng))
    final = snapshot(live)
    start = dict(bare.module.named_parameters())
    end = dict(lora.merged_copy(lm.module).named_parameters())
    changed = [n for n in start if not torch.equal(start[n], end[n])]
    assert changed

    def update(how: str) -> dict[str, torch.Tensor]:
        for n, t in between(how, initial, final, 0.3).items():  # type: ignore[arg-type]
            live[n].data.copy_(t)
        here = dict(lora.merged_copy(lm.module).named_parameters())
        return {n: here[n] - start[n] for n in changed}

    for n, t in update("product").items():
        assert torch.allclose(t, 0.3 * (end[n] - start[n]), atol=1e-5)
    # A and B apart: 0.3 B1 (0.7 A0 + 0.3 A1), about a third of which is 0.3 (0.3 B1 A1)
    apart = update("linear")
    assert any(
        not torch.allclose(t, 0.3 * (end[n] - start[n]), atol=1e-3) for n, t in apart.items()
    )
    s = some_sequences(lm)
    for n, t in between("product", initial, final, 0.0).items():
        live[n].data.copy_(t)
    with lm.quiet(), bare.quiet(), torch.no_grad():
        assert torch.allclose(lm.forward(s)[0], bare.forward(s)[0], atol=1e-5)


def test_product_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UserError, match="hold no adapter"):
        between("product", vectors([1.0]), vectors([2.0]), 0.5)
    started = {"x.lora_A.default": torch.ones(1), "x.lora_B.default": torch.ones(1)}
    with pytest.raises(UserError, match="is not zero"):
        between("product", started, started, 0.5)
