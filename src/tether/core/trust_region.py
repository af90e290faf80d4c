"""The linear algebra of a natural-gradient step on vectors that are lists of tensors.

Vectors are never flattened: under sharding each rank holds a part, and a dot product is a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Vector = Sequence[Tensor]
Dot = Callable[[Vector, Vector], float]
RESIDUAL = 1e-10
"""|r|² / |b|² at which the system counts as solved (fp32 has no more digits to give)."""


def conjugate_gradient(
    product: Callable[[list[Tensor]], list[Tensor]], b: Vector, dot: Dot, steps: int
) -> tuple[list[Tensor], float]:
    """Approximate x of A x = b for a symmetric positive definite A that is known by its products.

    It stops early where the system is solved, and where rounding has made A's curvature along the
    search direction not positive.

    Source: Hestenes and Stiefel 1952; as in Schulman et al. 2015, arXiv 1502.05477, appendix C.
    Args:
        product: v -> A v. b: right-hand side. dot: inner product.
        steps: products at most.
    Returns:
        x and the residual |A x - b| / |b|; zeros and 0 where b is 0.
    """
    x = [torch.zeros_like(t) for t in b]
    r, p = [t.clone() for t in b], [t.clone() for t in b]
    start = rr = dot(r, r)
    for _ in range(steps):
        if not rr > RESIDUAL * start:
            break
        ap = product(p)
        curvature = dot(p, ap)
        if not curvature > 0:
            break
        alpha = rr / curvature
        for xi, ri, pi, api in zip(x, r, p, ap, strict=True):
            xi.add_(pi, alpha=alpha)
            ri.add_(api, alpha=-alpha)
        rr, before = dot(r, r), rr
        for ri, pi in zip(r, p, strict=True):
            pi.mul_(rr / before).add_(ri)
    return x, math.sqrt(rr / start) if start > 0 else 0.0


def step_length(curvature: float, target_kl: float) -> float:
    """Length of the longest step along x inside the quadratic model of the bound.

        KL(old || old + b x) = b² xᵀ F x / 2 = target   =>   b = sqrt(2 target / xᵀ F x)

    Source: arXiv 1502.05477, appendix C.
    Args:
        curvature: xᵀ F x. target_kl: nats.
    Returns:
        b; 0 where the curvature is not a positive number, so that there is no step.
    """
    if not (curvature > 0 and math.isfinite(curvature)):
        return 0.0
    return math.sqrt(2 * target_kl / curvature)
