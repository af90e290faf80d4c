"""AdamW on the fp32 masters of policy and critic; gradients are summed over ranks by hand.

The learning rate is a function of the counters, so there is no scheduler state to save (B19, B25).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tether.config.run import OptimizerSettings
from tether.core.weights import local
from tether.distributed.total import total, world_size

GROUPS = ("policy", "critic")
AT_ONCE = 64
"""Tensors in one launch where a launch needs memory."""


class MasterOptimizer:
    """Holds masters and the working tensors they are published to.

    Where the two are different tensors (bf16 working weights), gradients of every microbatch are
    added to the fp32 master's gradient, so accumulation loses nothing.
    """

    def __init__(
        self,
        groups: dict[str, list[Tensor]],
        working: dict[str, list[Tensor]],
        settings: OptimizerSettings,
        total_steps: int,
    ) -> None:
        self.settings, self.total_steps = settings, total_steps
        self.groups, self.working = groups, working
        self._low: list[tuple[Tensor, Tensor, Tensor]] | None = None
        """Masters apart from their working tensors, and where their gradients are summed."""
        on_gpu = any(p.is_cuda for ps in groups.values() for p in ps)
        self.adam = torch.optim.AdamW(
            [{"params": ps, "name": name} for name, ps in groups.items()],
            lr=0.0,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            fused=on_gpu or None,
            foreach=None if on_gpu else True,
        )

    def gather_gradients(self) -> None:
        """Move fresh gradients of the working tensors into the masters' fp32 gradients."""
        if self._low is None:
            self._low = [
                (master, work, torch.empty_like(master))
                for name, masters in self.groups.items()
                for master, work in zip(masters, self.working[name], strict=True)
                if work is not master
            ]
        started: tuple[list[Tensor], list[Tensor]] = ([], [])
        added: tuple[list[Tensor], list[Tensor]] = ([], [])
        for master, work, kept in self._low:
            fresh = work.grad
            if fresh is None:
                continue
            work.grad = None
            to, of = started if master.grad is None else added
            master.grad = kept
            to.append(kept)
            of.append(fresh)
        # A model has hundreds of tensors: all at once, where one by one costs a launch each.
        if started[0]:
            torch._foreach_copy_(*_local(*started))
        if added[0]:
            to, of = _local(*added)
            for i in range(0, len(to), AT_ONCE):  # fp32 copies of a few, not of a whole model
                wide = [torch.empty_like(g) for g in to[i : i + AT_ONCE]]
                torch._foreach_copy_(wide, of[i : i + AT_ONCE])
                torch._foreach_add_(to[i : i + AT_ONCE], wide)

    def sum_over_ranks(self) -> None:
        if world_size() == 1:
            return
        for masters in self.groups.values():
            for p in masters:
                # Every rank must enter the collective, with or without a gradient (B18).
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                p.grad = total(grad)

    def clip(self) -> dict[str, Tensor]:
        """Gradient norm by group, clipped apart: the critic's size must not scale the policy."""
        norms = {}
        for name, masters in self.groups.items():
            grads = [p.grad for p in masters if p.grad is not None]
            if not grads:
                norms[name] = torch.zeros(())
                continue
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))  # type: ignore[attr-defined]
            limit = self.settings.max_grad_norm
            if limit > 0:
                scale = (limit / (norm + 1e-6)).clamp(max=1.0)
                torch._foreach_mul_(grads, scale)  # type: ignore[attr-defined]
            norms[name] = norm
        return norms

    def factor(self, step: int) -> float:
        """Schedule factor of optimizer step number `step` (0-based)."""
        s = self.settings
        warm = min(1.0, (step + 1) / s.warmup_steps) if s.warmup_steps else 1.0
        if s.schedule == "constant":
            return warm
        return warm * max(0.0, 1.0 - step / max(self.total_steps, 1))

    def step(self, lrs: dict[str, float], step: int, *, policy: bool = True) -> dict[str, Tensor]:
        """One AdamW step at `lrs` (by group) times the schedule; returns the gradient norms. Where
        one is not finite no step is taken. On a GPU that is found there, and nobody waits."""
        self.gather_gradients()
        self.sum_over_ranks()
        if not policy:
            for p in self.groups["policy"]:
                p.grad = None
        norms = self.clip()
        self.adam.found_inf = None  # type: ignore[attr-defined]
        if there := self._on_device(norms):
            # AdamW's kernel reads the flag (torch.amp's way to leave a step out)
            bad = ~torch.stack(there).isfinite()
            self.adam.found_inf = bad.any().float()  # type: ignore[attr-defined]
        elif not all(math.isfinite(float(n)) for n in norms.values()):
            self.zero()
            return norms
        for group in self.adam.param_groups:
            group["lr"] = lrs[group["name"]] * self.factor(step)
        self.adam.step()
        self.zero()
        return norms

    def _on_device(self, norms: dict[str, Tensor]) -> list[Tensor]:
        """Those that one device holds, where all do that are anywhere but in CPU memory."""
        there = [n for n in norms.values() if n.is_cuda]
        alike = all(n.device == there[0].device and not hasattr(n, "to_local") for n in there)
        return there if alike else []

    def zero(self) -> None:
        for name, masters in self.groups.items():
            for p in (*masters, *self.working[name]):
                p.grad = None

    def clear(self, name: str) -> None:
        """Forget a group's moments, in place: captured graphs keep their addresses."""
        for p in self.groups.get(name, ()):
            for value in self.adam.state.get(p, {}).values():
                if isinstance(value, Tensor):
                    value.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Moments by group and position; hyper-parameters come from the settings."""
        return {
            name: {i: dict(self.adam.state[p]) for i, p in enumerate(ps) if self.adam.state.get(p)}
            for name, ps in self.groups.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if set(state) != set(self.groups):
            raise ValueError(f"optimizer groups differ: {sorted(state)} and {sorted(self.groups)}")
        for name, ps in self.groups.items():
            for i, moments in state[name].items():
                p = ps[int(i)]
                self.adam.state[p] = {
                    k: v.to(p.device) if k != "step" or p.is_cuda else v.cpu()
                    for k, v in moments.items()
                }


def _local(to: list[Tensor], of: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    if not hasattr(to[0], "to_local"):
        return to, of
    return [local(t) for t in to], [local(t) for t in of]
