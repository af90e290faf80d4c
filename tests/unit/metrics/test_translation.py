"""BLEU, SacreBLEU, chrF and TER: by hand, pooled over the corpus, equal to the library."""

from __future__ import annotations

import math

import pytest

from tether.config.errors import UserError
from tether.metrics.base import Metric, Samples
from tether.metrics.translation import TER, Bleu, ChrF, SacreBleu

TEXTS = ["the cat sat on the mat today", "a dog", "there is nothing here"]
REFERENCES = [
    ["the cat sat on a mat today", "a cat sat on the mat"],
    ["the dog"],
    ["nothing is here", "here there is nothing", "no thing"],
]


def test_bleu_by_hand() -> None:
    # precisions 4/5, 3/4, 2/3, 1/2 and equal lengths
    text, reference = "a b c d x", "a b c d y"
    want = (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert Bleu()(Samples([text], [[reference]])).per_sample == pytest.approx([want])
    short = Bleu(order=2)(Samples(["a b c"], [["a b c d e"]])).value
    assert short == pytest.approx(math.exp(1 - 5 / 3))  # brevity penalty alone


def test_bleu_is_not_smoothed_and_sacre_bleu_is() -> None:
    pair = Samples(["a b x"], [["a b c"]])
    assert Bleu()(pair).per_sample == [0.0]  # no 3-gram in common, no 4-gram at all
    # orders 1 to 3: 2/3, 1/2, and 1/(2 * 1) for the empty one
    want = (2 / 3 * 1 / 2 * 1 / 2) ** (1 / 3)
    assert SacreBleu()(pair).per_sample == pytest.approx([want])
    assert Bleu(order=3)(Samples(["a b c"], [["a b c"]])).per_sample == pytest.approx([1.0])


def test_bleu_corpus_pools_counts() -> None:
    # 2 + 1 of 2 + 2 words, 1 + 0 of 1 + 1 pairs: sqrt(3/4 * 1/2)
    result = Bleu(order=2)(Samples(["a b", "a x"], [["a b"], ["a y"]]))
    assert result.value == pytest.approx(math.sqrt(3 / 8))
    assert result.per_sample == pytest.approx([1.0, 0.0])


def test_ter_by_hand() -> None:
    # one substitution against the first reference, words 4
    result = TER()(Samples(["a b c x"], [["a b c d", "p q r s"]]))
    assert result.per_sample == pytest.approx([1 / 4])
    assert result.parts == {"edits": 1.0, "words": 4.0}
    two = TER()(Samples(["a b c x", "y"], [["a b c d"], ["a b"]]))
    assert two.value == pytest.approx(3 / 6)  # not the mean of 1/4 and 1
    assert TER().as_reward(0.25) == 0.75
    assert TER()(Samples(["b c a"], [["a b c"]])).per_sample == pytest.approx([1 / 3])  # a shift
    assert TER()(Samples([""], [["a b c"]])).per_sample == [1.0]


def test_chrf_by_hand() -> None:
    # characters a, b against a, c: P = R = 1/2 at order 1; nothing at order 2: mean over orders .25
    assert ChrF(order=2)(Samples(["ab"], [["ac"]])).per_sample == pytest.approx([0.25], abs=1e-6)
    assert ChrF()(Samples(["same text"], [["other", "same text"]])).value == pytest.approx(1.0)


@pytest.mark.parametrize("metric", [SacreBleu(), ChrF(), ChrF(words=2), TER()])
def test_the_librarys_corpus_numbers(metric: object) -> None:
    from sacrebleu import metrics

    theirs = {
        "sacre_bleu": metrics.BLEU(),
        "chrf": metrics.CHRF(word_order=getattr(metric, "words", 0)),
        "ter": metrics.TER(),
    }[metric.name]  # type: ignore[attr-defined]
    streams = [[r[i] if i < len(r) else None for r in REFERENCES] for i in range(3)]
    want = theirs.corpus_score(TEXTS, streams).score / 100
    assert metric(Samples(TEXTS, REFERENCES)).value == pytest.approx(want)  # type: ignore[operator]


def test_settings() -> None:
    assert Bleu(order=1, lowercase=True)(Samples(["A B"], [["a b"]])).value == pytest.approx(1.0)
    assert Bleu(order=1)(Samples(["a."], [["a ."]])).value == pytest.approx(1.0)  # 13a splits
    assert Bleu(order=1, tokens="none")(Samples(["a."], [["a ."]])).value == 0.0
    with pytest.raises(UserError, match="order is 0"):
        Bleu(order=0).check()
    for setting, least in (("order", 1), ("words", 0), ("beta", 0)):
        with pytest.raises(UserError, match=f"chrf: {setting} is {least - 1}; it must be at least"):
            ChrF(**{setting: least - 1}).check()
        ChrF(**{setting: least}).check()


def test_a_hint_of_the_library_is_given_once(capfd: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, since another test may have had it."""
    import subprocess
    import sys

    code = (
        "from tether.metrics.base import Metric, Samples\n"
        "from tether.metrics.translation import Bleu, SacreBleu\n"
        "rows = Samples(['a cat .'] * 120, [['a cat .']] * 120)\n"
        "for metric in (SacreBleu(), SacreBleu(), Bleu()):\n"
        "    metric(rows), metric(rows)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    found = capfd.readouterr()
    said = (found.out + found.err).splitlines()
    assert sum("tokenized period" in line for line in said) == 1
    assert sum("forgot to detokenize" in line for line in said) == 1


@pytest.mark.parametrize("metric", [Bleu(), SacreBleu(), ChrF(), ChrF(words=2)])
def test_equal_texts_are_not_above_the_maximum(metric: Metric) -> None:
    texts = ["the cat sat on the mat today", "there is nothing here", "a b c d e f g"]
    result = metric(Samples(texts, [[t] for t in texts]))
    assert result.value == 1.0 and result.per_sample == [1.0] * 3  # not 1.0000000000000004
