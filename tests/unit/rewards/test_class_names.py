"""Which class a label means, and in which order classes stand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tether.config.errors import UserError
from tether.rewards.class_names import hint, in_order, position, shown
from tether.rewards.classifier import ClassifierReward
from tether.rewards.ensemble import EnsembleReward
from tether.train.telling import _rewarded

TEN = [str(i) for i in range(1, 11)]


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["10", "9", "1", "2", "10"], ["1", "2", "9", "10"]),
        (["1", "0"], ["0", "1"]),
        (["1", "-1", "0"], ["-1", "0", "1"]),
        (["0.5", "1e1", "-2"], ["-2", "0.5", "1e1"]),
        (["positive", "negative"], ["negative", "positive"]),
        (["b", "10", "9"], ["10", "9", "b"]),  # names, not numbers
        (["nan", "2", "10"], ["10", "2", "nan"]),
        (["7", "2e99999999999999999999"], ["2e99999999999999999999", "7"]),  # a hash
    ],
)
def test_numbers_stand_in_the_order_of_numbers(names: list[str], want: list[str]) -> None:
    assert in_order(names) == want


@pytest.mark.parametrize(
    ("label", "names", "want"),
    [
        (1, TEN, "1"),
        ("1", TEN, "1"),
        (10, TEN, "10"),
        ("10", TEN, "10"),
        (0, TEN, "1"),  # no class 0: the index
        ("1", ["0", "1"], "1"),
        (1, ["NEGATIVE", "POSITIVE"], "POSITIVE"),
        ("1", ["LABEL_0", "LABEL_1"], "LABEL_1"),
        (1, ["1.0", "2.0", "3.0"], "1.0"),
        (-1, ["-1", "1"], "-1"),
        (1, ["10", "1", "2"], "1"),  # whatever order was saved
        (-1, TEN, None),
        (11, TEN, None),
        ("1.5", TEN, None),
        ("10", ["neg", "pos"], None),
        ("1e900", ["neg", "pos"], None),
        ("1e3000000", ["neg", "pos"], None),  # no number to be written out
        ("postive", ["negative", "positive"], None),
    ],
)
def test_a_name_goes_before_an_index(label: str | int, names: list[str], want: str | None) -> None:
    found = position(label, names)
    assert (None if found is None else names[found]) == want


def test_the_hint_guesses_words_and_no_numbers() -> None:
    assert hint(-1, TEN) == "there are: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    assert hint("100", TEN) == "there are: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    assert hint("postive", ["negative", "positive"]) == "did you mean 'positive'?"
    assert shown([str(i) for i in range(99)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..., 98"


def classifier(labels: list[str], **settings: object) -> ClassifierReward:
    return ClassifierReward.of(SimpleNamespace(labels=labels), **settings)


def test_a_run_says_which_class_counts() -> None:
    last, chosen = classifier(TEN, path="rm"), classifier(TEN, label=1, path="rm")
    alone = classifier(["score"])
    agent = SimpleNamespace(
        rewards=SimpleNamespace(rewards={"a": last, "b": alone}),
        judges=SimpleNamespace(rewards={"c": chosen}),
    )
    assert _rewarded(agent) == [  # type: ignore[arg-type]
        "reward a: class '10' counts, of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 (rm)",
        "judge c: class '1' counts, of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 (rm)",
    ]
    both = EnsembleReward.of([classifier(["a", "b"], path="x"), classifier(["b", "a"], path="y")])
    assert both.told == "class 'b' counts, of a, b (x); class 'a' counts, of b, a (y)"


def test_no_such_label_is_one_line_with_the_classes() -> None:
    with pytest.raises(UserError, match=r"rm has no label -1; there are: 1, 2, 3, .*, 10$"):
        classifier(TEN, label=-1, path="rm").prepare()
