"""B08: log-softmax is computed in fp32, whatever the logits come in."""

import torch

from tether.core.logprobs import log_softmax

LOGITS = 4 * torch.randn(50_000, generator=torch.Generator().manual_seed(0))
TRUE = LOGITS.double().log_softmax(-1)


def worst(logp: torch.Tensor) -> float:
    return float((logp.double() - TRUE).abs().max())


def test_fp32_logits_are_exact() -> None:
    assert worst(log_softmax(LOGITS)) < 2e-5  # ten units in the last place of -23


def test_bf16_logits_lose_only_what_bf16_lost() -> None:
    """About .03 from rounding the logits; the softmax itself in bf16 would make it about .13."""
    ours = log_softmax(LOGITS.bfloat16())
    assert ours.dtype == torch.float32
    assert worst(ours) < 0.07
    assert worst(LOGITS.bfloat16().log_softmax(-1)) > 0.1
    rounded = LOGITS.bfloat16().double().log_softmax(-1)
    assert float((ours.double() - rounded).abs().max()) < 1e-5


def test_temperature_and_allowed_set_come_after_the_cast() -> None:
    allowed = torch.arange(50_000) % 2 == 0
    ours = log_softmax(LOGITS.bfloat16(), 0.7, allowed)
    exact = (LOGITS.bfloat16().double() / 0.7)[allowed].log_softmax(-1)
    assert float((ours[allowed].double() - exact).abs().max()) < 1e-5
    assert float(ours[~allowed].exp().sum()) == 0
