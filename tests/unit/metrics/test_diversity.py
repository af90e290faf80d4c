"""Diversity by hand, and the numbers of GEM-metrics."""

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


CORPUS = [
    "the dog runs in the park and the cat sits on the wall",
    "a man and a dog run in the park .",
    "the cat sits on the wall , and the dog sits in the park",
    "yes",
    "the the the the",
    "two dogs and two cats play in a wet park !",
]
GEM = {
    "distinct-1": 0.41509433962264153, "distinct-2": 0.723404255319149,
    "distinct-3": 0.8333333333333334, "vocab_size-2": 34.0, "unique-1": 11.0, "unique-2": 24.0,
    "entropy-1": 3.94734726885896, "entropy-2": 4.953213053667206, "entropy-3": 5.041010577489155,
    "mean_pred_length": 8.833333333333334, "msttr-5": 0.9, "msttr-10": 0.8,
}  # fmt: skip
NOPUNCT = {
    "distinct-1": 0.38, "distinct-2": 0.7045454545454546, "distinct-3": 0.8205128205128205,
    "vocab_size-2": 31.0, "unique-1": 8.0, "unique-2": 21.0, "entropy-1": 3.7564486129282315,
    "entropy-2": 4.817052925307968, "entropy-3": 4.907071770088826,
    "mean_pred_length": 8.333333333333334, "msttr-5": 0.86, "msttr-10": 0.78,
}  # fmt: skip
"""`NGramStats` and `MSTTR` of GEM-benchmark/GEM-metrics@8162210 on these words, with punctuation
and without (`-nopunct`), 2026-11-28. MSTTR is rounded there to 5 digits."""


@pytest.mark.parametrize("punctuation", [True, False])
def test_the_numbers_of_gem_metrics(punctuation: bool) -> None:
    found: dict[str, float | None] = {}
    samples = Samples(CORPUS)
    for n in (1, 2, 3):
        found[f"distinct-{n}"] = DistinctN(n=n, punctuation=punctuation)(samples).value
        found[f"entropy-{n}"] = NgramEntropy(n=n, punctuation=punctuation)(samples).value
        unique = UniqueNgrams(n=n, punctuation=punctuation)(samples)
        found |= {f"unique-{n}": unique.value, f"vocab_size-{n}": unique.parts["vocabulary"]}
    for window in (5, 10):
        found[f"msttr-{window}"] = MSTTR(window=window, punctuation=punctuation)(samples).value
    found["mean_pred_length"] = Length(punctuation=punctuation)(samples).value
    want = GEM if punctuation else NOPUNCT
    assert {k: found[k] for k in want} == pytest.approx(want, abs=1e-12)


def test_settings_are_checked() -> None:
    for metric in (DistinctN(n=0), MSTTR(window=0)):
        with pytest.raises(UserError, match="must be at least 1"):
            metric.check()
