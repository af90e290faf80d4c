"""The learner: what an algorithm may do with the policy. Microbatches, denominators, gradients,
optimizer steps, ticks. Box numbers 7 to 9 of the loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.core.kl import kl_exact
from tether.core.masking import token_weights
from tether.core.weights import local
from tether.distributed.seeds import generator
from tether.distributed.total import total
from tether.models.scoring import log_distribution, score, scored_as
from tether.tethers.base import Tether
from tether.train.agent import Agent
from tether.types import (
    Clock,
    Experience,
    LossOutput,
    Minibatch,
    OwnText,
    Scores,
    Targets,
    Unit,
)


class PolicyLearner:
    """One per agent and update; implements `types.Learner`."""

    def __init__(
        self,
        agent: Agent,
        algorithm: Algorithm,
        tick: Callable[[Unit], object],
        clock: Callable[[], Clock],
        seed: int,
    ) -> None:
        self.agent, self.algorithm, self._tick, self._clock = agent, algorithm, tick, clock
        self._key = (seed, agent.name, clock().update)
        self.log: dict[str, float] = {}
        self.first: dict[str, float] | None = None
        """Metrics of the first minibatch, before any step: its ratios must be 1."""
        self._sums: dict[str, float] = {}
        self._taken = 0

    @property
    def parameters(self) -> list[Tensor]:
        return list(self.agent.sets.sets["policy"].values())

    # ---- minibatches
    def _weighted(self, e: Experience, t: Targets) -> Minibatch:
        weights = token_weights(t.mask, self.algorithm.average, total)
        return self.algorithm.prepare(Minibatch(e, t, weights), total)

    def whole(self, experience: Experience, targets: Targets) -> Minibatch:
        return self._weighted(experience, targets)

    def minibatches(
        self, count: int, experience: Experience, targets: Targets, epoch: int
    ) -> Iterator[Minibatch]:
        order = torch.randperm(
            len(experience.score), generator=generator(*self._key, "shuffle", epoch)
        )
        for index in order.tensor_split(count):
            yield self._weighted(experience.rows(index), targets.rows(index))

    def accumulate(
        self,
        minibatch: Minibatch,
        loss: Callable[[Minibatch, Scores], LossOutput] | None = None,
        *,
        tethers: bool = True,
        gradient: bool = True,
    ) -> dict[str, float]:
        agent, use = self.agent, loss or self.algorithm.loss
        sums: dict[str, Tensor] = {}

        def add(out: LossOutput) -> None:
            if gradient and out.loss.requires_grad:
                out.loss.backward()
                agent.optimizer.gather_gradients()
            for k, v in (("loss", out.loss), *out.metrics.items()):
                v = v.detach().float()
                sums[k] = sums[k] + v if k in sums else v

        holders = list(agent.tethers.values()) if tethers else []
        critic = nullcontext() if agent.critic is None else agent.critic.updating()
        with agent.lm.updating(), critic, nullcontext() if gradient else torch.no_grad():
            for index in torch.arange(len(minibatch.weights)).split(agent.microbatch):
                micro = minibatch.rows(index)
                fresh = self._fresh(micro, exact=tethers)
                outs = [use(micro, fresh)]
                outs += [o for t in holders if (o := t.loss(micro, fresh)) is not None]
                add(_sum(outs))
            for name, t in agent.tethers.items() if tethers else ():
                if (text := t.own_text(self._clock(), agent.draws.get(name))) is not None:
                    self._own_text(t, text, add)
        names = sorted(sums)
        values = total(torch.stack([sums[k] for k in names])).tolist() if names else []
        metrics = dict(zip(names, values, strict=True))
        if gradient:
            self.first = metrics if self.first is None else self.first
            self.note(metrics)
        return metrics

    def _fresh(self, micro: Minibatch, *, exact: bool) -> Scores:
        agent, rollout = self.agent, micro.experience.rollout
        return score(
            agent.lm,
            rollout.sequences,
            **scored_as(agent.sampling, rollout),
            critic=agent.critic if self.algorithm.needs_values else None,
            entropy=self.algorithm.needs_entropy,
            against={k: agent.sets.residents[k] for k in agent.exact} if exact else {},
        )

    def _own_text(self, tether: Tether, text: OwnText, add: Callable[[LossOutput], None]) -> None:
        text = text.to(self.agent.lm.device)
        weights = token_weights(text.sequences.completion_mask, "tokens", total)
        temperature = self.agent.sampling.temperature
        for index in torch.arange(len(weights)).split(self.agent.microbatch):
            rows = text.rows(index)
            fresh = score(
                self.agent.lm, rows.sequences, temperature=temperature, allowed=rows.allowed
            )
            add(tether.own_loss(rows, weights[index], fresh))

    # ---- steps
    def discard(self) -> None:
        """Also counts what the early stop leaves out: this step and all that would follow."""
        self.agent.optimizer.zero()
        planned = self.algorithm.epochs * self.algorithm.minibatches
        left = max(1, planned - self._taken)
        self.log["update/steps_not_taken"] = float(left)
        self.agent.not_taken += left

    def step(self, *, policy: bool = True) -> None:
        agent = self.agent
        lrs = {"policy": self.algorithm.lr, "critic": agent.critic_lr or self.algorithm.lr}
        norms = agent.optimizer.step(lrs, self._clock().minibatch, policy=policy)
        for name, norm in norms.items():
            self.note({f"grad_norm_{name}": norm})
        self._finite(norms)
        agent.sets.publish("policy")
        agent.sets.publish("critic")
        if policy:
            self._taken += 1
            self._tick("minibatch")

    def _finite(self, norms: dict[str, float]) -> None:
        """A step along such a gradient would leave weights that are NaN for good. The run stops
        here; what was written stands, and counts in a study (evaluation protocol, section 4)."""
        for name, norm in norms.items():
            if not math.isfinite(norm):
                raise UserError(
                    f"update {self._clock().update + 1}: the gradient of the {name} is {norm}, so"
                    " the run has diverged; lower algorithm.lr, scale the rewards down, or set"
                    " model.dtype to float32"
                )

    def stepped(self) -> None:
        self._taken += 1
        self.agent.sets.publish("policy")
        self._tick("minibatch")

    def epoch_done(self) -> None:
        self._tick("epoch")

    def note(self, metrics: dict[str, float]) -> None:
        """Mean over the calls of an update, logged as update/NAME."""
        for k, v in metrics.items():
            key = k if "/" in k else f"update/{k}"
            n, mean = self._sums.get(f"n {key}", 0.0) + 1.0, self._sums.get(key, 0.0)
            self._sums[f"n {key}"], self._sums[key] = n, mean + (v - mean) / n
            self.log[key] = self._sums[key]

    # ---- what second-order methods need; vectors are lists of local tensors
    def gradient(self) -> list[Tensor]:
        self.agent.optimizer.gather_gradients()
        self.agent.optimizer.sum_over_ranks()
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.parameters]

    def dot(self, a: Iterable[Tensor], b: Iterable[Tensor]) -> float:
        return float(sum((local(x) * local(y)).sum() for x, y in zip(a, b, strict=True)))

    @torch.no_grad()
    def shift(self, direction: list[Tensor], by: float) -> None:
        for p, x in zip(self.parameters, direction, strict=True):
            p.add_(x, alpha=by)
        self.agent.sets.publish("policy")

    def _log_distribution(self, mb: Minibatch) -> Tensor:
        rollout = mb.experience.rollout
        return log_distribution(
            self.agent.lm, rollout.sequences, **scored_as(self.agent.sampling, rollout)
        )

    @torch.no_grad()
    def distributions(self, minibatch: Minibatch) -> Tensor:
        return self._log_distribution(minibatch)

    @torch.no_grad()
    def kl_from(self, old: Tensor, minibatch: Minibatch) -> float:
        per_token = kl_exact(old, self._log_distribution(minibatch))
        return float(total((minibatch.weights * per_token).sum()))

    def fisher(self, minibatch: Minibatch, vector: list[Tensor]) -> list[Tensor]:
        """Fisher-vector product: Hessian of KL(old || new) at old, times `vector`."""
        working = list(self.agent.sets.working["policy"].values())
        # Fused attention has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            logp = self._log_distribution(minibatch)
            kl = (minibatch.weights * kl_exact(logp.detach(), logp)).sum()
            first = torch.autograd.grad(kl, working, create_graph=True, allow_unused=True)
            inner = torch.stack(
                [(x * v).sum() for x, v in zip(first, vector, strict=True) if x is not None]
            ).sum()
            second = torch.autograd.grad(inner, working, allow_unused=True)
        return [
            torch.zeros_like(v) if x is None else total(x.float())
            for x, v in zip(second, vector, strict=True)
        ]


def _sum(outs: list[LossOutput]) -> LossOutput:
    loss = outs[0].loss
    for o in outs[1:]:
        loss = loss + o.loss
    return LossOutput(loss, {k: v for o in outs for k, v in o.metrics.items()})
