"""PARENT: a hand calculation and the numbers of the authors' code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tether.config.errors import UserError
from tether.metrics.base import MetricResult, Samples
from tether.metrics.parent import Parent

CASES = [
    (
        "michael dahlquist was a drummer from seattle .",
        ["michael dahlquist ( december 22 , 1965 ) was a drummer in the seattle band silkworm ."],
        [["name", "michael dahlquist"], ["birth date", "december 22 1965"], ["genre", "rock"]],
    ),
    (
        "a drummer",
        ["michael dahlquist was a drummer", "a drummer of silkworm"],
        [["name", "michael dahlquist"], ["occupation", "drummer"]],
    ),
    ("the cat", ["nothing alike here at all"], [["name", "dog"]]),
    (
        "alan bean was born in wheeler , texas",
        ["alan bean was born in wheeler texas", "wheeler , texas is the birthplace of alan bean"],
        [
            ["alan bean", "birth place", "wheeler texas"],
            ["wheeler texas", "country", "united states"],
        ],
    ),
    ("drummer", ["drummer"], [["occupation", "drummer"]]),
    (
        "michael michael michael was was a a drummer",
        ["michael was a drummer and michael was a singer"],
        [["name", "michael dahlquist"], ["occupation", "drummer"]],
    ),
]
AUTHORS = {
    0.5: [
        (0.38458028365672936, 0.023990831879010917, 0.04516423385080272),
        (0.003162277660168379, 0.03646332368608555, 0.005819829650093087),
        (0.0, 0.003162277660168379, 0.0),
        (0.8274377299117183, 0.7438689130822451, 0.7834310427183494),
        (0.00017782794100389232, 1.0, 0.000355592644144114),
        (0.5583948264724179, 0.04342983012313544, 0.08059155365804338),
    ],
    0.2: [
        (0.38458028365672936, 0.0049470379796735285, 0.009768419902608239),
        (0.003162277660168379, 0.007578582832551994, 0.0044625029606971695),
        (0.0, 0.09999999999999998, 0.0),
        (0.8274377299117183, 0.7402143449743067, 0.7813994994918275),
        (0.00017782794100389232, 1.0, 0.000355592644144114),
        (0.5583948264724179, 0.007860030855966224, 0.015501855504015751),
    ],
}
"""Precision, recall, F of `parent` in google-research/language@865fae6,
language/table_text_eval/table_text_eval.py, 2026-11-28."""


def measure(cases: list[tuple[str, list[str], Any]], **settings: object) -> MetricResult:
    texts, references, tables = zip(*cases, strict=True)
    return Parent(**settings)(Samples(texts, references, None, {"table": tables}))  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", AUTHORS)
def test_the_authors_numbers(weight: float) -> None:
    for case, (p, r, f) in zip(CASES, AUTHORS[weight], strict=True):
        result = measure([case], weight=weight, tokens="split")
        assert result.value == pytest.approx(f, abs=1e-12)
        assert result.parts == pytest.approx({"precision": p, "recall": r}, abs=1e-12)


def test_by_hand() -> None:
    """One order. Text `bob sings loudly`: bob stands in both, sings in the reference, loudly in
    neither: P = 2/3. Of the reference `bob sings` only bob stands in the table and it is said:
    R_ref = 1. The table has bob and jazz: R_T = 1/2. R = sqrt(1/2)."""
    result = measure([("bob sings loudly", ["bob sings"], [["name", "bob"], ["genre", "jazz"]])],
                     order=1)  # fmt: skip
    p, r = 2 / 3, math.sqrt(0.5)
    assert result.parts == pytest.approx({"precision": p, "recall": r})
    assert result.value == pytest.approx(2 * p * r / (p + r))


def test_a_word_of_the_table_is_no_invention() -> None:
    table = [["name", "bob"], ["genre", "jazz"]]
    known = measure([("bob jazz", ["bob"], table)], order=1).value
    invented = measure([("bob rock", ["bob"], table)], order=1).value
    assert known == pytest.approx(1.0) and invented is not None and invented < 0.8


def test_words_and_entries() -> None:
    table = [["Name", "Bob"], "Jazz", ["Bob", "plays", "Bass"]]
    assert measure([("BOB jazz bass.", ["Bob jazz bass."], table)], order=1).value == pytest.approx(
        1.0
    )
    assert measure([("", ["bob"], [["name", "bob"]])]).value == 0.0


def test_what_an_entry_says() -> None:
    """Each table says `bob` and `7`, and nothing else: equal numbers."""
    tables: list[Any] = [
        [["name", "bob"], ["age", "7"]],
        [["name", "bob"], ["age", 7], ["home", None], None],
        ["bob", 7],
        {"name": "bob", "age": 7, "home": None},
        (("name", "bob"), ("age", "7")),
        np.array([["name", "bob"], ["age", "7"]]),
    ]
    found = [measure([("bob is 7", ["bob is 8"], t)]).per_sample for t in tables]
    assert all(f == found[0] for f in found)
    # the head and the tail of a triple are one value; without a tail the head is left
    triple = measure([("bob is 7", ["bob is 8"], [["bob", "age", 7]])])
    assert triple.per_sample == measure([("bob is 7", ["bob is 8"], ["bob 7"])]).per_sample
    # equal in Python, another word: both are scored
    for value in (1, 1.0, True):
        metric = Parent(order=1)
        other = [["x", v] for v in (1, 1.0, True)]
        metric(Samples(["true"] * 3, [["no"]] * 3, None, {"table": [[e] for e in other]}))
        got = metric(Samples([str(value)], [["no"]], None, {"table": [[["x", value]]]}))
        assert got.parts["precision"] == 1.0, value


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "row 2 has no table in 'table'"),
        (None, "row 2 has no table in 'table'"),
        ([["name", None]], "row 2 has no table in 'table'"),
        ([["a", "b", "c", "d"]], "row 2 holds .*'d'.*as a table or an entry"),
        ([["a"]], "row 2 holds"),
        ([[]], "row 2 holds"),
        ("name|||bob", "row 2 holds 'name|||bob' as a table"),
        (7, "row 2 holds 7 as a table"),
        ([["name", ["bob", "smith"]]], "row 2 holds .*bob"),
        ([["name", {"first": "bob"}]], "row 2 holds .*bob"),
        ([{"name": "bob"}], "row 2 holds .*bob"),
        ([{"attribute": "name", "value": "bob"}], "row 2 holds .*bob"),
        ([{"head": "a", "relation": "b", "tail": "c"}], "row 2 holds"),
        ([[["bob", "age", "7"], ["bob", "home", "here"]]], "row 2 holds"),
        ({"name": ["bob"]}, "row 2 holds .*bob"),
        ({"name": {"first": "bob"}}, "row 2 holds .*bob"),
        ([["name", math.nan]], "row 2 holds .*nan"),
    ],
)
def test_another_table_is_refused_in_one_line(table: Any, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("|", r"\|")) as e:
        measure([("a", ["b"], [["x", "y"]]), ("a", ["b"], table)])
    assert "\n" not in str(e.value)


def test_errors() -> None:
    with pytest.raises(UserError, match="parent: order 4"):
        Parent(weight=2.0).check()
