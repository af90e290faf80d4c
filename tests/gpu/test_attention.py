"""Gradients at the lengths that `models.attention` keeps from cuDNN, of whole models."""

from __future__ import annotations

import pytest
import torch

from tests.models_for_tests import tiny
from tether.models.attention import spoilt
from tether.models.language_model import LanguageModel
from tether.models.loading import recompute_activations
from tether.models.scoring import score
from tether.types import Sequences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
LOW = -150.0


def low(lm: LanguageModel) -> LanguageModel:
    """Every score of attention far below ln of fp32's largest number taken negative, -88.7: a
    constant direction of the keys' input that queries point away from."""
    for layer in lm.core.get_decoder().layers:
        attention = layer.self_attn
        width = attention.head_dim
        with torch.no_grad():
            for linear, value in ((attention.q_proj, 1.0), (attention.k_proj, LOW)):
                linear.bias = torch.nn.Parameter(torch.zeros_like(linear.weight[:, 0]))
                # the last pair of numbers, which rotary positions turn slowest
                linear.bias.data[width - 1 :: width] = value * width**0.25
    return lm


@pytest.mark.parametrize("how", ["plain", "compiled", "recorded", "recomputed"])
def test_gradients_are_finite_and_right(how: str) -> None:
    """64 and 192 keys with padding, in bf16, against the same model in fp32 on the CPU."""
    found = []
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        lm = low(tiny("llama", width=256, layers=1))
        lm.module.to(device, dtype)
        if device == "cuda":
            lm.compile, lm.capture = how == "compiled", how == "recorded"
            if how == "recomputed":
                recompute_activations(lm.core)
        norms = []
        for prompt, completion in ((40, 24), (150, 42)):
            assert spoilt(prompt + completion)
            ids = torch.randint(0, 250, (4, prompt + completion), generator=torch.Generator())
            real = torch.arange(prompt).expand(4, -1) >= torch.arange(4)[:, None] * 3
            done = torch.ones(4, completion, dtype=torch.bool)
            s = Sequences(ids[:, :prompt], real, ids[:, prompt:], done).to(device)
            with lm.updating(), lm.recording():
                scores = score(lm, s)
            scores.logprobs.sum().backward()
            grads = [p.grad.float() for p in lm.module.parameters() if p.grad is not None]
            assert all(bool(g.isfinite().all()) for g in grads)
            norms.append(float(torch.stack([g.norm() for g in grads]).norm()))
            for p in lm.module.parameters():
                p.grad = None
            del scores
        found.append(norms)
    assert found[1] == pytest.approx(found[0], rel=0.25)
