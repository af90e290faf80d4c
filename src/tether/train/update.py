"""The learner: what an algorithm may do with the policy. Microbatches, denominators, gradients,
optimizer steps, ticks. Box numbers 7 to 9 of the loop."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.core.kl import kl_exact
from tether.core.masking import token_weights, weighted_sum
from tether.core.weights import local
from tether.distributed.seeds import generator
from tether.distributed.total import total
from tether.models.scoring import log_distribution, score, scored_as
from tether.tethers.base import Tether
from tether.train.agent import Agent
from tether.train.own_texts import fitted
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


class Later(Mapping[str, float]):
    """Numbers that are fetched from the device when somebody reads one."""

    def __init__(self, fetch: Callable[[], dict[str, float]]) -> None:
        self._fetch = fetch

    @cached_property
    def _found(self) -> dict[str, float]:
        found = self._fetch()
        self._fetch = lambda: found  # and not what it needed any longer
        return found

    def __getitem__(self, key: str) -> float:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


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
        self.first: Mapping[str, float] | None = None
        """Metrics of the first minibatch, before any step: its ratios must be 1."""
        self._log: dict[str, float] = {}
        self._noted: deque[Callable[[], object]] = deque()
        """What waits until somebody reads the log: most of it is on its way on the device."""
        self._sums: dict[str, float] = {}
        self._taken = 0

    @property
    def log(self) -> dict[str, float]:
        """Numbers of the update so far. Waits for the device.

        Raises UserError: a gradient was not finite.
        """
        while self._noted:
            self._noted[0]()  # one that raises stays, and raises again
            self._noted.popleft()
        return self._log

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
    ) -> Mapping[str, float]:
        agent, use = self.agent, loss or self.algorithm.loss
        sums: dict[str, Tensor] = {}

        def add(out: LossOutput) -> None:
            if gradient and out.loss.requires_grad:
                out.loss.backward()
                agent.optimizer.add_gradients()
            for k, v in (("loss", out.loss), *out.metrics.items()):
                v = v.detach().float()
                sums[k] = sums[k] + v if k in sums else v

        holders = agent.tethers if tethers else {}
        critic = nullcontext() if agent.critic is None else agent.critic.updating()
        with agent.lm.updating(), critic, nullcontext() if gradient else torch.no_grad():
            for micro in self._microbatches(minibatch):
                fresh = self._fresh(micro, exact=tethers)
                outs = [use(micro, fresh)]
                outs += [
                    _named(name, o)
                    for name, t in holders.items()
                    if (o := t.loss(micro, fresh)) is not None
                ]
                add(_sum(outs))
                del fresh, outs  # no graph outlives its microbatch
            for name, t in holders.items():
                if (text := t.own_text(self._clock(), agent.draws.get(name))) is not None:
                    self._own_text(name, t, text, add)
        names = sorted(sums)
        values = total(torch.stack([sums[k] for k in names])) if names else torch.zeros(0)
        metrics = Later(lambda: self._summaries(dict(zip(names, values.tolist(), strict=True))))
        if gradient:
            self.first = metrics if self.first is None else self.first
            own = loss is None  # a loss of another kind has its own name
            self._noted.append(lambda: self._note(metrics, () if own else ("loss",)))
        return metrics

    def _fresh(self, micro: Minibatch, *, exact: bool) -> Scores:
        agent, rollout = self.agent, micro.experience.rollout
        critic = agent.critic if self.algorithm.needs_values else None
        with agent.lm.recording(), nullcontext() if critic is None else critic.recording():
            return score(
                agent.lm,
                rollout.sequences,
                **scored_as(agent.sampling, rollout),
                critic=critic,
                entropy=self.algorithm.needs_entropy,
                against={k: agent.sets.residents[k] for k in agent.exact} if exact else {},
            )

    def _own_text(
        self, name: str, tether: Tether, text: OwnText, add: Callable[[LossOutput], None]
    ) -> None:
        agent, text = self.agent, fitted(self.agent.lm, text)
        mask = text.sequences.completion_mask if text.mask is None else text.mask
        weights = token_weights(mask, "tokens", total)
        for index in torch.arange(len(weights)).split(agent.microbatch):
            rows = text.rows(index)
            fresh = score(agent.lm, rows.sequences, **scored_as(agent.sampling, rows))
            add(_named(name, tether.own_loss(rows, weights[index], fresh)))

    def _summaries(self, metrics: dict[str, float]) -> dict[str, float]:
        """Each tether has the last word on the metrics of its losses."""
        for name, t in self.agent.tethers.items():
            here = f"tether/{name}/"
            sums = {k.removeprefix(here): v for k, v in metrics.items() if k.startswith(here)}
            if sums:
                metrics = {k: v for k, v in metrics.items() if not k.startswith(here)}
                metrics |= {f"{here}{k}": v for k, v in t.summary(sums).items()}
        return metrics

    # ---- steps
    def discard(self) -> None:
        """Also counts what the early stop leaves out: this step and all that would follow."""
        self.agent.optimizer.zero()
        planned = self.algorithm.epochs * self.algorithm.minibatches
        left = max(1, planned - self._taken)
        self._log["update/steps_not_taken"] = float(left)
        self.agent.not_taken += left

    def step(self, *, policy: bool = True) -> None:
        agent = self.agent
        agent.sets.settle()  # an average on its way still reads the masters
        lrs = {"policy": self.algorithm.lr, "critic": agent.critic_lr or self.algorithm.lr}
        norms = agent.optimizer.step(lrs, self._clock().minibatch, policy=policy)
        clock = self._clock()

        def told() -> None:
            found = {k: float(v) for k, v in norms.items()}
            self._finite(found, clock)
            self._note({f"grad_norm_{k}": v for k, v in found.items() if policy or k != "policy"})

        self._noted.append(told)
        if not any(n.is_cuda for n in norms.values()):
            _ = self.log  # nothing to wait for: refused before the next step
        agent.sets.publish("policy")
        agent.sets.publish("critic")
        if policy:
            self._taken += 1
            self._tick("minibatch")

    def _finite(self, norms: Mapping[str, float], clock: Clock) -> None:
        """A step along such a gradient would leave weights that are NaN for good, and is not taken.
        The run stops with this update, at the latest when its log is read; what was written stands,
        and counts in a study (evaluation protocol, section 4)."""
        for name, norm in norms.items():
            if not math.isfinite(norm):
                raise UserError(
                    f"update {clock.update + 1}: the gradient of the {name} is {norm}, so"
                    " the run has diverged; lower algorithm.lr, scale the rewards down, or set"
                    " model.dtype to float32"
                )

    def stepped(self) -> None:
        self._taken += 1
        self.agent.sets.publish("policy")
        self._tick("minibatch")

    def epoch_done(self) -> None:
        self._tick("epoch")

    def note(self, metrics: Mapping[str, float]) -> None:
        """Mean over the calls of an update, logged as update/NAME."""
        found = dict(metrics)
        self._noted.append(lambda: self._note(found))

    def _note(self, metrics: Mapping[str, float], without: Iterable[str] = ()) -> None:
        for k, v in metrics.items():
            if k in without:
                continue
            key = k if "/" in k else f"update/{k}"
            n, mean = self._sums.get(f"n {key}", 0.0) + 1.0, self._sums.get(key, 0.0)
            self._sums[f"n {key}"], self._sums[key] = n, mean + (v - mean) / n
            self._log[key] = self._sums[key]

    # ---- what second-order methods need; vectors are lists of local tensors
    def gradient(self) -> list[Tensor]:
        """Takes the gradient of the policy's masters, summed over ranks, and leaves none behind."""
        self.agent.optimizer.gather_gradients()
        self.agent.optimizer.sum_over_ranks()
        # copies: the optimizer sums the next gradients in the same memory
        out = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.parameters]
        self.agent.optimizer.zero()
        self._finite({"policy": math.sqrt(self.dot(out, out))}, self._clock())
        return out

    def dot(self, a: Iterable[Tensor], b: Iterable[Tensor]) -> float:
        return float(sum((local(x) * local(y)).sum() for x, y in zip(a, b, strict=True)))

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def restore(self, weights: list[Tensor]) -> None:
        for p, x in zip(self.parameters, weights, strict=True):
            p.copy_(x)
        self.agent.sets.publish("policy")

    @torch.no_grad()
    def shift(self, direction: list[Tensor], by: float) -> None:
        for p, x in zip(self.parameters, direction, strict=True):
            p.add_(x, alpha=by)
        self.agent.sets.publish("policy")

    def _microbatches(self, minibatch: Minibatch) -> Iterator[Minibatch]:
        n = len(minibatch.weights)
        if n <= self.agent.microbatch:
            yield minibatch
            return
        for index in torch.arange(n).split(self.agent.microbatch):
            yield minibatch.rows(index)

    def _log_distribution(self, mb: Minibatch) -> Tensor:
        """[B,T,V] in eval mode: dropout has no part in a KL of two policies."""
        rollout = mb.experience.rollout
        return log_distribution(
            self.agent.lm, rollout.sequences, **scored_as(self.agent.sampling, rollout)
        )

    @torch.no_grad()
    def kl_from(self, old: list[Tensor], minibatch: Minibatch) -> float:
        """The old distributions are computed again from the old weights, microbatch by microbatch:
        kept, they would be tokens x vocabulary numbers."""
        now, kl = self.weights(), torch.zeros((), device=minibatch.weights.device)
        for micro in self._microbatches(minibatch):
            self.restore(old)
            before = self._log_distribution(micro)
            self.restore(now)
            kl += weighted_sum(micro.weights, kl_exact(before, self._log_distribution(micro)))
        return float(total(kl))

    def fisher(self, minibatch: Minibatch, vector: list[Tensor]) -> list[Tensor]:
        """Hessian of KL(old || new) at old, times `vector`, added over microbatches."""
        working = list(self.agent.sets.working["policy"].values())
        out = [torch.zeros_like(v) for v in vector]
        for micro in self._microbatches(minibatch):
            # Fused attention has no second derivative.
            with sdpa_kernel(SDPBackend.MATH), self.agent.lm.plain():
                logp = self._log_distribution(micro)
                kl = weighted_sum(micro.weights, kl_exact(logp.detach(), logp))
                first = torch.autograd.grad(kl, working, create_graph=True, allow_unused=True)
                pairs = zip(first, vector, strict=True)
                inner = torch.stack([(x.float() * v).sum() for x, v in pairs if x is not None])
                second = torch.autograd.grad(inner.sum(), working, allow_unused=True)
            for o, x in zip(out, second, strict=True):
                if x is not None:
                    o += x
        return [total(o) for o in out]


def _named(tether: str, out: LossOutput) -> LossOutput:
    """Its metrics under the tether's name: two of one class have the same keys."""
    return LossOutput(out.loss, {f"tether/{tether}/{k}": v for k, v in out.metrics.items()})


def _sum(outs: list[LossOutput]) -> LossOutput:
    loss = outs[0].loss
    for o in outs[1:]:
        loss = loss + o.loss
    return LossOutput(loss, {k: v for o in outs for k, v in o.metrics.items()})
