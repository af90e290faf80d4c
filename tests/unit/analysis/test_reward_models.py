"""Reports on reward models: numbers by hand, and scikit-learn and scipy as oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.analysis.reward_models import (
    auc,
    class_report,
    length_bias,
    pair_report,
    pearson,
    reliability,
    spearman,
)

VALUES = st.lists(st.integers(-5, 5), min_size=1, max_size=12)


def test_auc_by_hand() -> None:
    # 2 x 3 comparisons: 3 beats 1, 2 and ties 3; 1 ties 1, loses to 2 and 3: 3 of 6
    assert auc([3, 1], [1, 2, 3]) == pytest.approx((2.5 + 0.5) / 6)
    assert auc([1], []) is None
    assert auc([2, 2], [2]) == 0.5


@settings(deadline=None)
@given(VALUES, VALUES)
def test_auc_is_scikit_learns(positive: list[int], negative: list[int]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    truth = [1] * len(positive) + [0] * len(negative)
    assert auc(positive, negative) == pytest.approx(
        metrics.roc_auc_score(truth, positive + negative)
    )


def test_calibration_by_hand() -> None:
    # two bins of [.5, 1]: ].5, .75] holds .6 (right), .7 (wrong); ].75, 1] holds .9 (right) twice
    found = reliability([0.6, 0.7, 0.9, 0.9], [1, 0, 1, 1], bins=2, low=0.5)
    low, high = found["bins"]
    assert (low["rows"], high["rows"]) == (2, 2)
    assert (low["low"], low["high"], high["high"]) == (0.5, 0.75, 1.0)
    assert low["confidence"] == pytest.approx(0.65) and low["accuracy"] == 0.5
    assert high["confidence"] == pytest.approx(0.9) and high["accuracy"] == 1.0
    assert found["ece"] == pytest.approx(0.5 * 0.15 + 0.5 * 0.1)


def test_an_edge_belongs_to_the_lower_bin() -> None:
    found = reliability([0.1, 0.2, 0.3, 0.6, 0.7, 1.0], [1] * 6, bins=10)
    assert [b["rows"] for b in found["bins"]] == [1, 1, 1, 0, 0, 1, 1, 0, 0, 1]
    assert reliability([0.5], [0.5], bins=10, low=0.5)["bins"][0]["rows"] == 1
    assert (0.55 - 0.5) / 0.5 * 10 > 1  # the rounding that must not move it up
    assert reliability([0.55], [1], bins=10, low=0.5)["bins"][0]["rows"] == 1
    assert reliability([], [])["ece"] is None
    with pytest.raises(ValueError, match="2 confidences and 1 answers"):
        reliability([0.5, 0.6], [1])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=12))
def test_correlations_are_scipys(points: list[tuple[int, int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    x, y = (np.array([p[k] for p in points], dtype=float) for k in (0, 1))
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-9)
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)
    else:
        assert pearson(x, y) is None and spearman(x, y) is None


def test_a_report_on_pairs_by_hand() -> None:
    chosen, rejected = [math.log(3), 0.0, 1.0, 0.0], [0.0, math.log(3), 1.0, math.log(3)]
    found = pair_report(chosen, rejected, [9, 9, 2, 1], [1, 1, 1, 1], bins=2)
    assert found["rows"] == 4
    assert found["accuracy"] == pytest.approx((1 + 0 + 0.5 + 0) / 4)  # a tie is a coin
    want = (math.log(4 / 3) + 2 * math.log(4) + math.log(2)) / 4
    assert found["loss"] == pytest.approx(want)
    low, high = found["calibration"]["bins"]  # confidences .75, .75, .5, .75: all in ].5, .75]
    assert (low["rows"], high["rows"]) == (4, 0) and high["accuracy"] is None
    assert low["confidence"] == pytest.approx((3 * 0.75 + 0.5) / 4)
    assert found["calibration"]["ece"] == pytest.approx(2.75 / 4 - 0.375)
    # differences L, -L, 0, -L against -L, L, 0, L, row by row: 1 + .5 + 1 + .5; .5; 1 + .5; .5
    assert found["auc_within"] == pytest.approx((3 + 0.5 + 1.5 + 0.5) / 16)


def test_length_bias_by_hand() -> None:
    # longer wins in pairs 1, 2, 4; shorter in 3; equal in 5
    bias = length_bias([2, 0, 1, 3, 0], [1, 1, 0, 3, 1], [5, 5, 1, 4, 2], [1, 1, 5, 2, 2])
    assert (bias["winner_longer"], bias["winner_shorter"], bias["equal"]) == (0.6, 0.2, 0.2)
    assert bias["accuracy_longer_won"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert bias["accuracy_shorter_won"] == 1.0 and bias["accuracy_equal"] == 0.0
    assert bias["accuracy_of_length"] == pytest.approx((3 + 0.5) / 5)
    # the model says longer in pair 1, shorter in 2 and 3, a tie in 4
    assert bias["model_prefers_longer"] == pytest.approx((1 + 0 + 0 + 0.5) / 4)
    scores, lengths = [2, 0, 1, 3, 0, 1, 1, 0, 3, 1], [5, 5, 1, 4, 2, 1, 1, 5, 2, 2]
    assert bias["pearson"] == pytest.approx(np.corrcoef(scores, lengths)[0, 1])
    d, n = np.array([1, -1, 1, 0, -1.0]), np.array([4, 4, -4, 2, 0.0])
    want = float(d @ n) / math.sqrt(float(d @ d) * float(n @ n))  # means are 0 in both directions
    assert bias["pearson_within"] == pytest.approx(want)


def test_a_model_that_is_length_shows() -> None:
    long, short = [7, 9, 3], [2, 4, 8]
    bias = length_bias(long, short, long, short)
    assert bias["pearson"] == pytest.approx(1) and bias["model_prefers_longer"] == 1
    assert bias["accuracy_longer_won"] == 1 and bias["accuracy_shorter_won"] == 0


def test_what_cannot_be_said_is_none() -> None:
    bias = length_bias([1, 1], [1, 1], [3, 3], [3, 3])
    assert bias["pearson"] is None and bias["accuracy_longer_won"] is None
    assert bias["model_prefers_longer"] is None and bias["accuracy_equal"] == 0.5


def test_a_report_on_classes_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2]])
    found = class_report(p, [0, 1, 0, 1], [1, 2, 3, 4], bins=10)
    assert found["accuracy"] == 0.5
    assert found["auc"] == 0.5  # .6 beats .1 only, .2 beats .1 only
    want = (0.1 * 1 + 0.4 * 1 + 0.7 * 1 + 0.8 * 1) / 4
    assert found["calibration"]["ece"] == pytest.approx(want)
    assert found["length_bias"]["accuracy_longer_half"] == 0.0
    assert found["length_bias"]["accuracy_shorter_half"] == 1.0
    assert found["length_bias"]["label_pearson"] == pytest.approx(
        np.corrcoef([0, 1, 0, 1], [1, 2, 3, 4])[0, 1]
    )


def test_three_classes_take_the_mean_of_one_against_the_rest() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    g = np.random.default_rng(0)
    p = g.dirichlet([1, 1, 1], 40)
    y = g.integers(0, 3, 40)
    want = metrics.roc_auc_score(y, p, multi_class="ovr", average="macro")
    assert class_report(p, y.tolist(), np.arange(40))["auc"] == pytest.approx(want)


def test_a_constant_has_no_correlation() -> None:
    """Though the mean of three .1 is not .1."""
    for x, y in (([0.1] * 3, [1, 2, 3]), ([1, 2, 3], [0.1] * 3), ([0.1] * 3, [0.1] * 3)):
        assert pearson(x, y) is None and spearman(x, y) is None
