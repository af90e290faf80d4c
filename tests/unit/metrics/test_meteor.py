"""METEOR by hand, with a WordNet of one synset."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wordnet_for_tests import write_wordnet
from tether.config.errors import UserError
from tether.metrics.base import Samples
from tether.metrics.meteor import Meteor, _lexnames

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
(CARD,) = (x for x in PAGE.read_text(encoding="utf-8").splitlines() if x.startswith("| `meteor` |"))


def one(metric: Meteor, text: str, *references: str) -> float:
    (value,) = metric(Samples([text], [list(references)])).per_sample or [None]
    assert value is not None
    return value


@pytest.mark.parametrize("wrong", [{"alpha": -0.1}, {"alpha": 1.1}, {"gamma": 2.0}, {"beta": -1.0}])
def test_settings_beyond_their_range(wrong: dict[str, float]) -> None:
    with pytest.raises(
        UserError, match=r"meteor: alpha .* must be in \[0, 1\], beta .* at least 0"
    ):
        Meteor(synonyms=False, **wrong).check()  # type: ignore[arg-type]


def test_by_hand_without_synonyms() -> None:
    plain = Meteor(synonyms=False)
    # 3 of 4 words match, in 2 chunks: .75 (1 - .5 (2/3)^3)
    assert one(plain, "a b c d", "a b x d") == pytest.approx(0.75 * (1 - 0.5 * (2 / 3) ** 3))
    # P = 1, R = 1/2: F = PR / (.9 P + .1 R) = .5 / .95; one chunk of two words
    short = 0.5 / (0.9 + 0.05) * (1 - 0.5 * (1 / 2) ** 3)
    assert one(plain, "a b", "a b c d") == pytest.approx(short)
    assert one(plain, "cats", "cat") == pytest.approx(0.5)  # a stem; one word is one chunk
    assert one(plain, "a b c d", "z", "a b x d") > one(plain, "a b c d", "z", "a x y z")
    assert one(plain, "a", "b") == 0.0
    assert one(Meteor(synonyms=False, gamma=0.0), "a c", "c a") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("alpha", "f"), [(1.0, 1 / 2), (0.0, 1.0), (0.5, 2 / 3), (0.9, 10 * 0.5 / (0.5 + 9))]
)
def test_alpha_weighs_recall(alpha: float, f: float) -> None:
    """P = 1, R = 1/2: alpha 1 is recall, 0 precision, 1/2 their harmonic mean, and .9 the mean of
    Banerjee and Lavie 2005, 10 P R / (R + 9 P). The other way about: P = 1/2, R = 1."""
    metric = Meteor(synonyms=False, gamma=0.0, alpha=alpha)
    assert one(metric, "a b", "a b c d") == pytest.approx(f)
    turned = 0.5 / (alpha * 0.5 + (1 - alpha) * 1)
    assert one(metric, "a b c d", "a b") == pytest.approx(turned)
    assert "alpha: weight of recall" in CARD


def test_sentences_are_split_before_words() -> None:
    plain = Meteor(synonyms=False, gamma=0.0)
    assert one(plain, "It ran. It sat.", "it ran . it sat .") == pytest.approx(1.0)


def test_synonyms_come_from_wordnet(tmp_path: Path) -> None:
    metric = Meteor(wordnet=str(write_wordnet(tmp_path / "wordnet")))
    assert one(metric, "car", "auto") == pytest.approx(0.5)
    assert one(metric, "cars", "auto") == pytest.approx(0.5)  # WordNet's own base forms
    assert one(metric, "boat", "auto") == 0.0
    assert one(Meteor(synonyms=False), "car", "auto") == 0.0
    assert metric.version.endswith(", WordNet 9.9")
    assert "wordnet" not in metric.settings  # where it lies changes no number


def test_the_numbers_of_lexicographer_files() -> None:
    lines = _lexnames().splitlines()
    assert len(lines) == 45
    assert lines[0] == "00\tadj.all\t3" and lines[6] == "06\tnoun.artifact\t1"
    assert lines[29] == "29\tverb.body\t2" and lines[44] == "44\tadj.ppl\t3"


def test_synonyms_are_looked_up_among_stems(tmp_path: Path) -> None:
    """nltk's rule, which the docstring names: should it change, so do all numbers."""
    folder = write_wordnet(tmp_path / "wordnet")
    for name in ("data.noun", "index.noun"):
        file = folder / name
        file.write_text(file.read_text().replace("auto", "automobile"))
    assert one(Meteor(wordnet=str(folder)), "car", "automobile") == 0.0
