"""Gradients of bf16 weights are summed in fp32, in the same memory step after step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tether.config.run import OptimizerSettings
from tether.train import optimizer as module
from tether.train.optimizer import MasterOptimizer


def pair(*sizes: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    working = [nn.Parameter(torch.zeros(n, dtype=torch.bfloat16)) for n in sizes]
    return [nn.Parameter(p.detach().float()) for p in working], working  # type: ignore[return-value]


def test_microbatches_add_up_without_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 + 1 + 1 is 256 in bf16 (its step there is 2) and 258 in fp32."""
    monkeypatch.setattr(module, "AT_ONCE", 2)  # five tensors in three launches
    masters, working = pair(3, 2, 1, 4, 2)
    optimizer = MasterOptimizer({"policy": masters}, {"policy": working}, OptimizerSettings(), 9)
    memory = set()
    for _ in range(2):
        for value in (256.0, 1.0, 1.0):
            for number, p in enumerate(working):
                if number != 3 or value == 1.0:  # one has no gradient the first time
                    p.grad = torch.full_like(p, value * (number + 1))
            optimizer.gather_gradients()
            assert all(p.grad is None for p in working)
        for number, p in enumerate(masters):
            wanted = (number + 1) * (2.0 if number == 3 else 258.0)
            assert p.grad is not None and p.grad.dtype == torch.float32
            assert (p.grad == wanted).all(), number
            memory.add(p.grad.data_ptr())
        optimizer.zero()
        assert all(p.grad is None for p in masters)
    assert len(memory) == len(masters)


def test_fp32_weights_keep_their_own_gradients() -> None:
    p = nn.Parameter(torch.zeros(2))
    optimizer = MasterOptimizer({"policy": [p]}, {"policy": [p]}, OptimizerSettings(), 9)
    p.grad = torch.ones(2)
    kept = p.grad
    optimizer.gather_gradients()
    assert p.grad is kept


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_step_that_is_left_out_on_the_device(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of a GPU, which CPUs have too, reads the flag; weights, moments and the number of
    steps stay as they are."""
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    optimizer = MasterOptimizer(
        {"policy": [p], "critic": [q]}, {"policy": [p], "critic": [q]}, OptimizerSettings(), 9
    )
    optimizer.adam = torch.optim.AdamW(
        [{"params": ps, "name": n} for n, ps in optimizer.groups.items()], lr=0.0, fused=True
    )
    monkeypatch.setattr(MasterOptimizer, "_on_device", lambda self, norms: list(norms.values()))
    lrs = {"policy": 0.1, "critic": 0.1}
    weights, steps = [], []
    for size in (1.0, bad, 1.0):
        p.grad, q.grad = torch.full((3,), size), torch.full((2,), 0.5)
        norms = optimizer.step(lrs, 0)
        assert bool(norms["policy"].isfinite()) == (size == 1.0) and p.grad is None
        weights.append((p.detach().clone(), q.detach().clone()))
        steps.append(float(optimizer.adam.state[p]["step"]))
    assert torch.equal(weights[0][0], weights[1][0]) and torch.equal(weights[0][1], weights[1][1])
    assert steps == [1.0, 1.0, 2.0]
    assert (weights[2][0] < weights[1][0]).all() and (weights[2][1] < weights[1][1]).all()
