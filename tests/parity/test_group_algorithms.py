"""GRPO and RLOO against the lines of TRL 1.16's trainers (`grpo_trainer.py`, `rloo_trainer.py`),
written for rewards in rows of one prompt each, NaN = a completion that nobody could score; and
against numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.contracts.examples import experience, minibatch, scores
from tether.algorithms.grpo import GRPO
from tether.algorithms.rloo import RLOO
from tether.core.masking import at_last, local
from tether.types import Experience, Minibatch

LENGTHS = (4, 1, 3, 5, 2, 5)
MASK = torch.arange(5)[None] < torch.tensor(LENGTHS)[:, None]
GROUP = torch.tensor([7, 7, 7, 2, 2, 2])
REWARDS = torch.tensor([1.0, 2.0, 6.0, 0.5, -1.0, 0.75])
NAN = float("nan")


def made(rewards: Tensor = REWARDS, seed: int = 0) -> Experience:
    """Six completions of two prompts; NaN = dropped, as the house drops."""
    e = experience(MASK, seed)
    scored = ~rewards.isnan()
    rollout = replace(
        e.rollout, group=GROUP, finished=torch.ones(6, dtype=torch.bool),
        sampled=MASK & scored[:, None],
    )  # fmt: skip
    rewards = at_last(rewards.nan_to_num(), MASK & scored[:, None])
    return replace(e, rollout=rollout, rewards=rewards)


def nanstd(x: Tensor, dim: int | None = None) -> Tensor:
    """TRL's `nanstd`: the sample deviation (n - 1) of what is not NaN."""
    mean = torch.nanmean(x, dim=dim, keepdim=True) if dim is not None else torch.nanmean(x)
    n = (~x.isnan()).sum(dim=dim) if dim is not None else (~x.isnan()).sum()
    squares = (x - mean).square()
    total = squares.nansum(dim=dim) if dim is not None else squares.nansum()
    return (total / (n - 1)).sqrt()


def trl_grpo(rewards: Tensor, scale: str, g: int = 3) -> Tensor:
    """`scale_rewards` = group, batch or none."""
    mean = torch.nanmean(rewards.view(-1, g), dim=1).repeat_interleave(g)
    advantages = rewards - mean
    if scale == "group":
        std = nanstd(rewards.view(-1, g), dim=1).repeat_interleave(g)
        advantages = advantages / (std + 1e-4)
    if scale == "batch":
        advantages = advantages / (nanstd(rewards) + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0)


def trl_rloo(rewards: Tensor, g: int = 3) -> Tensor:
    grouped = rewards.view(-1, g)
    counts = (~grouped.isnan()).sum(dim=1, keepdim=True)
    baselines = (torch.nansum(grouped, dim=1, keepdim=True) - grouped) / (counts - 1)
    return torch.nan_to_num(rewards - baselines.view(-1), nan=0.0)


def of_rows(advantages: Tensor, mask: Tensor) -> Tensor:
    """[B,T] that is constant along each row -> [B]."""
    first = advantages[:, 0]
    assert torch.equal(torch.where(mask, first[:, None], 0.0), advantages)
    return first


CASES = pytest.mark.parametrize(
    "rewards",
    [REWARDS, torch.tensor([1.0, NAN, 6.0, 0.5, -1.0, 0.75]), torch.tensor([3.0] * 3 + [1, 2, 4])],
    ids=["all", "one dropped", "a flat group"],
)


@CASES
@pytest.mark.parametrize(("scale", "theirs"), [("std", "group"), ("batch",) * 2, ("none",) * 2])
def test_grpo_advantages_are_trls(rewards: Tensor, scale: str, theirs: str) -> None:
    e = made(rewards)
    found = GRPO(scale=scale).advantages(e, local)  # type: ignore[arg-type]
    expected = trl_grpo(rewards, theirs)
    assert of_rows(found.advantages, e.mask).tolist() == pytest.approx(expected.tolist(), abs=1e-5)


@CASES
def test_rloo_advantages_are_trls(rewards: Tensor) -> None:
    e = made(rewards)
    found = of_rows(RLOO().advantages(e, local).advantages, e.mask)
    assert found.tolist() == pytest.approx(trl_rloo(rewards).tolist(), abs=1e-5)


def test_advantages_by_hand() -> None:
    """Rewards 1, 2, 6: mean 3, deviation sqrt 7; each against the mean of the two others."""
    e = made()
    found = of_rows(GRPO().advantages(e, local).advantages, e.mask)[:3]
    assert found.tolist() == pytest.approx([-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5], abs=1e-3)
    found = of_rows(GRPO(scale="none").advantages(e, local).advantages, e.mask)[:3]
    assert found.tolist() == pytest.approx([-2, -1, 3])
    found = of_rows(RLOO().advantages(e, local).advantages, e.mask)[:3]
    assert found.tolist() == pytest.approx([1 - 4, 2 - 3.5, 6 - 1.5])


def test_one_completion_left_of_a_prompt_gives_nothing() -> None:
    e = made(torch.tensor([NAN, NAN, 6.0, 0.5, -1.0, 0.75]))
    for algorithm in (GRPO(), GRPO(scale="none"), RLOO()):
        found = algorithm.advantages(e, local)
        assert not found.advantages[:3].any() and found.advantages[3:].any()
        assert algorithm.groups == {"update/groups": 2.0, "update/groups_flat": 1.0}


def test_what_tethers_added_is_in_the_comparison() -> None:
    """The shaped reward of the whole completion: score and a cost on every token."""
    e = made()
    cost = torch.where(MASK, -0.1, 0.0)
    found = of_rows(RLOO().advantages(replace(e, rewards=e.rewards + cost), local).advantages, MASK)
    expected = trl_rloo(REWARDS - 0.1 * torch.tensor(LENGTHS))
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def trl_loss(
    mb: Minibatch,
    logprobs: Tensor,
    loss_type: str,
    level: str = "token",
    low: float = 0.2,
    high: float = 0.2,
    max_completion_length: int = 5,
) -> Tensor:
    """`GRPOTrainer._compute_loss` without KL, entropy and parallelism."""
    mask, advantages = mb.targets.mask.float(), mb.targets.advantages[:, :1]
    log_ratio = torch.where(mb.targets.mask, logprobs - mb.experience.old.logprobs, 0.0)
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    coef_1 = torch.exp(log_ratio)
    coef_2 = torch.clamp(coef_1, 1 - low, 1 + high)
    loss = -torch.min(coef_1 * advantages, coef_2 * advantages)
    if loss_type == "grpo":
        return ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    if loss_type == "bnpo":
        return (loss * mask).sum() / mask.sum().clamp(min=1.0)
    assert loss_type == "dr_grpo"
    return (loss * mask).sum() / (loss.size(0) * max_completion_length)


LOSSES = {
    "grpo": (GRPO(), {"loss_type": "grpo"}),
    "all tokens, higher clip": (
        GRPO(average="tokens", clip_range_high=0.28), {"loss_type": "bnpo", "high": 0.28},
    ),
    "dr_grpo": (GRPO(scale="none", constant_length=5), {"loss_type": "dr_grpo"}),
    "gspo": (
        GRPO(ratio="sequence", clip_range=0.03, clip_range_high=0.04),
        {"loss_type": "grpo", "level": "sequence", "low": 0.03, "high": 0.04},
    ),
    "gspo, all tokens": (
        GRPO(ratio="sequence", average="tokens"), {"loss_type": "bnpo", "level": "sequence"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_grpo_loss_and_gradient_are_trls(name: str) -> None:
    algorithm, options = LOSSES[name]
    e, fresh = made(), scores(33, MASK, grad=True)
    mb = minibatch(e, algorithm.advantages(e, local), algorithm.average)
    out = algorithm.loss(mb, fresh)
    expected = trl_loss(mb, fresh.logprobs, **options)  # type: ignore[arg-type]
    assert float(out.loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)
    (mine,) = torch.autograd.grad(out.loss, fresh.logprobs)
    (theirs,) = torch.autograd.grad(expected, fresh.logprobs)
    assert torch.allclose(mine, theirs, atol=1e-6) and bool(mine.any())
    assert 0 < float(out.metrics["clip_fraction"]) < 1


def test_rloo_clipped_loss_is_trls() -> None:
    algorithm = RLOO(clip_range=0.2)
    e, fresh = made(), scores(33, MASK, grad=True)
    mb = minibatch(e, algorithm.advantages(e, local), "sequences")
    out = algorithm.loss(mb, fresh)
    mask, advantages = MASK.float(), mb.targets.advantages[:, 0]
    coef = torch.exp((fresh.logprobs * mask).sum(1) - (e.old.logprobs * mask).sum(1))
    pieces = coef * advantages, torch.clamp(coef, 0.8, 1.2) * advantages
    expected = -torch.min(*pieces).mean()
    assert float(out.loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-5)
    (mine,) = torch.autograd.grad(out.loss, fresh.logprobs)
    (theirs,) = torch.autograd.grad(expected, fresh.logprobs)
    assert torch.allclose(mine, theirs, atol=1e-5)


def test_rloo_sums_a_completions_logprobs_and_averages_completions() -> None:
    """-1/6 sum of A_i sum of log pi: the plain form; on-policy its gradient is the ratio's."""
    e, fresh = made(), scores(33, MASK, grad=True)
    plain = RLOO()
    mb = minibatch(e, plain.advantages(e, local), "sequences")
    out = plain.loss(mb, fresh)
    a, logp = trl_rloo(REWARDS), torch.where(MASK, fresh.logprobs.detach(), 0.0).sum(1)
    assert float(out.loss.detach()) == pytest.approx(float(-(a * logp).mean()), abs=1e-5)
    (gradient,) = torch.autograd.grad(out.loss, fresh.logprobs)
    assert torch.allclose(gradient, torch.where(MASK, -a[:, None] / 6, 0.0), atol=1e-6)
    now = replace(e, old=replace(e.old, logprobs=fresh.logprobs.detach()))
    on = replace(mb, experience=now)
    (ratio,) = torch.autograd.grad(RLOO(clip_range=0.2).loss(on, fresh).loss, fresh.logprobs)
    assert torch.allclose(gradient, ratio, atol=1e-5)


def test_flat_groups_are_counted_and_may_be_left_out() -> None:
    rewards = torch.tensor([0.1, 0.1, 0.1, 1.0, 2.0, 4.0])
    e = made(rewards)
    for drop in (False, True):
        algorithm = GRPO(drop_flat_groups=drop)
        targets = algorithm.advantages(e, local)
        assert algorithm.groups == {"update/groups": 2.0, "update/groups_flat": 1.0}
        assert not targets.advantages[:3].any()
        assert bool(targets.mask[:3].any()) is not drop
        assert torch.equal(targets.mask[3:], MASK[3:])
    fresh = scores(33, MASK)
    losses = []
    for drop in (False, True):
        algorithm = GRPO(drop_flat_groups=drop)
        mb = minibatch(e, algorithm.advantages(e, local), "sequences")
        losses.append(float(algorithm.loss(mb, fresh).loss))
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-5)


def test_truncated_importance_weighs_each_token_by_the_writers_ratio() -> None:
    """pi_old / writer = 3, 1, .5 on three tokens, capped at 2 -> 2, 1, .5."""
    e = made()
    ratios = torch.ones(6, 5)
    ratios[3, :3] = torch.tensor([3.0, 1.0, 0.5])
    written = replace(e.rollout, logprobs=e.old.logprobs - ratios.log())
    plain, capped = GRPO(average="tokens"), GRPO(average="tokens", truncated_importance=2.0)
    mb = minibatch(replace(e, rollout=written), plain.advantages(e, local))
    found = []
    for algorithm in (plain, capped):
        fresh = scores(0, MASK, grad=True)
        (g,) = torch.autograd.grad(algorithm.loss(mb, fresh).loss, fresh.logprobs)
        found.append(g)
    weight = torch.ones(6, 5)
    weight[3, :3] = torch.tensor([2.0, 1.0, 0.5])
    assert torch.allclose(found[1], found[0] * weight, atol=1e-7)
    metrics = capped.loss(mb, scores(0, MASK)).metrics
    assert float(metrics["importance_capped"]) == pytest.approx(1 / 20)
