"""Weights between weights: from the initial to the final ones, and several runs merged.

Between an initial set a and a final set b, at share s:

* `linear`: (1 - s) a + s b, tensor by tensor. With LoRA this moves A and B apart, and the update is
  the product of two moved factors: ((1 - s) B0 + s B1) ((1 - s) A0 + s A1), not linear in s.
* `product`: an adapter's update itself, s B1 A1. B starts at 0, so this is A1 with s B1.
* `slerp`: on the sphere, (sin((1 - s) W) a + sin(s W) b) / sin W, W the angle between a and b: one
  for each tensor; `slerp_global`: one for all tensors together. Fine-tuning turns whole weights by
  a small angle, where this is nearly linear.

Merging (WARP) does the same with task vectors d = w - initial of several runs, whose angles are
large, and then interpolates linearly towards the initial weights (LITI). More than two runs are
merged one after another, each by its share of the weight so far; on a sphere the order matters:
three at right angles get .61, .61 and .50.

Source: interpolation to the initial weights: Wortsman et al. 2022 (WiSE-FT, arXiv 2109.01903);
SLERP of task vectors, layer by layer, and LITI: Rame et al. 2024 (WARP, arXiv 2406.16768, sections
3.2 and 3.3, appendix B.3); LoRA: Hu et al. 2021 (arXiv 2106.09685).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.config.run import How
from tether.core.weights import WeightSet, lerp_, local, snapshot

Merge = Literal["slerp", "slerp_global", "linear"]
FLAT = 1e-6
"""Radians below which an arc is a straight line in fp32."""


def between(
    how: How, initial: Mapping[str, Tensor], final: Mapping[str, Tensor], share: float
) -> WeightSet:
    """A new set at `share` of the way; 0 and 1 give the ends bit for bit (`product`: the initial
    function at 0, with other factors)."""
    if how == "linear":
        return _line(initial, final, share)
    if how == "product":
        return _product(initial, final, share)
    return _arc(initial, final, share, one_angle=how == "slerp_global")


def merged(
    how: Merge,
    initial: Mapping[str, Tensor],
    finals: Sequence[Mapping[str, Tensor]],
    weights: Sequence[float] | None = None,
    share: float = 1.0,
) -> WeightSet:
    """Several runs from one initial set as one set.

    Args:
        weights: one a run, above 0, of any sum; default: equal.
        share: LITI: how far from the initial (0) to the merged weights (1).
    Raises:
        UserError: two task vectors point in opposite directions.
    """
    weights = [1.0] * len(finals) if weights is None else weights
    task = _less(finals[0], initial)
    so_far = weights[0]
    for one, weight in zip(finals[1:], weights[1:], strict=True):
        so_far += weight
        here = weight / so_far
        if how == "linear":
            task = _line(task, _less(one, initial), here)
        else:
            task = _arc(task, _less(one, initial), here, one_angle=how == "slerp_global")
    with torch.no_grad():
        return {n: local(initial[n]).float() + share * t for n, t in task.items()}


@torch.no_grad()
def angle(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Radians between two sets seen as one long vector each; NaN where one is zero.

    2 atan2(|u - v|, |u + v|) of the unit vectors: the arc cosine loses small angles.
    """
    size_a, size_b = _norm(a.values()), _norm(b.values())
    if size_a == 0 or size_b == 0:
        return math.nan
    off = both = 0.0
    for n, x in a.items():
        u, v = local(x).double() / size_a, local(b[n]).double() / size_b
        off += float((u - v).square().sum())
        both += float((u + v).square().sum())
    return 2 * math.atan2(math.sqrt(off), math.sqrt(both))


def arc_shares(omega: float, share: float) -> tuple[float, float]:
    """Coefficients of the two ends at `share` of an arc; a straight line where there is none.

    Raises:
        UserError: opposite ends, between which no arc is the shortest.
    """
    if math.isnan(omega) or omega < FLAT:
        return 1 - share, share
    if math.pi - omega < FLAT:
        raise UserError("slerp: two weights point in opposite directions; merge them by linear")
    whole = math.sin(omega)
    return math.sin((1 - share) * omega) / whole, math.sin(share * omega) / whole


def _norm(tensors: Iterable[Tensor]) -> float:
    return math.sqrt(math.fsum(float(local(t).double().square().sum()) for t in tensors))


def _less(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> WeightSet:
    with torch.no_grad():
        return {n: local(t).float() - local(b[n]).float() for n, t in a.items()}


def _line(a: Mapping[str, Tensor], b: Mapping[str, Tensor], share: float) -> WeightSet:
    out = snapshot(a)
    lerp_(out, b, share)
    return out


@torch.no_grad()
def _arc(
    a: Mapping[str, Tensor], b: Mapping[str, Tensor], share: float, *, one_angle: bool
) -> WeightSet:
    whole = angle(a, b) if one_angle else 0.0
    out: WeightSet = {}
    for n, x in a.items():
        omega = whole if one_angle else angle({n: x}, {n: b[n]})
        of_a, of_b = arc_shares(omega, share)
        y = local(b[n]).to(device=x.device, dtype=torch.float32)
        out[n] = of_a * local(x).float() + of_b * y
    return out


@torch.no_grad()
def _product(initial: Mapping[str, Tensor], final: Mapping[str, Tensor], share: float) -> WeightSet:
    out = _line(initial, final, share)
    pairs = {n: n.replace("lora_B", "lora_A") for n in final if "lora_B" in n}
    pairs |= {
        n: n.replace("lora_embedding_B", "lora_embedding_A")
        for n in final
        if "lora_embedding_B" in n
    }
    if not pairs:
        raise UserError("product: these weights hold no adapter; without one it is linear")
    for b, a in pairs.items():
        if bool(local(initial[b]).any()):
            raise UserError(f"product: the initial adapter is not zero ({b}); use linear")
        out[a].copy_(local(final[a]))
        out[b].copy_(local(final[b]) * share)
    return out
