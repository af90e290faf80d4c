"""Two passes over a piece of logits [n,V] on CUDA, each reading it once: scores of its tokens, and
the gradient. The formulas are those of `models.token_scores`."""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without
    triton = None

LOW = -1e38
"""Where a largest value starts: finite, so that differences of it are numbers."""


if triton is not None:

    @triton.jit
    def _read(z, ids, logp, entropy, lse, row, V, LOW: tl.constexpr, BLOCK: tl.constexpr):
        """A row: log-sum-exp and sum exp(z) z, kept relative to the largest z of each lane so
        far."""
        b = tl.program_id(0).to(tl.int64)
        most = tl.full([BLOCK], LOW, tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        weighted = tl.zeros([BLOCK], tl.float32)
        for i in range(0, V, BLOCK):
            n = i + tl.arange(0, BLOCK)
            x = tl.load(z + b * row + n, mask=n < V, other=float("-inf"))
            new = tl.maximum(most, x)
            shrink, p = tl.exp(most - new), tl.exp(x - new)
            total = total * shrink + p
            weighted = weighted * shrink + tl.where(n < V, p * x, 0.0)
            most = new
        top = tl.max(most, 0)
        scale = tl.exp(most - top)
        mass = tl.sum(total * scale, 0)
        log_mass = top + tl.log(mass)
        tl.store(lse + b, log_mass)
        tl.store(entropy + b, log_mass - tl.sum(weighted * scale, 0) / mass)
        tl.store(logp + b, tl.load(z + b * row + tl.load(ids + b)) - log_mass)

    @triton.jit
    def _gradient(
        z, ids, lse, entropy, g_logp, g_entropy, out, row, out_row, V, WIDE, BLOCK: tl.constexpr
    ):
        """A stretch of a row; columns from V to WIDE are no words and get 0."""
        b = tl.program_id(0).to(tl.int64)
        n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(z + b * row + n, mask=n < V, other=float("-inf"))
        logp = x - tl.load(lse + b)
        p = tl.exp(logp)
        first, second = tl.load(g_logp + b), tl.load(g_entropy + b)
        d = -p * (first + second * (tl.where(n < V, logp, 0.0) + tl.load(entropy + b)))
        d = tl.where(n == tl.load(ids + b), d + first, d)
        tl.store(out + b * out_row + n, d.to(out.dtype.element_ty), mask=n < WIDE)


def usable(z: Tensor) -> bool:
    """Whether these kernels can do a piece [n,V] fp32."""
    return triton is not None and z.is_cuda and z.stride(1) == 1


def read(z: Tensor, ids: Tensor, logp: Tensor, entropy: Tensor, lse: Tensor) -> None:
    """Logits z [n,V] and tokens ids [n] -> into logp, entropy, lse, each [n] fp32."""
    n, v = z.shape
    with torch.cuda.device(z.device):  # a launch goes to the current one
        _read[(n,)](z, ids, logp, entropy, lse, z.stride(0), v, LOW=LOW, BLOCK=4096, num_warps=8)


def gradient(
    z: Tensor,
    ids: Tensor,
    lse: Tensor,
    entropy: Tensor,
    g_logp: Tensor,
    g_entropy: Tensor,
    wide: int,
    dtype: torch.dtype,
) -> Tensor:
    """d loss / dz of log-prob and entropy, rounded to dtype: [n,wide], wide >= V, 0 beyond V."""
    n, v = z.shape
    out = torch.empty((n, wide), dtype=dtype, device=z.device)
    block = 2048
    with torch.cuda.device(z.device):
        _gradient[(n, triton.cdiv(wide, block))](
            z, ids, lse, entropy, g_logp, g_entropy, out, z.stride(0), out.stride(0), v, wide,
            BLOCK=block, num_warps=8,
        )  # fmt: skip
    return out
