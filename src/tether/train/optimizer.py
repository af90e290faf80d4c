"""AdamW on the fp32 masters of policy and critic; gradients are summed over ranks by hand.

The learning rate is a function of the counters, so there is no scheduler state to save (B19, B25).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tether.config.run import OptimizerSettings
from tether.distributed.total import total, world_size
from tether.train.gradients import GradientSums

GROUPS = ("policy", "critic")


class MasterOptimizer:
    """Holds masters and the working tensors they are published to.

    Where the two are different tensors (bf16 working weights), gradients of every microbatch are
    added to the fp32 master's gradient, so accumulation loses nothing. apart: where they are one
    tensor too, because the next pass writes over the gradient that autograd leaves there, as a
    recorded one does.
    """

    def __init__(
        self,
        groups: dict[str, list[Tensor]],
        working: dict[str, list[Tensor]],
        settings: OptimizerSettings,
        total_steps: int,
        apart: bool = False,
    ) -> None:
        self.settings, self.total_steps = settings, total_steps
        self.groups, self.working = groups, working
        self.sums = {n: GradientSums(ps, working[n], apart) for n, ps in groups.items()}
        self._rest = {
            n: [p for p, w in zip(ps, working[n], strict=True) if p is w and not apart]
            for n, ps in groups.items()
        }
        """Masters that are their own working tensors: autograd sums their gradients."""
        self._moments: dict[str, tuple[list[Tensor], ...]] = {}
        """Of a group: masters, their two moments and numbers of steps, each in one order."""
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

    def add_gradients(self) -> None:
        """Move fresh gradients of working tensors to their fp32 sums, after every microbatch."""
        for sums in self.sums.values():
            sums.gather()

    def gather_gradients(self) -> None:
        """The same, and let the masters have the sums as `.grad`."""
        self.add_gradients()
        for sums in self.sums.values():
            sums.hand_over()

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
        for name in self.groups:
            grads = self._gradients(name)
            if not grads:
                norms[name] = torch.zeros(())
                continue
            parts = grads if _sums_well(grads[0]) else self._gradients(name, each=True)
            each = torch._foreach_norm(parts)  # type: ignore[attr-defined]
            norm = torch.linalg.vector_norm(torch.stack(each))
            limit = self.settings.max_grad_norm
            if limit > 0:
                scale = (limit / (norm + 1e-6)).clamp(max=1.0)
                # what lies between the tensors of a block is 0 and stays 0
                scale = torch.nan_to_num(scale, nan=0.0)
                torch._foreach_mul_(grads, scale)  # type: ignore[attr-defined]
            norms[name] = norm
        return norms

    def _whole(self, name: str) -> bool:
        """Whether every master of a group has a gradient, and the sums are this rank's alone."""
        sums = self.sums[name]
        return (
            world_size() == 1
            and sums.whole == bool(sums.masters)
            and all(p.grad is not None for p in self._rest[name])
        )

    def _gradients(self, name: str, each: bool = False) -> list[Tensor]:
        """Of a group. each: a tensor for every master that has one; else one for all sums."""
        sums = self.sums[name]
        if not self._whole(name):
            return [g for p in self.groups[name] if (g := p.grad) is not None]
        rest = [g for p in self._rest[name] if (g := p.grad) is not None]
        if sums.flat is None:
            return rest
        return [*sums.views, *rest] if each else [sums.flat, *rest]

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
        self.add_gradients()
        known = self._known()
        if not known:
            self.gather_gradients()
            self.sum_over_ranks()
        if not policy:
            self._drop("policy")
        norms = self.clip()
        self.adam.found_inf = None  # type: ignore[attr-defined]
        there = self._on_device(norms)
        here = [n for n in norms.values() if not (there and n.is_cuda)]
        if not all(math.isfinite(float(n)) for n in here):
            self.zero()
            return norms
        if there:
            # AdamW's kernel reads the flag (torch.amp's way to leave a step out)
            bad = ~torch.stack(there).isfinite()
            self.adam.found_inf = bad.any().float()  # type: ignore[attr-defined]
        for group in self.adam.param_groups:
            group["lr"] = lrs[group["name"]] * self.factor(step)
        if known:
            for group in self.adam.param_groups:
                self._adamw(group)
        else:
            self.adam.step()
        self.zero()
        return norms

    def _known(self) -> bool:
        """Whether AdamW's kernel can be called as it is: it is the fused one, every master has its
        gradient, and all have moments. `Optimizer.step` finds its lists anew tensor by tensor,
        which for a small model takes longer than the kernel does."""
        for group in self.adam.param_groups:
            name = group["name"]
            if not (group["fused"] and self._whole(name)):
                return False
            if name in self._moments:
                continue
            order = [*self.sums[name].masters, *self._rest[name]]
            states = [self.adam.state.get(p) for p in order]
            if not all(states) or len({p.device for p in order}) > 1:
                return False  # the first step makes them; a call of the kernel is of one device
            keys = ("exp_avg", "exp_avg_sq", "step")
            self._moments[name] = (order, *([s[k] for s in states if s] for k in keys))
        return True

    @torch.no_grad()
    def _adamw(self, group: dict[str, Any]) -> None:
        """A step of a group, as torch.optim's `_fused_adam` takes it."""
        grads = self._gradients(group["name"], each=True)
        if not grads:
            return
        found_inf = getattr(self.adam, "found_inf", None)
        masters, averages, squares, steps = self._moments[group["name"]]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            masters, grads, averages, squares, [], steps,
            amsgrad=False, lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
            grad_scale=None, found_inf=found_inf,
        )  # fmt: skip
        if found_inf is not None:
            torch._foreach_sub_(steps, [found_inf] * len(steps))

    def _drop(self, name: str) -> None:
        self.sums[name].zero()
        for p in self.groups[name]:
            p.grad = None

    def _on_device(self, norms: dict[str, Tensor]) -> list[Tensor]:
        """Those that one device holds, where all do that are anywhere but in CPU memory."""
        there = [n for n in norms.values() if n.is_cuda]
        alike = all(n.device == there[0].device and not hasattr(n, "to_local") for n in there)
        return there if alike else []

    def zero(self) -> None:
        for name in self.groups:
            self._drop(name)
            for p in self.working[name]:
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
        self._moments.clear()
        for name, ps in self.groups.items():
            for i, moments in state[name].items():
                p = ps[int(i)]
                self.adam.state[p] = {
                    k: v.to(p.device) if k != "step" or p.is_cuda else v.cpu()
                    for k, v in moments.items()
                }


def _sums_well(block: Tensor) -> bool:
    """Whether the norm of a long vector is exact: a CPU adds it up number by number in fp32, which
    is off by .5 % at 60 million."""
    return block.is_cuda
