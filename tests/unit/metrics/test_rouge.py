"""ROUGE by hand, and equal to the library called directly."""

from __future__ import annotations

import pytest

from tether.metrics.base import Samples
from tether.metrics.rouge import Rouge1, Rouge2, RougeL, RougeLMax, RougeLsum

TEXT, REFERENCE = "the cat sat on the mat", "the cat is on a mat"
# common words: the, cat, on, mat = 4 of 6; pairs: the cat = 1 of 5; subsequence the cat on mat = 4


def one(metric: object, text: str, *references: str) -> float:
    (value,) = metric(Samples([text], [list(references)])).per_sample  # type: ignore[operator]
    return float(value)


def test_by_hand() -> None:
    assert one(Rouge1(), TEXT, REFERENCE) == pytest.approx(4 / 6)
    assert one(Rouge2(), TEXT, REFERENCE) == pytest.approx(1 / 5)
    assert one(RougeL(), TEXT, REFERENCE) == pytest.approx(4 / 6)
    assert one(RougeL(), "mat the on sat cat the", REFERENCE) == pytest.approx(2 / 6)
    result = Rouge1()(Samples(["the cat"], [[REFERENCE]]))
    assert result.parts == pytest.approx({"precision": 1.0, "recall": 2 / 6, "f1": 0.5})
    assert one(Rouge1(value="recall"), "the cat", REFERENCE) == pytest.approx(2 / 6)


def test_several_references() -> None:
    texts = ("a b", "a c", "x y")  # F1 of "a b": 1, .5, 0
    for several, want in (("max", 1.0), ("mean", 0.5), ("first", 1.0)):
        assert one(Rouge1(several=several), "a b", *texts) == pytest.approx(want)  # type: ignore[arg-type]
    assert one(Rouge1(several="first"), "a b", *texts[::-1]) == 0.0
    assert one(RougeLMax(), "a b", *texts[::-1]) == 1.0


def test_stemmer_and_scripts() -> None:
    assert one(Rouge1(), "cats running", "cat runs") == 1.0
    assert one(Rouge1(stemmer=False), "cats running", "cat runs") == 0.0
    assert one(Rouge1(), "猫 犬", "猫 犬") == 0.0  # the library's tokens are a-z and 0-9
    assert one(Rouge1(tokens="unicode"), "猫 犬", "猫 鳥") == 0.5
    assert one(Rouge1(tokens="unicode"), "größer cats", "größer cat") == 1.0


@pytest.mark.parametrize("stemmer", [True, False])
def test_the_librarys_numbers(stemmer: bool) -> None:
    from rouge_score import rouge_scorer

    kinds = {"rouge1": Rouge1, "rouge2": Rouge2, "rougeL": RougeL, "rougeLsum": RougeLsum}
    pairs = [
        ("Police killed the gunman.\nHe ran.", "The gunman was killed.\nPolice ran after him."),
        ("one two three", "three two one"),
        ("", "something"),
    ]
    theirs = rouge_scorer.RougeScorer(list(kinds), use_stemmer=stemmer)
    for kind, cls in kinds.items():
        settings = {"split": "newline"} if cls is RougeLsum else {}
        for text, reference in pairs:
            want = theirs.score(reference, text)[kind].fmeasure
            assert one(cls(stemmer=stemmer, **settings), text, reference) == pytest.approx(want)
