"""Gradients of attention at the lengths that `models.attention` keeps from cuDNN."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tether.models.attention import sound

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
LOW = -120.0
"""Every score: far below ln of fp32's largest number, taken negative, which is -88.7."""


@pytest.mark.parametrize("length", [64, 448, 704])
def test_gradients_are_finite_and_right(length: int) -> None:
    """The report's own case (pytorch/pytorch issue 196678), against fp32 by hand."""
    torch.manual_seed(0)
    width, tensors = 64, []
    for first in (1.0, LOW * math.sqrt(64), None):
        x = torch.randn(1, 1, length, width, device="cuda") * (1.0 if first is None else 0.1)
        if first is not None:
            x[..., 0] = first
        tensors.append(x.bfloat16())
    sees = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()[None, None]
    upstream = torch.randn(1, 1, length, width, device="cuda").bfloat16()

    mine = [t.clone().requires_grad_() for t in tensors]
    with sound(length):
        out = scaled_dot_product_attention(*mine, attn_mask=sees)
    out.backward(upstream)

    theirs = [t.float().requires_grad_() for t in tensors]
    scores = (theirs[0] @ theirs[1].mT / math.sqrt(width)).masked_fill(~sees, -torch.inf)
    (scores.softmax(-1) @ theirs[2]).backward(upstream.float())
    for a, b in zip(mine, theirs, strict=True):
        assert a.grad is not None and b.grad is not None
        assert bool(a.grad.isfinite().all())
        error = (a.grad.float() - b.grad).norm() / b.grad.norm()
        assert float(error) < 0.05
