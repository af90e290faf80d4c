"""The seam: results, checks of input, the cache, threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from tether.config.errors import UserError
from tether.config.parts import build, check, dump
from tether.metrics.base import Metric, Row, Samples, Scored, frozen
from tether.metrics.words import sentences, tokens, words
from tether.rewards.batch import RewardBatch
from tether.rewards.metric import MetricReward


@dataclass
class Counting(Metric):
    """Length of the text in units of `by`; remembers what it was asked."""

    by: float = 1.0
    device: str = "cpu"

    name: ClassVar[str] = "counting"
    parts: ClassVar[tuple[str, ...]] = ("references",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked: list[str] = []

    def columns(self) -> tuple[str, ...]:
        return ("topic",)

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        self.asked += [r.text for r in rows]
        return [(len(r.text) / self.by, float(len(r.references))) for r in rows]


def samples(*texts: str) -> Samples:
    return Samples(texts, [["x", "y"]] * len(texts), None, {"topic": [["a", "b"]] * len(texts)})


def test_a_result_says_what_it_is() -> None:
    result = Counting(by=2.0)(samples("aa", "aaaa"))
    assert (result.value, result.per_sample, result.n) == (1.5, [1.0, 2.0], 2)
    assert result.parts == {"references": 2.0}
    assert result.signature == "counting|tether/1|by=2.0"  # no device: it changes no number
    assert Counting(by=1.0)(samples("aa")).signature != result.signature


@dataclass
class Inner:
    factor: float = 1.0
    device: str = "cpu"


@dataclass
class Nested(Counting):
    inner: Inner = field(default_factory=Inner)
    several: dict[str, Inner] = field(default_factory=lambda: {"a": Inner()})

    @property
    def needs_prompts(self) -> bool:
        return self.by == 1.0

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        prompts = [r.prompt if self.needs_prompts else "" for r in rows]
        self.asked += [p + r.text for p, r in zip(prompts, rows, strict=True)]
        return [(float(len(p)), 0.0) for p in prompts]


class Silent(Counting):
    """Reads the prompts without saying so."""

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        return [(float(len(r.prompt)), 0.0) for r in rows]


def test_what_changes_no_number_is_left_out_of_parts_too() -> None:
    metric = Nested(inner=Inner(2.0, "cuda"), several={"a": Inner(3.0, "cuda")})
    assert metric.settings["inner"] == {"factor": 2.0}
    assert metric.settings["several"] == {"a": {"factor": 3.0}}
    assert "cuda" not in metric.signature and "3.0" in metric.signature
    given = samples("a")
    assert metric(Samples(given.texts, given.references, ["p"], given.columns)).signature == (
        metric.signature
    )


def test_prompts_are_for_metrics_that_read_them() -> None:
    given = samples("a", "a")
    with pytest.raises(UserError, match=r"^counting reads the prompts, and none are given$"):
        Nested()(given)
    prompted = Samples(given.texts, given.references, ["p", "pp"], given.columns)
    assert Nested()(prompted).per_sample == [1.0, 2.0]
    blind = Nested(by=2.0)
    assert blind(given).per_sample == blind(prompted).per_sample == [0.0, 0.0]
    assert blind.asked == ["a"]  # another prompt is no other row


def test_a_metric_that_reads_prompts_without_saying_so_is_refused() -> None:
    given = samples("a")
    prompted = Samples(given.texts, given.references, ["p"], given.columns)
    for each in (given, prompted):
        with pytest.raises(UserError, match=r"^the metric counting .* needs_prompts return True$"):
            Silent()(each)
    with pytest.raises(UserError, match=r"^the metric counting reads row.prompt"):
        columns = {"references": [["x"]], "topic": [["a"]]}
        MetricReward(metric=Silent())(RewardBatch(["p"], ["a"], [[1]], columns))


def test_equal_in_python_is_not_equal_to_a_metric() -> None:
    metric = Counting()
    for value in (1, True, 1.0, [1], [True], {"a": 1}, {"a": True}):
        metric(Samples(["a"], [["x"]], None, {"topic": [value]}))
    assert len(metric.asked) == 7
    metric(Samples(["a", "a"], [["x"]] * 2, None, {"topic": [0, False]}))
    assert len(metric.asked) == 9


def test_no_samples_have_no_value() -> None:
    result = Counting()(samples())
    assert (result.value, result.per_sample, result.parts) == (None, [], {})


def test_a_row_is_scored_once() -> None:
    metric = Counting()
    assert metric(samples("a", "bb", "a")).per_sample == [1.0, 2.0, 1.0]
    assert metric(samples("bb", "ccc")).per_sample == [2.0, 3.0]
    assert metric.asked == ["a", "bb", "ccc"]
    other = Samples(["a"], [["z"]], None, {"topic": [["a", "b"]]})
    metric(other)
    assert metric.asked[-1] == "a"  # another reference is another row


def test_the_cache_is_bounded_and_the_newest_stay() -> None:
    metric = Counting()
    metric._cache.limit = 2
    for text in ("a", "b", "a", "c", "a", "b"):
        metric(samples(text))
    assert metric.asked == ["a", "b", "c", "b"]


def test_threads_get_their_own_rows() -> None:
    metric = Counting()
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda n: metric(samples("x" * n, "y")).per_sample, range(50)))
    assert got == [[float(n), 1.0] for n in range(50)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Samples(["a"]), "counting compares with references, and none are given"),
        (Samples(["a"], [["b"], ["c"]]), "2 references for 1 texts"),
        (Samples(["a", "b"], [["x"], ["y", " "]]), "row 2 has an empty reference"),
        (Samples(["a"], [[]]), "row 1 has an empty reference"),
        (Samples(["a"], [["x"]]), "reads the column 'topic'"),
        (Samples(["a"], [["x"]], None, {"topic": []}), "0 values of 'topic' for 1 texts"),
        (Samples(["a", None], [["x"]] * 2), "^counting: row 2 of the texts holds None, expected"),  # type: ignore[list-item]
        (Samples("ab", [["x"]] * 2), "the texts are 'ab', expected a list with one entry a sample"),
        (Samples(["a\ud83d"], [["x"]]), "row 1 of the texts: character 2 is half of a surrogate"),
        (Samples(["a", "b"], [["x"], None]), r"row 2 has an empty reference \(\[\]\)"),  # type: ignore[list-item]
        (Samples(["a"], [[None]]), r"row 1 has an empty reference \(\[None\]\)"),  # type: ignore[list-item]
        (Samples(["a"], [3]), "row 1 holds 3 as references, expected a text or a list of texts"),  # type: ignore[list-item]
        (Samples(["a"], [{"x": 1}]), "row 1 holds {'x': 1} as references"),  # type: ignore[list-item]
        (Samples(["a", "b"], "xy"), "the references are 'xy', expected a list with one entry"),
        (Samples(["a"], [["x\ud83d"]]), "row 1 of the references: character 2 is half of a"),
    ],
)
def test_wrong_input_is_one_line(given: Samples, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Counting()(given)


def test_one_text_in_the_place_of_a_list_is_one_reference() -> None:
    """Not its characters."""
    found = Counting().rows(Samples(["a", "b"], ["a b", ["c d"]], None, {"topic": [1, 2]}))
    assert [r.references for r in found] == [("a b",), ("c d",)]
    arrays = Samples(["a"], [np.array(["a b", "c"])], None, {"topic": [1]})  # type: ignore[list-item]
    assert Counting().rows(arrays)[0].references == ("a b", "c")


def test_prompts_of_another_number() -> None:
    with pytest.raises(UserError, match="counting: row 1 of the prompts holds None, expected text"):
        Nested()(Samples(["a"], [["x"]], [None], {"topic": [1]}))  # type: ignore[list-item]
    with pytest.raises(UserError, match="counting: 2 prompts for 1 texts"):
        Nested()(Samples(["a"], [["x"]], ["p", "q"], {"topic": [1]}))


def test_metrics_are_parts_of_a_configuration() -> None:
    full = check("metric", {"kind": "rouge_l", "stemmer": False})
    assert full["several"] == "max"
    made = build("metric", "rouge_l")
    assert dump(made, "metric") == {**full, "stemmer": True}
    with pytest.raises(UserError, match="did you mean 'rouge_l'"):
        build("metric", "rouge_ll")
    with pytest.raises(UserError, match="'perplexity' is measured from a model's scores, not from"):
        check("metric", "perplexity")


def test_columns_of_any_kind_can_be_remembered() -> None:
    given = {"a": np.array([1, 2]), "b": [{"c": ["d"]}]}
    assert frozen(given) == (("a", (1, 2)), ("b", ((("c", ("d",)),),)))
    assert hash(frozen(given))


def test_words_and_sentences() -> None:
    assert words("It's 3-0, größer!") == ["it's", "3-0", "größer"]
    assert tokens("A cat.") == ["a", "cat", "."]
    assert sentences('One. Two! "Three." Four\nfive 3.5') == [
        "One.", "Two!", '"Three."', "Four", "five 3.5",
    ]  # fmt: skip
    assert sentences("猫。犬。") == ["猫。", "犬。"]
    assert sentences(" \n ") == []
