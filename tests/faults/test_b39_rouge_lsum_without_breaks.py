"""B39: ROUGE-Lsum reads sentences. Without any it is ROUGE-L under another name."""

from __future__ import annotations

import pytest

from tether.metrics.base import Samples
from tether.metrics.rouge import RougeL, RougeLsum

# two sentences, of two and three words, in the other order: the longest common run is three of five
REFERENCE = ("dogs bark", "the cat sat")


def value(metric: object, text: str, reference: str) -> float:
    (out,) = metric(Samples([text], [[reference]])).per_sample  # type: ignore[operator]
    return float(out)


def test_with_breaks_and_without() -> None:
    swapped, right = "\n".join(REFERENCE[::-1]), "\n".join(REFERENCE)
    for split in ("newline", "rule"):
        assert value(RougeLsum(split=split), swapped, right) == pytest.approx(1.0)  # type: ignore[arg-type]
    assert value(RougeL(), swapped, right) == pytest.approx(0.6)
    flat, right = " ".join(REFERENCE[::-1]), " ".join(REFERENCE)
    for metric in (RougeLsum(split="newline"), RougeLsum(split="rule"), RougeL()):
        assert value(metric, flat, right) == pytest.approx(0.6)


def test_sentences_are_split_where_there_are_no_breaks() -> None:
    swapped, right = ". ".join(REFERENCE[::-1]) + ".", ". ".join(REFERENCE) + "."
    assert value(RougeLsum(), swapped, right) == pytest.approx(1.0)
    assert value(RougeLsum(split="newline"), swapped, right) == pytest.approx(0.6)


def test_splitter_and_stemmer_are_in_the_signature() -> None:
    signatures = {
        m(Samples(["a"], [["a"]])).signature
        for m in (RougeL(), RougeLsum(), RougeLsum(split="newline"), RougeLsum(stemmer=False))
    }
    assert len(signatures) == 4
    assert any("split=rule|stemmer=True" in s for s in signatures)
