"""KL as a loss, with the gradient of KL(policy || reference).

    loss += coef * sum_t w_t KL_t,     grad KL_t = E_pi[ d grad log pi(a_t) ],  d = log pi - log ref

Differentiating a sampled estimator of KL does not give that in general: k1 gives 0 on average and
k3 the gradient of the other divergence, KL(reference || policy). Here

* `k2`: r d² / 2, with r = pi(a) / mu(a) held fixed, mu the distribution that sampled. Its gradient
  is r d grad log pi, whose mean over mu is the right one, also after the policy has moved within
  the update (there r is not 1). k3 weighed by r and differentiated through r as well has this very
  gradient, sample by sample: grad (r k3) = r (k3 + 1 - e^(-d)) grad log pi = r d grad log pi. So
  there is no further estimator to choose from; the record shows r k3, an unbiased reading of KL.
* `exact`: over the whole vocabulary at each step: no variance, and the reference is a second module
  in memory.

Both are per step along the sampled tokens; as in every such loss, the effect of a token on the
states that follow it is left out (the KL in the reward has it). Tokens that sampling could not
reach (top-k, a mask) are seen by `exact` only.

Source: gradients of estimators: arXiv 2506.09477; loss form: DeepSeekMath, arXiv 2402.03300 (GRPO,
with k3); k3 weighed by r: DeepSeek-V3.2, arXiv 2512.02556.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.core.kl import MAX_EXPONENT, kl_k2, kl_k3
from tether.tethers.base import Place
from tether.tethers.penalty import Penalty, Referenced
from tether.types import Depth, LossOutput, Minibatch, Scores

REFUSED = {
    "k1": "its gradient is 0 on average",
    "k3": "its gradient is that of the other divergence, KL(reference || policy)",
}


@dataclass
class KLLoss(Referenced, Penalty):
    """KL(policy || reference) as a loss, its gradient the right one. Source: arXiv 2506.09477."""

    coef: float = 0.04
    """Weight of the mean KL per token, nats (GRPO's beta .04); the start where a controller adapts
    it."""
    estimator: Literal["k2", "exact"] = "k2"
    """k2, weighed so that its gradient is that of KL off-policy too, or exact: over the whole
    vocabulary, which needs the reference as a second module in memory."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"loss"})
    kind: ClassVar[str] = "kl_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coef == 0:
            raise UserError("kl_loss.coef is 0: it would do nothing; drop the tether")
        if self.estimator not in ("k2", "exact"):
            why = REFUSED.get(self.estimator)
            raise UserError(
                f"kl_loss.estimator is k2 or exact, not '{self.estimator}'"
                + (f": as a loss {why}" if why else "")
            )
        if self.reference == "policy":
            raise UserError("kl_loss.reference is the policy itself: its KL is always 0")

    def reads(self) -> Mapping[str, Depth]:
        return {self.home: "distribution" if self.estimator == "exact" else "tokens"}

    def needs_samples(self) -> bool:
        return self.estimator != "exact"

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        mask, weights = minibatch.targets.mask, minibatch.weights
        if self.estimator == "exact":
            kl = torch.where(mask, fresh.exact_kl[self.home], 0.0)
            mean = (weights * kl).sum()
            return LossOutput(
                self.now * mean, {f"kl_{self.home}.exact_nats_per_token": mean.detach()}
            )
        reference = minibatch.experience.references[self.home].free_logprobs
        d = torch.where(mask, fresh.free_logprobs - reference, 0.0)
        r = torch.where(mask, fresh.free_logprobs.detach() - _sampled(minibatch), 0.0)
        r = r.clamp(max=MAX_EXPONENT).exp()
        loss = self.now * (weights * r * kl_k2(d)).sum()
        value = (weights * r * kl_k3(d.detach())).sum()
        return LossOutput(loss, {f"kl_{self.home}.k3_nats_per_token": value})


def _sampled(minibatch: Minibatch) -> Tensor:
    """[B,T] log-probs of the tokens under whoever wrote them. The policy's own are those of the
    scoring pass, which rounds like `fresh`."""
    rollout = minibatch.experience.rollout
    if rollout.writer == "policy":
        return minibatch.experience.old.logprobs
    if rollout.logprobs is None:
        raise UserError("kl_loss.estimator k2 needs sampled completions; take exact for others")
    return rollout.logprobs
