"""Cheap checks that run by default. Each names the broken invariant, a size and a likely cause."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tether.config.nearest import unknown
from tether.distributed.total import total
from tether.tethers.base import triggers
from tether.train.agent import Agent
from tether.types import Clock, Experience, Rollout


def unconstrained(agent: Agent) -> bool:
    """The policy samples from its whole vocabulary at temperature 1: KL is along such samples."""
    s = agent.sampling
    return (
        not agent.constraints
        and s.temperature == 1.0
        and s.top_k == 0
        and s.top_p == 1.0
        and s.min_new_tokens == 0
    )


def _precise(agent: Agent) -> bool:
    """fp32 and allowed sets as sampled: one that is found again may lose a token at its edge."""
    dtype = next(agent.lm.module.parameters()).dtype
    return dtype == torch.float32 and not (agent.found_again and agent.found_again.used)


def tolerance(agent: Agent) -> float:
    """Largest difference of two log-probs of one token that is rounding: 1e-4 in fp32; a bf16
    forward with a cache or another batch shape moves a rare token's by much more: the mean
    tells."""
    return 1e-4 if _precise(agent) else 5.0


def mean_tolerance(agent: Agent) -> float:
    return 1e-5 if _precise(agent) else 0.05


def engine_agrees(agent: Agent, rollout: Rollout, scored: Tensor) -> None:
    """The engine's log-probs are those of the scoring pass [B,T] (B06, B08)."""
    if rollout.logprobs is None or rollout.writer != "policy":
        return
    mask = rollout.sequences.completion_mask & rollout.sampled
    if not bool(mask.any()):
        return
    off = torch.where(mask, (scored - rollout.logprobs).abs(), 0.0)
    worst, mean = float(off.max()), float(off.sum() / mask.sum())
    agent.measured["engine/logprob_error.max"] = (worst, agent.version)
    agent.measured["engine/logprob_error.mean"] = (mean, agent.version)
    if math.isfinite(worst) and worst <= tolerance(agent) and mean <= mean_tolerance(agent):
        return
    wrong = mask & ~(off <= min(tolerance(agent), mean_tolerance(agent)))
    b, t = wrong.nonzero()[0].tolist()
    raise RuntimeError(
        f"engine and scoring disagree on a sampled token's log-prob: mean {mean:.3g}, worst"
        f" {worst:.3g} nats, first at sequence {b}, position {t} (token"
        f" {int(rollout.sequences.completion[b, t])}: sampled at"
        f" {float(rollout.logprobs[b, t]):.4g}, scored {float(scored[b, t]):.4g});"
        f" {_cause((rollout.logprobs - scored)[wrong])}: every ratio and KL would be wrong"
    )


def _cause(d: Tensor) -> str:
    """What kind of difference it is: sampled minus scored, where they differ."""
    if bool((d > 0).all()) and len(d) > 1:
        return (
            "every such token was likelier in sampling: it left tokens out (a minimum length that"
            " suppresses EOS, top-k, top-p) and scoring does not know it"
        )
    return (
        "sampling and scoring use different distributions (temperature, weights, dropout, adapter"
        " or padding)"
    )


def starts_at_home(agent: Agent, e: Experience) -> None:
    """Before the first update the free log-probs equal the initial model's: KL is 0 (B20)."""
    home = e.references.get("initial")
    if agent.version != 0 or home is None:
        return
    mask = e.rollout.sequences.completion_mask
    worst = float(torch.where(mask, (e.old.free_logprobs - home.free_logprobs).abs(), 0.0).max())
    # The same kernels on the same numbers. Other addresses, or a GPU, may sum in another order, and
    # then the last bit differs: a wrong reference differs by far more.
    if worst > mean_tolerance(agent):
        raise RuntimeError(
            f"KL to the initial model is not 0 before the first update (a token differs by"
            f" {worst:.3g} nats): the initial weights are not what the policy starts from"
        )


def stays_positive(agent: Agent, e: Experience) -> None:
    """The mean KL over many on-policy tokens may not be negative by > 3 standard errors (B09)."""
    home = e.references.get("initial")
    if home is None or e.rollout.writer != "policy" or not unconstrained(agent):
        return
    if agent.version == 0:
        return
    d = torch.where(e.mask, e.old.free_logprobs - home.free_logprobs, 0.0)
    per_seq = d.sum(1)
    n = total(torch.tensor(float(len(per_seq)), device=per_seq.device))
    mean = total(per_seq.sum()) / n
    var = total((per_seq - mean).square().sum()) / (n - 1).clamp(min=1.0)
    if float(n) >= 32 and float(mean) < -3 * float((var / n).sqrt()) - 1e-6:
        b = int(per_seq.argmin())
        t = int(d[b].argmin())
        raise RuntimeError(
            f"mean KL to the initial model is {float(mean):.3g} nats per sequence, more than three"
            " standard errors below 0: the samples do not come from the scored distribution"
            f" (worst sequence {b}, position {t}, token"
            f" {int(e.rollout.sequences.completion[b, t])}); look for a processor, stop rule"
            " (suppressed EOS) or adapter that acts in sampling only"
        )


def first_ratios(agent: Agent, metrics: Mapping[str, float] | None) -> None:
    """The first minibatch sees the policy that wrote: every ratio is 1 (invariant 1)."""
    if metrics is None or "ratio_error" not in metrics or agent.lm.dropout:
        return  # dropout that was asked for acts in the update alone
    limit = mean_tolerance(agent)
    if not metrics["ratio_error"] <= limit:
        raise RuntimeError(
            f"ratios of the first minibatch differ from 1 by {metrics['ratio_error']:.3g} on"
            f" average (limit {limit:g}): the update does not score as the old policy was scored"
            " (dropout, temperature, mask or weights differ)"
        )


def clocks_kept(agent: Agent, clock: Clock) -> list[str]:
    """At the end: a line for each reset, refresh or sync on a clock that did not happen as often as
    it should have (invariant 7)."""
    return [
        f"tethers.{name}.{path}: {why}"
        for name, t in agent.tethers.items()
        for path, every in t.clocked().items()
        if (why := every.problem(clock)) is not None
    ]


def steps_kept(agent: Agent, clock: Clock) -> list[str]:
    """The learning-rate schedule ended where the run did (B19): steps taken and steps that early
    stops left out make the planned total. A note where fewer were taken, an error where more."""
    planned = agent.optimizer.total_steps
    done = clock.minibatch + agent.not_taken
    if done > planned:
        raise RuntimeError(
            f"{done} optimizer steps where {planned} were planned: the schedule ended too early"
        )
    if clock.minibatch == planned:
        return []
    return [
        f"{clock.minibatch} of {planned} planned optimizer steps taken, {agent.not_taken} left out"
        " by early stops"
    ]


def metrics_exist(agent: Agent, update: int) -> None:
    """After the first update: a trigger whose metric nobody measures would never fire."""
    if update != 0:
        return
    for name, t in agent.tethers.items():
        for path, part in triggers(t):
            metric = getattr(part, "metric", None)
            if isinstance(metric, str) and metric not in agent.measured:
                raise unknown(
                    "metric", metric, list(agent.measured), f"tethers.{name}.{path}.metric"
                )


def never_fired(agent: Agent) -> list[str]:
    """Triggers on measurements may legally stay silent; the record and report say so."""
    out = []
    for name, t in agent.tethers.items():
        for path, part in triggers(t):
            if getattr(part, "fired", None) == 0:
                out.append(f"tethers.{name}.{path} never fired")
    return out
