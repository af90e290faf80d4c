"""PARENT and SacreBLEU by ToTTo's subsets: the inner metric on the rows of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tether.config.errors import UserError
from tether.config.parts import build
from tether.metrics.base import MetricResult, Samples
from tether.rewards.batch import RewardBatch
from tether.rewards.combine import RewardSet

TEXTS = ["the red dog sat", "a blue cat ran away", "the red dog sat down here", "nobody knows it"]
REFERENCES = [["the red dog sat"], ["a blue cat ran"], ["the red dog sat down"], ["who knows it"]]
TABLE = [["name", "the red dog"], ["act", "sat"]]
WHERE = [True, False, True, None]


def measured(name: str, rows: list[int], where: list[Any] = WHERE) -> MetricResult:
    made = build("metric", name)
    columns = {"table": [TABLE] * len(rows), "overlap_subset": [where[i] for i in rows]}
    result: MetricResult = made(
        Samples([TEXTS[i] for i in rows], [REFERENCES[i] for i in rows], None, columns)
    )
    return result


@pytest.mark.parametrize(
    ("name", "plain"), [("parent_by_overlap", "parent"), ("sacre_bleu_by_overlap", "sacre_bleu")]
)
def test_each_subset_is_the_metric_on_its_rows(name: str, plain: str) -> None:
    found = measured(name, [0, 1, 2, 3])
    assert found.value == measured(plain, [0, 1, 2, 3]).value
    assert found.per_sample == measured(plain, [0, 1, 2, 3]).per_sample
    # row 4 says nothing: it is in neither
    want = {"overlap": measured(plain, [0, 2]).value, "non_overlap": measured(plain, [1]).value}
    assert found.parts == pytest.approx(want)
    assert len({round(v, 6) for v in (found.value, *found.parts.values())}) == 3
    assert measured(name, [0, 3]).parts == pytest.approx({"overlap": measured(plain, [0]).value})
    assert measured(name, [3]).parts == {}


def test_bleu_of_a_subset_is_pooled() -> None:
    """Not the mean of its sentences: of rows 1 and 3 together 9 of 10 words are right, 7 of 8
    pairs, 5 of 6, 3 of 4; 10 words against 9, so no brevity penalty."""
    bleu = (9 / 10 * 7 / 8 * 5 / 6 * 3 / 4) ** 0.25
    assert measured("sacre_bleu_by_overlap", [0, 2]).parts["overlap"] == pytest.approx(bleu)


@pytest.mark.parametrize("name", ["parent_by_overlap", "sacre_bleu_by_overlap"])
def test_one_and_zero_are_true_and_false(name: str) -> None:
    """A CSV holds 1.0 where another row has nothing; NumPy has values of its own."""
    want = measured(name, [0, 1, 2, 3])
    assert set(want.parts) == {"overlap", "non_overlap"}
    for where in (
        [1, 0, 1, None],
        [1.0, 0.0, 1.0, None],
        [1, False, True, None],
        [np.True_, np.False_, np.int64(1), None],
    ):
        assert measured(name, [0, 1, 2, 3], where) == want
    columns = {"table": [TABLE] * 2, "overlap_subset": [1, 0]}
    twice = build("metric", name)(Samples(TEXTS[1:2] * 2, REFERENCES[1:2] * 2, None, columns))
    assert twice.parts["overlap"] == twice.parts["non_overlap"] == twice.value


def test_another_value_of_the_column_is_named() -> None:
    for odd in ("yes", "True", "1", 2, -1, 0.5, float("nan"), [True], "overlap"):
        line = r"row 2 holds .* in 'overlap_subset', expected true"
        with pytest.raises(UserError, match=line) as e:
            measured("parent_by_overlap", [0, 1], [True, odd])
        assert "\n" not in str(e.value)


def test_a_judge_of_some_rows() -> None:
    """`where`: the mean over those rows alone; none of the others has a number."""
    part = {"kind": "metric", "metric": "parent", "missing": "drop"}
    judges = RewardSet({
        name: build("reward", {**part, "where": {"overlap_subset": value}})
        for name, value in (("overlap", True), ("non_overlap", False))
    })  # fmt: skip
    assert judges.rewards["overlap"].needs() == ("references", "table", "overlap_subset")
    columns = {"references": REFERENCES, "table": [TABLE] * 4, "overlap_subset": WHERE}
    batch = RewardBatch(["p"] * 4, TEXTS, [[1]] * 4, columns)
    found = judges.score(batch).per_function
    own = measured("parent", [0, 1, 2, 3]).per_sample or []
    assert found["overlap"] == [own[0], None, own[2], None]
    assert found["non_overlap"] == [None, own[1], None, None]
    with pytest.raises(UserError, match=r"there is no column 'subset' \(where\)"):
        build("reward", {**part, "where": {"subset": 1}})(batch)
