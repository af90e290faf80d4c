"""Fitting a head: schedule, fp32 sums of gradients, fp32 masters of bf16 weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.runs_for_tests import quiet
from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.train import head_fit
from tether.train.head_fit import fit, schedule
from tether.train.optimizer import MasterOptimizer


class One(nn.Module):
    """A single weight."""

    def __init__(self, value: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([value], dtype=dtype))


def fitted(
    module: One, rows: int, loss: Callable[[Tensor, int], Tensor] | None = None, **changes: Any
) -> float:
    """The weight after `rows` losses, w itself unless said otherwise: a gradient of 1."""
    settings = ClassifierSettings(**({"batch_size": 1, "weight_decay": 0.0} | changes))

    def losses(items: Sequence[int]) -> Tensor:
        return torch.cat([module.w if loss is None else loss(module.w, i) for i in items])

    fit(module, rows, settings, lambda index, _: sorted(index), losses, quiet)
    return float(module.w.detach())


def test_the_schedule_by_hand() -> None:
    # 8 steps, 2 of warm-up, 6 of decay
    want = [1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert [schedule(i, 8, 0.25) for i in range(8)] == pytest.approx(want)
    assert [schedule(i, 4, 0.0) for i in range(4)] == pytest.approx([1, 1, 2 / 3, 1 / 3])
    assert [schedule(i, 4, 1.0) for i in range(4)] == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1])
    assert schedule(0, 1, 0.05) == 1.0
    for steps in (1, 2, 7, 100):
        for ratio in (0.0, 0.05, 0.5, 0.99, 1.0):
            assert all(0 < schedule(i, steps, ratio) <= 1 for i in range(steps))


def test_every_step_takes_the_schedules_rate() -> None:
    """AdamW moves a weight of constant gradient by its learning rate: 8 steps at the factors above
    are 5 learning rates. Two passes of 4 are one schedule of 8 steps."""
    for rows, epochs in ((8, 1), (4, 2)):
        moved = 1.0 - fitted(One(1.0, torch.float32), rows, lr=1e-3, warmup_ratio=0.25,
                             epochs=epochs)  # fmt: skip
        assert moved == pytest.approx(5e-3, rel=1e-4)


def test_bf16_weights_have_fp32_masters() -> None:
    """Five steps of at most .001: each alone is lost in bf16, whose next number below 1 is
    .99609375; together they are 3.5 (1, 1, 3/4, 2/4, 1/4) and are nearer to it than to 1."""
    low = torch.tensor(1.0, dtype=torch.bfloat16)
    assert low - 1e-3 == low
    module = One(1.0, torch.bfloat16)
    assert fitted(module, 5, lr=1e-3, warmup_ratio=0.0) == 0.99609375
    assert module.w.dtype == torch.bfloat16 and module.w.grad is None


def test_weight_decay_and_the_clip_are_applied() -> None:
    """Decay alone: no gradient, w (1 - lr decay) a step. The clip: of gradients 30 and .1 Adam's
    second step has the moments of 1 and .1."""
    still = fitted(One(2.0, torch.float32), 1, lambda w, i: 0.0 * w, lr=0.1, weight_decay=0.5)
    assert still == pytest.approx(2.0 * (1 - 0.05))

    def moved(first: float) -> float:
        """The weight is 0 at the first step only."""

        def loss(w: Tensor, i: int) -> Tensor:
            return w * (first if w.item() == 0.0 else 0.1)

        return fitted(One(0.0, torch.float32), 2, loss, lr=0.1, warmup_ratio=0.0)

    assert moved(30.0) == pytest.approx(moved(1.0), abs=1e-5)
    assert moved(0.5) != pytest.approx(moved(1.0), abs=1e-3)


def test_gradients_are_summed_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Microbatches of gradient 256, 1, 1, 1: bf16 has no number between 256 and 258, so a sum in it
    stays at 256."""
    assert torch.tensor(256.0, dtype=torch.bfloat16) + 1 == 256
    seen: list[Tensor] = []

    def step(self: MasterOptimizer, lrs: dict[str, float], step: int) -> dict[str, float]:
        self.gather_gradients()
        (master,) = self.groups[head_fit.GROUP]
        assert master.grad is not None
        seen.append(master.grad.clone())
        self.zero()
        return {head_fit.GROUP: 0.0}

    monkeypatch.setattr(MasterOptimizer, "step", step)
    each = [1024.0, 4.0, 4.0, 4.0]  # of a mean over four
    low = One(1.0, torch.bfloat16)
    fitted(low, 4, lambda w, i: w.float() * each[i], batch_size=4, microbatch=1)
    assert len(seen) == 1 and seen[0].dtype == torch.float32 and seen[0].tolist() == [259.0]


def test_a_gradient_that_is_not_finite_stops() -> None:
    module = One(0.0, torch.float32)
    with pytest.raises(UserError, match="norm of the gradient is inf at step 1 of 3; lower lr"):
        fitted(module, 3, lambda w, i: w.sqrt())
    assert module.w.item() == 0.0
    with pytest.raises(UserError, match="the loss is nan at step 1 of 3; lower lr"):
        fitted(One(float("nan"), torch.float32), 3)
