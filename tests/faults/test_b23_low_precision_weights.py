"""B23: averages and resets in fp32; a reset writes the masters, or the next step undoes it."""

import pytest
import torch

from tether.core.weights import distance, lerp_, snapshot


def average(start: torch.Tensor, target: torch.Tensor, updates: int = 2000) -> float:
    ema, policy = {"w": start}, {"w": target}
    for _ in range(updates):
        lerp_(ema, policy, by=1 - 0.995)
    return float(ema["w"].float())


def test_fp32_average_arrives_and_bf16_never_moves() -> None:
    assert average(torch.tensor([1.0]), torch.tensor([1.3])) == pytest.approx(1.29999, abs=5e-6)
    bf16 = torch.tensor([1.0], dtype=torch.bfloat16)
    assert average(bf16, torch.tensor([1.3], dtype=torch.bfloat16)) == 1.0


def test_small_steps_need_masters() -> None:
    """100 steps of -.001 on a bf16 weight do nothing; on an fp32 master they arrive."""
    working = {"w": torch.tensor([1.0], dtype=torch.bfloat16)}
    master = snapshot(working)
    assert master["w"].dtype == torch.float32
    for _ in range(100):
        working["w"] -= 0.001
        master["w"] -= 0.001
    assert float(working["w"]) == 1.0
    lerp_(working, master)
    assert float(working["w"]) == pytest.approx(0.9, abs=0.002)


@pytest.mark.parametrize(("reset_master", "after"), [(True, 0.25), (False, 1.0)])
def test_a_reset_behind_the_masters_back_is_undone(reset_master: bool, after: float) -> None:
    master = {"w": torch.nn.Parameter(torch.tensor([1.0]))}
    working, home = {"w": torch.tensor([1.0], dtype=torch.bfloat16)}, {"w": torch.tensor([0.25])}
    optimizer = torch.optim.AdamW(master.values(), lr=0.0, weight_decay=0.0)
    lerp_(working, home)
    if reset_master:
        lerp_(master, home)
    master["w"].grad = torch.ones(1)
    optimizer.step()
    lerp_(working, master)
    assert float(working["w"]) == after


def test_distance_is_in_fp32() -> None:
    """bf16(1.3) is 1.296875, so working weights are .003125 away from their master."""
    working, master = {"w": torch.tensor([1.3]).bfloat16()}, {"w": torch.tensor([1.3])}
    assert distance(working, master) == pytest.approx(0.003125, abs=1e-6)
