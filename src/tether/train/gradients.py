"""Gradients summed over microbatches in fp32, apart from the weights that autograd leaves them
with: a block of memory a group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tether.core.weights import local

AT_ONCE = 64
"""Tensors in one launch where a launch needs memory."""
ALIGNED = 4
"""fp32 numbers: each tensor begins at 16 bytes, which is what kernels read at once."""


class GradientSums:
    """The fp32 gradients of a group's masters, for those whose working tensor is another one, or
    for all of them (`every`).

    A model has hundreds of tensors, and what touches them one by one is most of the time of a small
    step. So where every tensor has a gradient, which is the rule, nothing is done tensor by tensor
    but taking them from the working weights; `flat` is all of them as one vector.
    """

    def __init__(
        self, masters: Sequence[Tensor], working: Sequence[Tensor], every: bool = False
    ) -> None:
        pairs = zip(masters, working, strict=True)
        both = [(m, w) for m, w in pairs if every or m is not w]
        self.masters, self.working = [m for m, _ in both], [w for _, w in both]
        self.flat: Tensor | None = None
        """[N] fp32, 0 between the tensors; None for shards, and for tensors of several devices."""
        self.views: list[Tensor] = []
        self._begun: set[int] = set()

    @property
    def whole(self) -> bool:
        """Every tensor has a gradient, and `flat` holds nothing else."""
        return self.flat is not None and len(self._begun) == len(self.masters)

    def gather(self) -> None:
        """Take the gradients of the working tensors, and add them to what is here."""
        fresh = [w.grad for w in self.working]
        # a master that is its own working tensor may have been handed its sum
        mine = self.views or [None] * len(fresh)
        found = [
            i for i, (g, v) in enumerate(zip(fresh, mine, strict=True))
            if g is not None and g is not v
        ]  # fmt: skip
        if not found:
            return
        if not self.views:
            self._allocate()
        first = [i for i in found if i not in self._begun]
        more = [i for i in found if i in self._begun]
        for i in found:
            self.working[i].grad = None
        if first:
            torch._foreach_copy_(*self._locally(first, fresh))
        to, of = self._locally(more, fresh)
        for i in range(0, len(to), AT_ONCE):  # fp32 copies of a few, not of a whole model
            wide = [torch.empty_like(g) for g in to[i : i + AT_ONCE]]
            torch._foreach_copy_(wide, of[i : i + AT_ONCE])
            torch._foreach_add_(to[i : i + AT_ONCE], wide)
        self._begun.update(found)

    def hand_over(self) -> None:
        """Let the masters have them as `.grad`."""
        for i in self._begun:
            self.masters[i].grad = self.views[i]

    def zero(self) -> None:
        self._begun.clear()

    def _locally(
        self, places: Sequence[int], fresh: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Tensor]]:
        to = [self.views[i] for i in places]
        of = [g for i in places if (g := fresh[i]) is not None]
        if to and isinstance(to[0], DTensor):
            return [local(t) for t in to], [local(t) for t in of]
        return to, of

    def _allocate(self) -> None:
        plain = not any(isinstance(m, DTensor) for m in self.masters)
        if not plain or len({m.device for m in self.masters}) > 1:
            self.views = [torch.empty_like(m) for m in self.masters]
            return
        starts, end = [], 0
        for m in self.masters:
            starts.append(end)
            end += -(-m.numel() // ALIGNED) * ALIGNED
        self.flat = torch.zeros(end, dtype=torch.float32, device=self.masters[0].device)
        # laid out as empty_like would: kernels over several lists want the same strides in all
        strides = [torch.empty_like(m, device="meta").stride() for m in self.masters]
        self.views = [
            self.flat.as_strided(m.shape, stride, s)
            for m, stride, s in zip(self.masters, strides, starts, strict=True)
        ]
