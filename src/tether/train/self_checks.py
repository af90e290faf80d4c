"""Cheap checks that run by default. Each names the broken invariant, a size and the likely cause."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from tether.distributed.total import total
from tether.train.agent import Agent
from tether.types import Clock, Experience, Remembers


def tolerance(agent: Agent) -> float:
    """Largest difference of two log-probs of one token that is rounding: 1e-4 in fp32; a bf16
    forward with a cache or another batch shape moves a rare token's by much more; the mean tells."""
    dtype = next(agent.lm.module.parameters()).dtype
    return 1e-4 if dtype == torch.float32 else 5.0


def mean_tolerance(agent: Agent) -> float:
    dtype = next(agent.lm.module.parameters()).dtype
    return 1e-5 if dtype == torch.float32 else 0.05


def engine_agrees(agent: Agent, e: Experience) -> None:
    """The engine's log-probs are those of the scoring pass (B06, B08)."""
    if e.rollout.logprobs is None or e.rollout.writer != "policy":
        return
    if agent.sampling.scored == "full":
        return
    mask = e.mask
    if not bool(mask.any()):
        return
    off = torch.where(mask, (e.old.logprobs - e.rollout.logprobs).abs(), 0.0)
    worst, mean = float(off.max()), float(off.sum() / mask.sum())
    agent.measured["engine/logprob_error.max"] = (worst, agent.version)
    agent.measured["engine/logprob_error.mean"] = (mean, agent.version)
    if not math.isfinite(worst) or worst > tolerance(agent) or mean > mean_tolerance(agent):
        b, t = divmod(int(off.argmax()), off.shape[1])
        raise RuntimeError(
            f"engine and scoring disagree on a sampled token's log-prob: mean {mean:.3g}, worst"
            f" {worst:.3g} at sequence {b}, position {t} (token"
            f" {int(e.rollout.sequences.completion[b, t])}); sampling and scoring use different"
            " distributions, so every ratio and KL would be wrong"
        )


def starts_at_home(agent: Agent, e: Experience) -> None:
    """Before the first update the free log-probs equal the initial model's: KL is 0 (B20)."""
    home = e.references.get("initial")
    if agent.version != 0 or home is None:
        return
    mask = e.rollout.sequences.completion_mask
    worst = float(torch.where(mask, (e.old.free_logprobs - home.free_logprobs).abs(), 0.0).max())
    # The same kernels on the same numbers: exact on a CPU; a GPU may sum in another order.
    if worst > (0.0 if mask.device.type == "cpu" else mean_tolerance(agent)):
        raise RuntimeError(
            f"KL to the initial model is not 0 before the first update (a token differs by"
            f" {worst:.3g} nats): the initial weights are not what the policy starts from"
        )


def stays_positive(agent: Agent, e: Experience) -> None:
    """The mean KL over many on-policy tokens may not be negative by > 3 standard errors (B09)."""
    home = e.references.get("initial")
    if home is None or e.rollout.writer != "policy" or e.rollout.allowed is not None:
        return
    if agent.sampling.temperature != 1.0 or agent.version == 0:
        return
    mask = e.rollout.sequences.completion_mask
    per_seq = torch.where(mask, e.old.free_logprobs - home.free_logprobs, 0.0).sum(1)
    n = total(torch.tensor(float(len(per_seq)), device=per_seq.device))
    mean = total(per_seq.sum()) / n
    var = total((per_seq - mean).square().sum()) / (n - 1).clamp(min=1.0)
    if float(n) >= 32 and float(mean) < -3 * float((var / n).sqrt()) - 1e-6:
        first = int((per_seq.argmin()))
        raise RuntimeError(
            f"mean KL to the initial model is {float(mean):.3g} nats per sequence, more than three"
            f" standard errors below 0: the samples do not come from the scored distribution"
            f" (worst sequence {first}); look for a processor, stop rule or adapter that acts in"
            " sampling only"
        )


def first_ratios(agent: Agent, metrics: dict[str, float] | None) -> None:
    """The first minibatch sees the policy that wrote: every ratio is 1 (invariant 1)."""
    if metrics is None or "ratio_error" not in metrics:
        return
    limit = mean_tolerance(agent)
    if not metrics["ratio_error"] <= limit:
        raise RuntimeError(
            f"ratios of the first minibatch differ from 1 by {metrics['ratio_error']:.3g} on"
            f" average (limit {limit:g}): the update does not score as the old policy was scored"
            " (dropout, temperature, mask or weights differ)"
        )


def clocks_kept(agent: Agent, clock: Clock) -> None:
    """At the end: a reset, refresh or sync on a clock happened as often as it should have (7)."""
    for name, t in agent.tethers.items():
        for path, every in t.clocked().items():
            if (why := every.problem(clock)) is not None:
                raise RuntimeError(f"tethers.{name}.{path}: {why}; something skipped its ticks")


def never_fired(agent: Agent) -> list[str]:
    """Triggers on measurements may legally stay silent; the record and report say so."""
    out = []
    for name, t in agent.tethers.items():
        for path, part in triggers(t):
            if getattr(part, "fired", None) == 0:
                out.append(f"tethers.{name}.{path} never fired")
    return out


def triggers(part: Remembers, path: str = "") -> Iterator[tuple[str, Remembers]]:
    for name, inner in part._parts().items():
        here = f"{path}{name.removesuffix('.0')}"
        if hasattr(inner, "fired"):
            yield here, inner
        yield from triggers(inner, f"{here}.")
