"""An adapted layer without copies is peft's own layer, and leaves to it what it does not do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn

from tether.models.adapted_linear import AdaptedLinear, adopt


class Two(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8, bias=bias), nn.Linear(8, 5, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


def adapted(
    dtype: torch.dtype = torch.float64, bias: bool = True, dropout: float = 0.0, **more: Any
) -> Any:
    """A peft model with B away from zero."""
    torch.manual_seed(0)
    config = LoraConfig(
        r=3, lora_alpha=7, target_modules=["first", "second"], lora_dropout=dropout, **more
    )
    base: Any = Two(bias).to(dtype)
    model = get_peft_model(base, config, autocast_adapter_dtype=False)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_()
    return model


def both(**options: Any) -> tuple[Any, Any]:
    """(peft's model, the same with our layers)"""
    theirs = adapted(**options)
    ours = copy.deepcopy(theirs)
    assert adopt(ours) == 2
    return theirs, ours


def gradients(model: Any, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    x = x.clone().requires_grad_()
    out = model(x)
    out.square().sum().backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert x.grad is not None
    return out.detach(), {**found, "x": x.grad}


@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("shape", ((4, 6), (2, 3, 6), (2, 2, 2, 6)))
def test_values_and_gradients_are_pefts(shape: tuple[int, ...], bias: bool) -> None:
    theirs, ours = both(bias=bias)
    x = torch.randn(shape, dtype=torch.float64)
    (a, g), (b, h) = gradients(theirs, x), gradients(ours, x)
    torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-12)
    assert g.keys() == h.keys() and len(g) == 5
    for name, value in g.items():
        torch.testing.assert_close(h[name], value, rtol=1e-12, atol=1e-12)


def test_by_hand() -> None:
    """W 1, b 10, A 2, B 3, scale 5, x 7: 7 + 10 + 5 * 3 * 2 * 7 = 227; d/dA = 5 * 3 * 7 = 105."""
    model: Any = nn.Sequential(nn.Linear(1, 1))
    config = LoraConfig(r=1, lora_alpha=5, target_modules=["0"])
    model = get_peft_model(model, config)
    assert adopt(model) == 1
    layer = model.base_model.model[0]
    with torch.no_grad():
        layer.base_layer.weight.fill_(1.0)
        layer.base_layer.bias.fill_(10.0)
        layer.lora_A["default"].weight.fill_(2.0)
        layer.lora_B["default"].weight.fill_(3.0)
    out = model(torch.tensor([[7.0]]))
    out.backward()
    assert out.item() == 227.0
    assert layer.lora_A["default"].weight.grad.item() == 105.0
    assert layer.lora_B["default"].weight.grad.item() == 70.0


def test_second_derivatives_are_pefts() -> None:
    """Natural gradients need them."""
    found = []
    for model in both():
        x = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        p = [q for q in model.parameters() if q.requires_grad]
        first = torch.autograd.grad(model(x).square().sum(), p, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), p))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)


def test_in_bf16_it_is_nearer_to_exact_numbers_than_peft() -> None:
    theirs, ours = both(dtype=torch.bfloat16)
    exact = copy.deepcopy(theirs).double()
    x = torch.randn(512, 6, dtype=torch.bfloat16)
    with torch.no_grad():
        want = exact(x.double())
        off = [float((m(x).double() - want).abs().mean()) for m in (theirs, ours)]
    assert ours(x).dtype == torch.bfloat16
    assert off[1] <= off[0] and off[1] < 0.01 * float(want.abs().mean())


def second_adapter(model: Any) -> None:
    model.add_adapter("other", LoraConfig(r=2, target_modules=["first", "second"]))
    model.base_model.set_adapter(["default", "other"])


def forward_hook(model: Any) -> None:
    seen = model.seen = []
    first = model.base_model.model.first.base_layer
    first.register_forward_hook(lambda module, args, out: seen.append((out, out.clone())))


def in_fp32(model: Any) -> None:
    for part in (model.base_model.model.first.lora_A, model.base_model.model.first.lora_B):
        part["default"].float()


@pytest.mark.parametrize(
    "change",
    (
        second_adapter,
        forward_hook,
        lambda model: model.merge_adapter(),
        lambda model: model.base_model.disable_adapter_layers(),
        in_fp32,
    ),
    ids=("two adapters", "hook", "merged", "disabled", "another type"),
)
def test_what_it_does_not_do_is_left_to_peft(
    change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = both()
    torch.manual_seed(1)
    change(theirs)
    torch.manual_seed(1)
    change(ours)
    came = []
    forward = Linear.forward
    monkeypatch.setattr(
        Linear, "forward", lambda self, *a, **k: (came.append(self), forward(self, *a, **k))[1]
    )
    x = torch.randn(3, 6, dtype=torch.float64)
    got = ours(x)
    assert ours.base_model.model.first in came
    assert torch.equal(got, theirs(x))
    for out, then in getattr(ours, "seen", []):
        assert torch.equal(out, then)  # nothing was added to what the hook was given


def test_dropout_and_variants_are_left_to_peft() -> None:
    for options in ({"dropout": 0.5}, {"use_dora": True}):
        theirs, ours = both(**options)
        x = torch.randn(3, 6, dtype=torch.float64)
        results = []
        for model in (theirs, ours):
            torch.manual_seed(2)
            results.append(model(x))
        assert torch.equal(*results)


def test_a_copy_is_such_a_layer_with_weights_of_its_own() -> None:
    ours = both()[1]
    other = copy.deepcopy(ours)
    layer = other.base_model.model.first
    assert type(layer) is AdaptedLinear and layer is not ours.base_model.model.first
    x = torch.randn(3, 6, dtype=torch.float64)
    before = ours(x)
    with torch.no_grad():
        layer.lora_B["default"].weight.zero_()
    assert torch.equal(ours(x), before) and not torch.equal(other(x), before)
