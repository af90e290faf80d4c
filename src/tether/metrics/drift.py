"""Scores of the policy and of the initial model -> the named drift gauges.

Pure functions of tensors [B,T] with masks; log-probs are the free ones (temperature 1, whole
vocabulary). A name says estimator, direction and unit. A gauge that cannot be computed is absent,
with its reason; it is never NaN (invariant 8).

    exact_nats_per_seq   mean over samples of sum_t KL(policy(.|h_t) || initial(.|h_t))   x-axis
    k1_nats_per_seq      mean over samples of sum_t log policy(y_t|h_t) - log initial(y_t|h_t)
    ..._per_token        the same sums / number of tokens

The first two have the same mean over the policy's samples; the exact one has far less noise
(facts: evaluation protocol, section 1). KL = cross-entropy - entropy, so the perplexity of the
samples under the initial model alone falls when text degenerates: never read it alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tether.core.masking import local, masked_sum
from tether.metrics.perplexity import by_group, mean_of_texts, nll_per_token, pooled
from tether.types import Scores, Total

INITIAL = "initial"


@dataclass
class Gauges:
    """Finite values by name; `absent` says why a name has none."""

    values: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: float | None, reason: str = "nothing to measure") -> None:
        """Keep a finite value; anything else becomes absent with a reason."""
        if value is None:
            self.absent[name] = reason
        elif not math.isfinite(value):
            self.absent[name] = f"the value is {value}"
        else:
            self.values[name] = float(value)

    def __or__(self, other: Gauges) -> Gauges:
        return Gauges(self.values | other.values, self.absent | other.absent)


def per_sequence(per_token: Tensor, mask: Tensor) -> Tensor:
    """[B] sum over real tokens, nats per completion (`drift_nats` of samples.jsonl)."""
    return torch.where(mask, per_token, 0.0).sum(1)


def kl_gauges(
    per_token: Tensor, mask: Tensor, name: str, total: Total = local
) -> dict[str, float | None]:
    """`<name>_nats_per_seq` and `<name>_nats_per_token` of a [B,T] KL; None for an empty mask.
    Sequences without a real token count in the first."""
    nats = float(masked_sum(per_token, mask, total))
    sequences = float(total(torch.tensor(float(len(mask)), device=mask.device)))
    tokens = float(total(mask.sum().float()))
    return {
        f"{name}_nats_per_seq": nats / sequences if sequences else None,
        f"{name}_nats_per_token": nats / tokens if tokens else None,
    }


def own_samples(policy: Scores, initial: Scores, mask: Tensor, total: Total = local) -> Gauges:
    """Drift along the policy's own samples: KL to the initial model (exact and k1, per completion
    and per token), entropy, and the samples' pooled perplexity under the initial model.

    policy, initial: scores of the same tokens, sampled from the policy without constraint at
    temperature 1. mask: [B,T], True = sampled tokens (added context left out).
    """
    out = Gauges()
    exact = policy.exact_kl.get(INITIAL)
    k1 = policy.free_logprobs - initial.free_logprobs
    for estimator, values in (("exact", exact), ("k1", k1)):
        name = f"drift/kl_initial.{estimator}"
        if values is None:
            for unit in ("seq", "token"):
                out.put(f"{name}_nats_per_{unit}", None, "no resident initial model was scored")
            continue
        for key, value in kl_gauges(values, mask, name, total).items():
            out.put(key, value, "no sampled token")
    entropy: Tensor | None = object.__getattribute__(policy, "entropy")
    if entropy is None:
        out.put("policy/entropy_nats_per_token", None, "entropy was not scored")
    else:
        tokens = float(total(mask.sum().float()))
        value = float(masked_sum(entropy, mask, total)) / tokens if tokens else None
        out.put("policy/entropy_nats_per_token", value, "no sampled token")
    out.put(
        "text/perplexity_under_initial",
        pooled(initial.free_logprobs, mask, total),
        "no sampled token, or too large for a double",
    )
    return out


def on_human(
    policy: Scores,
    mask: Tensor,
    labels: Sequence[object] | None = None,
    total: Total = local,
) -> Gauges:
    """The policy on fixed human texts: NLL per token, pooled perplexity (also as the mean of the
    texts' own, under its own name), exact KL to the initial model, and perplexity by label.

    Another quantity than drift along the policy's own samples: prefixes are human here.
    labels: one a text; None = not split. mask: [B,T] predicted tokens (see `whole_texts`).
    """
    out = Gauges()
    nothing = "no human text predicts a token"
    out.put("human/nll.nats_per_token", nll_per_token(policy.free_logprobs, mask, total), nothing)
    out.put("human/perplexity", pooled(policy.free_logprobs, mask, total), nothing)
    out.put(
        "human/perplexity.mean_of_texts", mean_of_texts(policy.free_logprobs, mask, total), nothing
    )
    name = "drift/kl_initial_on_human.exact"
    exact = policy.exact_kl.get(INITIAL)
    if exact is None:
        out.put(f"{name}_nats_per_token", None, "no resident initial model was scored")
    else:
        kl = kl_gauges(exact, mask, name, total)
        out.put(f"{name}_nats_per_token", kl[f"{name}_nats_per_token"], nothing)
    if labels is not None:
        for label, (value, _) in by_group(policy.free_logprobs, mask, labels).items():
            out.put(f"human/perplexity.label_{label}", value)
    return out


def on_domains(scores: Mapping[str, tuple[Scores, Tensor]], total: Total = local) -> Gauges:
    """Pooled perplexity on texts of other domains. scores: domain -> (scores, mask)."""
    out = Gauges()
    for name, (policy, mask) in scores.items():
        value = pooled(policy.free_logprobs, mask, total)
        out.put(f"human/perplexity.domain_{name}", value, "no text predicts a token")
    return out
