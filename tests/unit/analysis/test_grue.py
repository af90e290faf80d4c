"""Scores by hand: two metrics, two tasks, two seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy import stats

from tether.analysis.grue import (
    Anchor,
    Measured,
    aggregate,
    difference,
    family_score,
    left_out_scores,
    mapped,
    on_scale,
    perplexity_share,
    summarised,
)
from tether.analysis.jackknife import groups, interval, standard_error

ROUGE = Anchor("rouge_1", "task", "rouge_1|x", 0.1, "copied prompt", 0.5, "others")
TER = Anchor("ter", "task", "ter|x", 1.0, "empty output", 0.0, "maximum")
PPL = Anchor("perplexity", "naturalness", "perplexity")
GONE = Anchor("coverage", "task", "coverage|x", 1.0, "copied prompt", 1.0, "x", dropped="no room")
ANCHORS = (ROUGE, TER, PPL, GONE)


def test_mapped_is_0_at_the_floor_and_1_at_the_ceiling() -> None:
    assert mapped(0.1, 0.1, 0.5) == 0.0
    assert mapped(0.5, 0.1, 0.5) == 1.0
    assert mapped(0.2, 0.1, 0.5) == pytest.approx(0.25)
    assert mapped(0.6, 0.1, 0.5) == pytest.approx(1.25)  # above people: stays
    assert mapped(0.0, 0.1, 0.5) == pytest.approx(-0.25)
    assert mapped(0.25, 1.0, 0.0) == pytest.approx(0.75)  # an error rate of a quarter
    with pytest.raises(ValueError, match="cannot be mapped"):
        mapped(0.3, 0.2, 0.2)


def test_perplexity_is_a_share_of_the_initial_models_capped_at_1() -> None:
    assert perplexity_share(30.0, 40.0) == 0.75
    assert perplexity_share(30.0, 25.0) == 1.0


def test_a_score_is_the_mean_of_what_counts() -> None:
    values = {"rouge_1": 0.3, "ter": 0.4, "perplexity": 50.0, "coverage": 0.2}
    scaled = on_scale(ANCHORS, values, 40.0)
    assert scaled == pytest.approx({"rouge_1": 0.5, "ter": 0.6, "perplexity": 0.8})
    assert family_score(ANCHORS, "task", scaled) == pytest.approx(0.55)
    assert family_score(ANCHORS, "naturalness", scaled) == pytest.approx(0.8)
    assert family_score((GONE,), "task", scaled) is None
    assert "perplexity" not in on_scale(ANCHORS, values, None)


def test_no_score_without_a_metric_that_counts() -> None:
    distinct = Anchor("distinct_1", "naturalness", "distinct_1|x", 0.0, "empty output", 1.0, "x")
    values = {"rouge_1": 0.3, "distinct_1": 0.4, "perplexity": 50.0, "coverage": 0.2}
    anchors = (*ANCHORS, distinct)
    assert family_score(anchors, "naturalness", on_scale(anchors, values, 40.0)) == pytest.approx(
        (0.8 + 0.4) / 2
    )
    # not the mean of what is left: .4
    assert family_score(anchors, "naturalness", on_scale(anchors, values, None)) is None
    assert family_score(anchors, "task", on_scale(anchors, values, 40.0)) is None  # no TER


def test_perplexity_is_known_by_its_kind() -> None:
    other = Anchor("fluency", "naturalness", "perplexity")
    misled = Anchor("perplexity", "task", "rouge_1|x", 0.1, "copied prompt", 0.5, "maximum")
    scaled = on_scale((other, misled), {"fluency": 50.0, "perplexity": 0.3}, 40.0)
    assert scaled == pytest.approx({"fluency": 0.8, "perplexity": 0.5})


def test_scores_without_each_group() -> None:
    measured = Measured(
        {"rouge_1": 0.3, "ter": 0.4, "perplexity": 50.0},
        {"rouge_1": [0.1, 0.5], "ter": [0.4, 0.2]},
    )
    # (0 + .6) / 2 and (1 + .8) / 2
    assert left_out_scores(ANCHORS, "task", measured, 40.0) == pytest.approx([0.3, 0.9])
    assert left_out_scores(ANCHORS, "naturalness", measured, 40.0) == []


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    x = [1.0, 2.0, 4.0, 9.0]
    left_out = [(sum(x) - v) / 3 for v in x]
    sd = math.sqrt(sum((v - 4.0) ** 2 for v in x) / 3)
    assert standard_error(left_out) == pytest.approx(sd / 2.0)
    assert standard_error([0.3]) is None


def test_groups_are_a_partition() -> None:
    assert groups(5) == [[0], [1], [2], [3], [4]]
    assert groups(45, 20)[:6] == [[0, 20, 40], [1, 21, 41], [2, 22, 42], [3, 23, 43], [4, 24, 44],
                                  [5, 25]]  # fmt: skip
    assert sorted(i for g in groups(45, 20) for i in g) == list(range(45))


def test_below_5_seeds_the_interval_is_over_examples() -> None:
    found = summarised([0.4, 0.6], [[0.3, 0.5], [0.5, 0.9]])
    assert (found.seeds, found.mean, found.over) == ((0.4, 0.6), 0.5, "examples")
    assert found.left_out == pytest.approx((0.4, 0.7))
    error = math.sqrt(0.5 * (0.15**2 + 0.15**2))
    half = 12.706204736432095 * error  # t(.975, 1)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert summarised([0.4], []).over == ""


def test_from_5_seeds_it_is_over_seeds() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    found = summarised(values, [[0.0, 1.0]] * 5)
    half = float(stats.t.ppf(0.975, 4)) * math.sqrt(0.025 / 5)
    assert found.over == "seeds"
    assert (found.low, found.high) == pytest.approx((0.3 - half, 0.3 + half))


def test_the_aggregate_is_the_mean_over_tasks_seed_by_seed() -> None:
    a = summarised([0.2, 0.4], [[0.1, 0.5], [0.1, 0.5]])
    b = summarised([0.6, 1.0], [[0.7, 0.9], [0.7, 0.9]])
    found = aggregate([a, b])
    assert found.seeds == pytest.approx((0.4, 0.7))
    assert found.mean == pytest.approx(0.55)
    # errors of the two tasks: sqrt(1/2 * 2 * .2^2) = .2 and .1
    error = math.sqrt(0.2**2 + 0.1**2) / 2
    assert (found.low, found.high) == pytest.approx(interval(0.55, error, 2))
    with pytest.raises(ValueError, match="equal numbers"):
        aggregate([a, summarised([0.6], [])])


def test_differences_are_paired_by_the_examples_left_out() -> None:
    a = summarised([0.5], [[0.4, 0.5, 0.6]])
    b = replace(a, mean=0.3, left_out=(0.2, 0.3, 0.4))
    found = difference(a, b)
    # the same examples help both: the difference does not depend on them
    assert found is not None
    assert found == pytest.approx((0.2, 0.2, 0.2))
    assert difference(a, replace(b, left_out=())) is None
