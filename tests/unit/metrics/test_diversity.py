"""Diversity by hand."""

from __future__ import annotations

import pytest

from tether.config.errors import UserError
from tether.metrics.base import Metric, Samples
from tether.metrics.diversity import (
    MSTTR,
    CommonNgramShare,
    Distinct1,
    Distinct2,
    DistinctN,
    Length,
    NgramEntropy,
    UniqueNgrams,
)

TEXTS = Samples(["a a b", "", "c"])


@pytest.mark.parametrize(
    ("metric", "value", "each"),
    [
        (Distinct1(), 3 / 4, [2 / 3, 0.0, 1.0]),
        (Distinct2(), 1.0, [1.0, 0.0, 0.0]),
        (DistinctN(n=3), 1.0, [1.0, 0.0, 0.0]),
        # p = 1/2, 1/4, 1/4: 1.5 bits; 2/3, 1/3: .9183
        (NgramEntropy(), 1.5, [0.9182958340544896, 0.0, 0.0]),
        (UniqueNgrams(), 2.0, [1.0, 0.0, 1.0]),
        (CommonNgramShare(n=1, k=1), 0.5, [2 / 3, 0.0, 1.0]),
        (Length(), 4 / 3, [3.0, 0.0, 1.0]),
        (Length(unit="characters"), 2.0, [5.0, 0.0, 1.0]),
        # segments of two words: a a | b c -> 1/2 and 1; of one text: a a, the rest is left out
        (MSTTR(window=2), 0.75, [0.5, 0.0, 1.0]),
        (MSTTR(), 0.75, [2 / 3, 0.0, 1.0]),
    ],
)
def test_by_hand(metric: Metric, value: float, each: list[float]) -> None:
    result = metric(TEXTS)
    assert result.value == pytest.approx(value)
    assert result.per_sample == pytest.approx(each)


def test_parts_and_punctuation() -> None:
    assert UniqueNgrams()(TEXTS).parts == {"vocabulary": 3.0}
    assert MSTTR(window=2)(TEXTS).parts == {"segments": 2.0}
    assert Length()(Samples(["Yes, no."])).value == 4.0
    assert Length(punctuation=False)(Samples(["Yes, no."])).value == 2.0
    assert Distinct1()(Samples(["A a"])).value == 0.5


def test_settings_are_checked() -> None:
    for metric in (DistinctN(n=0), MSTTR(window=0)):
        with pytest.raises(UserError, match="must be at least 1"):
            metric.check()
