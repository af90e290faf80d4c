"""PPO's pieces against the formulas of the originals, written with loops over single tokens."""

from __future__ import annotations

import math

import pytest

from tests.contracts.examples import MASK, experience, minibatch, numbers, scores
from tether.algorithms.ppo import PPO
from tether.core.masking import local
from tether.core.returns import gae


def test_gae_is_the_sum_of_discounted_deltas() -> None:
    """A_t = sum_k (gamma lambda)^k delta_{t+k}, arXiv 1506.02438 equation 16, term by term."""
    gamma, lambda_ = 0.99, 0.95
    rewards, values, bootstrap = numbers(0, 3, 4), numbers(1, 3, 4), numbers(2, 3)
    found, returns = gae(rewards, values, bootstrap, MASK, gamma, lambda_)
    for b in range(3):
        steps = [t for t in range(4) if MASK[b, t]]
        v = [float(values[b, t]) for t in steps] + [float(bootstrap[b])]
        delta = [float(rewards[b, t]) + gamma * v[k + 1] - v[k] for k, t in enumerate(steps)]
        for k, t in enumerate(steps):
            a = sum((gamma * lambda_) ** j * d for j, d in enumerate(delta[k:]))
            assert float(found[b, t]) == pytest.approx(a, abs=1e-5)
            assert float(returns[b, t]) == pytest.approx(a + v[k], abs=1e-5)


@pytest.mark.parametrize("clip_range_value", [None, 0.2])
def test_loss_token_by_token(clip_range_value: float | None) -> None:
    algorithm = PPO(clip_range=0.2, vf_coef=0.3, ent_coef=0.05, clip_range_value=clip_range_value)
    e, fresh = experience(), scores(33)
    mb = algorithm.prepare(minibatch(e, algorithm.advantages(e, local)), local)
    raw = algorithm.advantages(e, local).advantages[MASK]
    mean, std = float(raw.mean()), float(raw.std(correction=0))
    sums = dict.fromkeys(("policy_loss", "value_loss", "entropy", "kl_old.k3_nats_per_token"), 0.0)
    sums |= {"clip_fraction": 0.0, "ratio_error": 0.0}
    n = int(MASK.sum())
    returns = mb.targets.returns
    assert returns is not None
    for b, t in MASK.nonzero().tolist():
        a = (float(algorithm.advantages(e, local).advantages[b, t]) - mean) / std
        ratio = math.exp(float(fresh.logprobs[b, t]) - float(e.old.logprobs[b, t]))
        clipped = min(max(ratio, 0.8), 1.2)
        sums["policy_loss"] += max(-a * ratio, -a * clipped) / n
        v, r, old = (float(x[b, t]) for x in (fresh.values, returns, e.old.values))
        error = (v - r) ** 2
        if clip_range_value is not None:
            error = max(error, (old + min(max(v - old, -0.2), 0.2) - r) ** 2)
        sums["value_loss"] += error / 2 / n
        sums["entropy"] += float(fresh.entropy[b, t]) / n
        sums["kl_old.k3_nats_per_token"] += (ratio - 1 - math.log(ratio)) / n
        sums["clip_fraction"] += (-a * clipped > -a * ratio) / n
        sums["ratio_error"] += abs(ratio - 1) / n
    out = algorithm.loss(mb, fresh)
    assert set(out.metrics) == set(sums)
    for name, value in sums.items():
        assert float(out.metrics[name]) == pytest.approx(value, abs=1e-5), name
    loss = sums["policy_loss"] + 0.3 * sums["value_loss"] - 0.05 * sums["entropy"]
    assert float(out.loss) == pytest.approx(loss, abs=1e-5)
    assert 0 < sums["clip_fraction"] < 1


def test_the_first_minibatch_is_on_policy() -> None:
    """Invariant 1: ratios 1, clip fraction 0, KL to the old policy 0; loss -mean advantage, 0."""
    algorithm, e = PPO(), experience()
    mb = algorithm.prepare(minibatch(e, algorithm.advantages(e, local)), local)
    out = algorithm.loss(mb, e.old)
    for name in ("ratio_error", "clip_fraction", "kl_old.k3_nats_per_token"):
        assert float(out.metrics[name]) == 0
    assert float(out.metrics["policy_loss"]) == pytest.approx(0, abs=1e-6)
