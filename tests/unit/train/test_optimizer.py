"""Gradients of bf16 weights are summed in fp32, in the same memory step after step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tether.config.run import OptimizerSettings
from tether.train import gradients as module
from tether.train import optimizer as optimizer_module
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


def test_fp32_weights_whose_gradients_are_written_over() -> None:
    """A recorded pass leaves its gradients in one place, microbatch after microbatch; another pass
    adds to what it finds. 3 + 4 + 5, twice, with a step of AdamW as torch.optim takes it."""
    weights, plain = (
        [nn.Parameter(torch.linspace(-1, 1, n)) for n in (3, 2)] for _ in range(2)
    )  # fmt: skip
    settings = OptimizerSettings(max_grad_norm=0.0, weight_decay=0.1)
    groups = {"policy": weights}
    optimizer = MasterOptimizer(groups, groups, settings, 9, apart=True)  # type: ignore[arg-type]
    adam = torch.optim.AdamW(plain, lr=0.1, weight_decay=0.1)
    place = [torch.zeros_like(p) for p in weights]
    for _ in range(2):
        for value in (3.0, 4.0):
            for p, here in zip(weights, place, strict=True):
                here.fill_(value)
                p.grad = here.detach()
            optimizer.add_gradients()
        optimizer.gather_gradients()
        assert all((p.grad == 7.0).all() for p in weights if p.grad is not None)
        for here in place:
            here.fill_(-1.0)  # the next replay
        for p in weights:
            p.grad = torch.full_like(p, 5.0)
        norms = optimizer.step({"policy": 0.1}, 0)
        assert float(norms["policy"]) == pytest.approx(12.0 * 5**0.5)
        for p in plain:
            p.grad = torch.full_like(p, 12.0)
        adam.step()
        for p, q in zip(weights, plain, strict=True):
            torch.testing.assert_close(p, q)
            assert p.grad is None


def test_what_was_handed_over_is_not_gathered_again() -> None:
    p = nn.Parameter(torch.zeros(2))
    optimizer = MasterOptimizer({"policy": [p]}, {"policy": [p]}, OptimizerSettings(), 9, True)
    p.grad = torch.ones(2)
    for _ in range(3):
        optimizer.gather_gradients()
        assert p.grad is not None
        assert (p.grad == 1.0).all()


def test_fp32_weights_keep_their_own_gradients() -> None:
    p = nn.Parameter(torch.zeros(2))
    optimizer = MasterOptimizer({"policy": [p]}, {"policy": [p]}, OptimizerSettings(), 9)
    p.grad = torch.ones(2)
    kept = p.grad
    optimizer.gather_gradients()
    assert p.grad is kept


def fused(settings: OptimizerSettings, **groups: tuple[list[Any], list[Any]]) -> MasterOptimizer:
    """With the kernel of a GPU, which CPUs have too."""
    optimizer = MasterOptimizer(
        {n: masters for n, (masters, _) in groups.items()},
        {n: working for n, (_, working) in groups.items()}, settings, 9,
    )  # fmt: skip
    optimizer.adam = torch.optim.AdamW(
        [{"params": ps, "name": n} for n, ps in optimizer.groups.items()], lr=0.0, fused=True,
        betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay,
    )  # fmt: skip
    return optimizer


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.5, 1e9])
def test_steps_are_those_of_torch_optim(
    limit: float, block: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists that are known, one vector of gradients; a tensor that is its own master (a head in
    fp32), one laid out otherwise, steps without the policy and without one tensor in between."""
    monkeypatch.setattr(optimizer_module, "_sums_well", lambda t: block)  # as on a GPU
    settings = OptimizerSettings(max_grad_norm=limit, weight_decay=0.1)
    torch.manual_seed(0)
    starts = [torch.randn(5, 3), torch.randn(2), torch.randn(4, 7).t(), torch.randn(3)]

    def model() -> tuple[list[Any], list[Any]]:
        working = [nn.Parameter(t.bfloat16()) for t in starts[:3]]
        head = nn.Parameter(starts[3].clone())
        masters = [nn.Parameter(p.detach().float()) for p in working]
        assert masters[2].stride() == (1, 7)
        return [*masters, head], [*working, head]

    mine = fused(settings, policy=model(), critic=model())
    plain = {n: model()[0] for n in ("policy", "critic")}
    adam = torch.optim.AdamW(
        [{"params": ps} for ps in plain.values()], lr=0.1, fused=True, weight_decay=0.1,
        betas=settings.betas, eps=settings.eps,
    )  # fmt: skip
    seen: list[str] = []
    plainly = mine._adamw
    monkeypatch.setattr(mine, "_adamw", lambda g: (seen.append(g["name"]), plainly(g)))
    quick = 0
    for k in range(6):
        policy, every = k != 3, k != 4
        for name, masters in plain.items():
            for i, p in enumerate(masters):
                p.grad = None
                if i == 1 and not every:
                    continue
                for _ in range(2):  # microbatches
                    g = torch.randn(p.shape) * (i + 1)
                    work = mine.working[name][i]
                    g = g.to(work.dtype)
                    work.grad = g.clone() if work.grad is None else work.grad + g
                    kept = torch.zeros_like(p) if p.grad is None else p.grad  # in the layout of p
                    p.grad = kept.add_(g.float())
                    if i < 3:
                        mine.add_gradients()
            if limit > 0:
                torch.nn.utils.clip_grad_norm_(masters, limit)
        for p in plain["policy"]:
            p.grad = p.grad if policy else None
        adam.step()
        before = len(seen)
        mine.step({"policy": 0.1, "critic": 0.1}, 0, policy=policy)
        quick += len(seen) > before
        for name, masters in plain.items():
            for i, (a, b) in enumerate(zip(mine.groups[name], masters, strict=True)):
                assert torch.allclose(a, b, rtol=1e-5, atol=1e-6), (k, name, i)
                assert float(mine.adam.state[a]["step"]) == float(adam.state[b]["step"])
    assert quick == 4  # all but the first, which makes the moments, and the one that lacks a tensor
    again = fused(settings, policy=model(), critic=model())
    again.load_state_dict(mine.state_dict())
    assert torch.equal(
        again.adam.state[again.groups["critic"][2]]["exp_avg"],
        mine.adam.state[mine.groups["critic"][2]]["exp_avg"],
    )


def test_moments_that_are_loaded_are_the_ones_that_move() -> None:
    """Lists that were known are not those of before."""
    masters, working = pair(3, 2)
    mine = fused(OptimizerSettings(), policy=(masters, working))

    def step() -> None:
        for p in working:
            p.grad = torch.ones_like(p)
        mine.step({"policy": 0.1}, 0)

    step()
    state = {k: {i: dict(m) for i, m in v.items()} for k, v in mine.state_dict().items()}
    saved = {i: {k: t.clone() for k, t in m.items()} for i, m in state["policy"].items()}
    step()
    mine.load_state_dict({"policy": saved})
    step()
    assert [float(mine.adam.state[p]["step"]) for p in masters] == [2.0, 2.0]


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


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_block_of_sums_is_sound_after_a_bad_gradient(
    bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of odd sizes have room between them, which the norm of the block reads."""
    monkeypatch.setattr(optimizer_module, "_sums_well", lambda t: True)
    monkeypatch.setattr(MasterOptimizer, "_on_device", lambda self, norms: list(norms.values()))
    masters, working = pair(3, 2, 5)
    mine = fused(OptimizerSettings(max_grad_norm=1.0), policy=(masters, working))
    moved = []
    for size in (1.0, 1.0, bad, 1.0):
        before = [p.detach().clone() for p in masters]
        for p in working:
            p.grad = torch.full_like(p, size)
        norm = mine.step({"policy": 0.1}, 0)["policy"]
        assert bool(norm.isfinite()) == (size == 1.0)
        moved.append(not torch.equal(before[0], masters[0]))
    assert moved == [True, True, False, True]


def test_a_norm_in_cpu_memory_is_looked_at_beside_one_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    mine = fused(OptimizerSettings(), policy=([p], [p]), critic=([q], [q]))
    monkeypatch.setattr(MasterOptimizer, "_on_device", lambda self, norms: [norms["policy"]])
    p.grad, q.grad = torch.ones(3), torch.full((2,), float("nan"))
    mine.step({"policy": 0.1, "critic": 0.1}, 0)
    assert bool((p == 1).all()) and bool((q == 1).all())
