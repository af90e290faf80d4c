"""The average that Elastic Reset falls back to is exact only in fp32.

From 1.0, 2,000 averagings with decay .995 towards 1.3: 1.3 - .3 * .995^2000 = 1.29999.
"""

import pytest
import torch

from tether.core.weights import lerp_, snapshot

DECAY, UPDATES = 0.995, 2000


def ema_of(policy: torch.Tensor, dtype: torch.dtype = torch.float32) -> float:
    ema = {"w": torch.tensor([1.0], dtype=dtype)}
    address = ema["w"].data_ptr()
    for _ in range(UPDATES):
        lerp_(ema, {"w": policy}, by=1 - DECAY)
    assert ema["w"].data_ptr() == address
    return float(ema["w"].float())


def test_ema_of_fp32_weights() -> None:
    exact = 1.3 - 0.3 * DECAY**UPDATES
    assert exact == pytest.approx(1.29999, abs=4e-6)
    assert ema_of(torch.tensor([1.3])) == pytest.approx(exact, abs=3e-6)


def test_ema_of_a_bf16_policy_arrives_at_what_bf16_can_store() -> None:
    policy = torch.tensor([1.3], dtype=torch.bfloat16)
    assert float(policy.float()) == 1.296875
    assert ema_of(policy) == pytest.approx(1.29686, abs=4e-6)


def test_ema_kept_in_bf16_never_moves() -> None:
    assert ema_of(torch.tensor([1.3], dtype=torch.bfloat16), torch.bfloat16) == 1.0
    assert ema_of(torch.tensor([1.3]), torch.bfloat16) == 1.0


def test_ema_of_many_tensors_at_once_is_the_same_number() -> None:
    """The fused path (fp32, one device) and the single one agree."""
    policy = {str(i): torch.full((i + 1,), 1.3) for i in range(5)}
    ema = snapshot({k: torch.ones_like(v) for k, v in policy.items()})
    for _ in range(UPDATES):
        lerp_(ema, policy, by=1 - DECAY)
    single = ema_of(torch.tensor([1.3]))
    assert all(float(x) == pytest.approx(single, abs=1e-6) for t in ema.values() for x in t)
