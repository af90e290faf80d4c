"""Best-of-n from one set of samples, against counting all subsets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tether.analysis.best_of_n import best_of_n, kl_bound, order_weights, weights
from tether.analysis.reweighting import PromptSamples, kl_of


def test_order_weights_by_hand_and_by_binomials() -> None:
    # best of 2 of 4: of six pairs the largest is best in 3, the next in 2, then 1, the least in 0
    assert order_weights(4, 2) == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6])
    for count, n in ((7, 3), (64, 8), (256, 64), (5, 5), (5, 1)):
        by_formula = [math.comb(i - 1, n - 1) / math.comb(count, n) for i in range(1, count + 1)]
        assert order_weights(count, n) == pytest.approx(by_formula)
    for count, n in ((4, 5), (4, 0)):
        with pytest.raises(ValueError, match="cannot be estimated"):
            order_weights(count, n)


def test_equal_to_all_subsets_ties_and_judges_included() -> None:
    rewards = np.array([0.2, 0.9, 0.2, 0.5, 0.9, -1.0])
    judge = np.array([1.0, 2.0, 3.0, 4.0, 8.0, 6.0])
    for n in range(1, 7):
        subsets = list(itertools.combinations(range(6), n))
        best = [max(rewards[list(s)]) for s in subsets]
        judged = [  # ties are broken at random
            np.mean([judge[i] for i in s if rewards[i] == b])
            for s, b in zip(subsets, best, strict=True)
        ]
        found = best_of_n([PromptSamples(rewards, {"j": judge})], [n])[n]
        assert found.reward == pytest.approx(np.mean(best))
        assert found.judges["j"] == pytest.approx(np.mean(judged))
    by_symmetry = weights(rewards, 2)
    assert by_symmetry[0] == by_symmetry[2] and by_symmetry[1] == by_symmetry[4]
    assert by_symmetry.sum() == pytest.approx(1)


def test_unbiased_for_fresh_draws() -> None:
    # Uniform rewards: the expected best of n is n / (n + 1). 4 standard errors of 400 prompts are
    # .023 at n = 1 and .003 at n = 64.
    rng = np.random.default_rng(0)
    samples = [PromptSamples(rng.random(64)) for _ in range(400)]
    found = best_of_n(samples)
    for n, means in found.items():
        assert means.reward == pytest.approx(n / (n + 1), abs=4 * means.reward_se + 1e-9)
        assert means.prompts == 400


def test_the_bound_and_the_kl_of_the_sample() -> None:
    assert kl_bound(1) == 0
    assert kl_bound(2) == pytest.approx(math.log(2) - 0.5)
    assert kl_bound(64) == pytest.approx(3.1745, abs=1e-4)
    # Distinct completions: the KL of the re-weighted sample goes to the formula from below.
    distinct = np.arange(4_096.0)
    for n in (2, 4, 16, 64):
        assert kl_of(weights(distinct, n)) == pytest.approx(kl_bound(n), abs=0.02)
    # Two rewards, p = 1/2 each: best of n is good with 1 - 2^-n, far below the bound.
    coin = np.array([0.0] * 2_048 + [1.0] * 2_048)
    for n in (2, 4, 8):
        good = 1 - 2.0**-n
        true = good * math.log(2 * good) + (1 - good) * math.log(2 * (1 - good))
        assert kl_of(weights(coin, n)) == pytest.approx(true, abs=0.01)
        assert true < kl_bound(n)


def test_prompts_with_too_few_samples_are_left_out_of_that_n() -> None:
    many, few = PromptSamples(np.arange(8.0)), PromptSamples(np.arange(3.0))
    found = best_of_n([many, few], [1, 2, 4, 16])
    assert {n: m.prompts for n, m in found.items()} == {1: 2, 2: 2, 4: 1}
    assert found[1].reward == pytest.approx((3.5 + 1) / 2)
