"""The oracle frontier where every completion can be counted, and its bias near its limit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tether.analysis import oracle
from tether.analysis.reweighting import PromptSamples, kl_of, reweight

# Three tokens, two steps: nine completions of one prompt, the second step depends on the first.
FIRST = np.array([0.6, 0.3, 0.1])
SECOND = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.1, 0.2, 0.7]])
COMPLETIONS = list(itertools.product(range(3), range(3)))
MODEL = np.array([FIRST[a] * SECOND[a, b] for a, b in COMPLETIONS])
REWARD = np.array([0.1 * a + 0.3 * b + (0.05 if a == b else 0.0) for a, b in COMPLETIONS])


def exact(lam: float) -> tuple[float, float]:
    """(KL, R) of pi_0 exp(r / lambda) / Z over the nine completions."""
    pi = MODEL * np.exp(REWARD / lam)
    pi /= pi.sum()
    return float((pi * np.log(pi / MODEL)).sum()), float(pi @ REWARD)


def drawn(count: int, seed: int) -> PromptSamples:
    rng = np.random.default_rng(seed)
    return PromptSamples(REWARD[rng.choice(len(MODEL), size=count, p=MODEL)])


def test_weights_and_kl_by_hand() -> None:
    # r = 0, log 2, log 4 at lambda 1: weights 1/7, 2/7, 4/7
    w = oracle.weights(np.log([1.0, 2.0, 4.0]), 1.0)
    assert w == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    by_hand = (math.log(3 / 7) + 2 * math.log(6 / 7) + 4 * math.log(12 / 7)) / 7
    assert kl_of(w) == pytest.approx(by_hand)
    assert oracle.weights(np.array([1.0, 3.0, 3.0]), 0.0) == pytest.approx([0, 0.5, 0.5])
    assert oracle.weights(np.array([1.0, 3.0, 3.0]), math.inf) == pytest.approx([1 / 3] * 3)
    assert kl_of(np.array([0.0, 1.0])) == pytest.approx(math.log(2))
    assert not np.isnan(oracle.weights(np.array([0.0, 1e6]), 1e-3)).any()


def test_means_over_prompts_errors_and_judges() -> None:
    a = PromptSamples(np.array([0.0, 1.0]), {"j": np.array([5.0, np.nan]), "k": np.full(2, np.nan)})
    b = PromptSamples(np.array([2.0, 4.0]), {"j": np.array([1.0, 3.0]), "k": np.full(2, np.nan)})
    found = reweight([a, b], lambda r: np.array([0.25, 0.75]))
    assert found.reward == pytest.approx((0.75 + 3.5) / 2)
    assert found.reward_se == pytest.approx((3.5 - 0.75) / 2)  # s / sqrt(2), s = 2.75 / sqrt(2)
    assert found.kl == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert found.effective_samples == pytest.approx(1 / (0.0625 + 0.5625))
    assert found.judges == {"j": pytest.approx((5.0 + 2.5) / 2)}  # no score of k anywhere
    assert math.isnan(reweight([a], lambda r: np.array([0.5, 0.5])).reward_se)


def test_it_finds_the_exact_optimum_of_a_countable_case() -> None:
    samples = [drawn(20_000, 0)]
    for lam in (1.0, 0.3, 0.1, 0.03):
        kl, reward = exact(lam)
        found = oracle.at_lambda(samples, lam)
        assert found.kl == pytest.approx(kl, abs=0.03)
        assert found.reward == pytest.approx(reward, abs=0.01)


def test_no_other_policy_has_more_reward_at_its_drift() -> None:
    # A second way to know the optimum: 4,000 random policies, none above the exact curve.
    curve = sorted(exact(lam) for lam in np.geomspace(0.004, 50, 400))
    rng = np.random.default_rng(1)
    gaps = []
    for alpha in (0.3, 1.0, 5.0, 30.0):
        for pi in rng.dirichlet(MODEL * 9 * alpha, size=1_000):
            pi = np.maximum(pi, 1e-12)
            kl = float((pi * np.log(pi / MODEL)).sum())
            if kl < curve[-1][0]:
                best = np.interp(kl, [k for k, _ in curve], [r for _, r in curve])
                gaps.append(best - float(pi @ REWARD))
    assert len(gaps) > 2_000 and min(gaps) > -1e-4 and min(gaps) < 0.05


def test_lambda_for_a_drift() -> None:
    samples = [drawn(256, s) for s in range(4)] + [drawn(100, 9)]
    for kl in (0.01, 0.3, 1.0):
        lam = oracle.lambda_at(samples, kl)
        assert oracle.at_lambda(samples, lam).kl == pytest.approx(kl, rel=1e-6)
    assert oracle.lambda_at(samples, 0.0) == math.inf
    assert oracle.lambda_at(samples, 50.0) == 0.0


def test_the_curve_its_range_and_its_end() -> None:
    rng = np.random.default_rng(2)
    samples = [PromptSamples(rng.normal(size=256)) for _ in range(20)]
    curve = oracle.oracle(samples)
    end = math.log(256) - 1
    assert oracle.limit(256) == pytest.approx(end) and end == pytest.approx(4.545, abs=1e-3)
    assert curve[0].lam == math.inf and curve[0].means.kl == 0
    assert curve[0].means.reward == pytest.approx(np.mean([s.rewards for s in samples]))
    valid = [p for p in curve if p.valid]
    assert len(valid) == oracle.POINTS + 1 and len(curve) == len(valid) + len(oracle.BEYOND)
    assert valid[-1].means.kl == pytest.approx(end, abs=1e-4)
    for a, b in itertools.pairwise(curve):
        assert b.means.kl > a.means.kl and b.means.reward > a.means.reward and b.lam < a.lam
    # A reward of two values: all weight on the best costs log(256 / 64), and the curve ends there.
    two = PromptSamples(np.array([1.0] * 64 + [0.0] * 192))
    last = oracle.oracle([two])[-1]
    assert (last.lam, last.valid) == (0.0, True)
    assert last.means.kl == pytest.approx(math.log(4)) and last.means.reward == 1.0
    with pytest.raises(ValueError, match="needs 16 samples a prompt, not 15"):
        oracle.oracle([two, PromptSamples(np.zeros(15))])


def test_bias_is_small_in_the_range_and_large_beyond_it() -> None:
    """Rewards of a normal distribution: at lambda the optimum has KL 1 / (2 lambda^2) and
    R = 1 / lambda exactly. With 256 samples the range ends at 4.55 nats."""
    rng = np.random.default_rng(3)
    samples = [PromptSamples(rng.normal(size=256)) for _ in range(400)]

    def at(kl: float) -> tuple[float, float]:
        found = oracle.at_lambda(samples, 1 / math.sqrt(2 * kl))
        return found.kl - kl, found.reward - math.sqrt(2 * kl)

    near, edge, beyond = at(1.0), at(4.5), at(12.0)
    assert abs(near[0]) < 0.06 and abs(near[1]) < 0.06
    assert -1.8 < edge[0] < -1.3 and -0.8 < edge[1] < -0.5  # both fall behind together
    assert beyond[0] < -6.9 and beyond[1] < -1.8

    # At the KL that the estimate itself reports, the curve is a little low, more so near its end:
    # 1 % of the reward gained at 1 nat, 5 % at 3, 10 % at the limit (4.55).
    def low(kl: float) -> float:
        found = oracle.at_lambda(samples, oracle.lambda_at(samples, kl))
        return 1 - found.reward / math.sqrt(2 * kl)

    assert low(1.0) < 0.012 < low(3.0) < 0.05 < low(oracle.limit(256)) < 0.11
    last = oracle.at_lambda(samples, 0.0)
    assert last.kl == pytest.approx(math.log(256))
    assert last.reward - math.sqrt(2 * last.kl) < -0.4  # of 3.33: 15 %


def test_least_drift_of_a_reward() -> None:
    curve = [(0.0, 0.5), (1.0, 0.7), (4.0, 0.8)]
    assert oracle.least_drift(curve, 0.4) == 0.0
    assert oracle.least_drift(curve, 0.6) == pytest.approx(0.5)
    assert oracle.least_drift(curve, 0.775) == pytest.approx(3.25)
    assert oracle.least_drift(curve, 0.81) is None
