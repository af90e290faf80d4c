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
from torch.utils._python_dispatch import TorchDispatchMode

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


def on_a(model: Any) -> None:
    a = model.base_model.model.first.lora_A["default"]
    a.register_forward_pre_hook(lambda module, args: (2 * args[0],))


def backward_hook(model: Any) -> None:
    model.base_model.model.first.base_layer.register_full_backward_pre_hook(lambda m, g: None)


def another_forward(model: Any) -> None:
    base = model.base_model.model.first.base_layer
    forward = base.forward
    base.forward = lambda x: 2 * forward(x)


@pytest.mark.parametrize(
    "change",
    (
        second_adapter,
        forward_hook,
        on_a,
        backward_hook,
        another_forward,
        lambda model: model.merge_adapter(),
        lambda model: model.base_model.disable_adapter_layers(),
        in_fp32,
    ),
    ids=(
        "two adapters",
        "hook",
        "hook on A",
        "backward hook",
        "forward",
        "merged",
        "disabled",
        "another type",
    ),
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


def test_hooks_on_all_modules_see_what_they_see_in_pefts() -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    theirs, ours = both()
    x, counts = torch.randn(3, 6, dtype=torch.float64), []
    keep = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, out: seen.append((out, out.clone()))
    )
    try:
        for model in (theirs, ours):
            seen.clear()
            model(x)
            counts.append(len(seen))
            assert all(torch.equal(out, then) for out, then in seen)
    finally:
        keep.remove()
    assert counts[0] == counts[1]


def test_under_autocast_it_is_pefts() -> None:
    theirs, ours = both(dtype=torch.float32)
    x = torch.randn(3, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = ours(x), theirs(x)
    assert got.dtype == want.dtype and torch.equal(got, want)


def test_no_weights_no_numbers() -> None:
    ours = both()[1].to("meta")
    assert ours(torch.zeros(3, 6, dtype=torch.float64, device="meta")).shape == (3, 5)


def test_rows_that_do_not_lie_together() -> None:
    theirs, ours = both()
    x = torch.randn(6, 3, 2, dtype=torch.float64).transpose(0, 2)
    assert not x.is_contiguous()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)
    empty = torch.zeros(0, 4, 6, dtype=torch.float64)
    assert ours(empty).shape == (0, 4, 5)


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(f).split(".")[1])
        return f(*args, **(kwargs or {}))


def test_nothing_is_copied() -> None:
    ours = both(bias=False)[1]
    with torch.no_grad(), Operations() as seen:
        ours.base_model.model.first(torch.randn(2, 3, 6, dtype=torch.float64))
    computed = [n for n in seen.names if n not in ("view", "t", "detach", "randn", "_unsafe_view")]
    assert computed == ["mm", "mm", "addmm_"]


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
