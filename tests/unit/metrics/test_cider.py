"""CIDEr-D: a hand calculation, pycocoevalcap's numbers, document frequencies in a file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tether.config.errors import UserError
from tether.metrics.base import Samples
from tether.metrics.cider import CiderD, DocumentFrequencies, frequencies_of_column

REFERENCES = [
    ["a dog runs in the park", "the dog is running through a park"],
    ["two men play chess", "men playing a game of chess in a room"],
    ["a red car drives down the street"],
    ["a woman holds a small dog"],
]
TEXTS = [
    "a dog runs in the park",
    "two men play a game of chess",
    "car",
    "a dog a dog a dog a dog a dog holds a woman",
]
PYCOCOEVALCAP = [5.52565016, 3.695044, 0.6617792, 0.72072327]
"""pycocoevalcap 1.2, `Cider().compute_score` on these texts, 2026-11-28."""


def test_pycocoevalcaps_numbers() -> None:
    result = CiderD()(Samples(TEXTS, REFERENCES))
    assert result.per_sample == pytest.approx(PYCOCOEVALCAP, abs=1e-7)
    assert result.value == pytest.approx(sum(PYCOCOEVALCAP) / 4, abs=1e-7)


def test_pycocoevalcap_itself_on_more_texts() -> None:
    cider = pytest.importorskip("pycocoevalcap.cider.cider", reason="pycocoevalcap is absent")
    words = [
        "a",
        "the",
        "dog",
        "cat",
        "man",
        "runs",
        "sits",
        "on",
        "in",
        "park",
        "red",
        "wet",
        "up",
    ]
    texts = [" ".join(words[(i * j + i) % 13] for j in range(3 + i % 7)) for i in range(40)]
    references = [
        [
            " ".join(words[(i * j + k) % 13] for j in range(4 + (i + k) % 5))
            for k in range(1 + i % 3)
        ]
        for i in range(40)
    ]
    _, want = cider.Cider().compute_score(
        dict(enumerate(references)), {i: [t] for i, t in enumerate(texts)}
    )
    got = CiderD(tokens="split")(Samples(texts, references)).per_sample
    assert got == pytest.approx(list(want), abs=1e-9)
    assert max(got or []) > 1.0


def test_by_hand() -> None:
    # N = 2; order 1 only. cat is in one set, a in both: weights log 2 and 0
    references = [["a cat"], ["a dog"]]
    both = CiderD(order=1)(Samples(["cat", "a"], references))
    # cosine of (log 2) with (log 2) is 1, lengths 1 and 2: exp(-1 / 72)
    assert both.per_sample == pytest.approx([10 * math.exp(-1 / 72), 0.0])


def test_repeating_a_word_is_clipped() -> None:
    references = [["a cat sat"], ["dogs bark"]]
    once, twice = (
        CiderD(order=1)(Samples([text, "x"], references)).per_sample or []
        for text in ("cat", "cat cat")
    )
    assert twice[0] < once[0] * 1.01  # min() keeps the count; the norm grows with it


def test_a_set_of_references_counts_once() -> None:
    several = Samples([*TEXTS, TEXTS[0], "park"], [*REFERENCES, REFERENCES[0], REFERENCES[0]])
    got = CiderD()(several).per_sample or []
    assert got[:4] == pytest.approx(PYCOCOEVALCAP, abs=1e-7)
    assert got[4] == got[0]
    assert DocumentFrequencies.of([["a"], ["a"], ["b"]]).documents == 2


def test_frequencies_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "df.json"
    found = DocumentFrequencies.of(REFERENCES)
    found.save(path)
    assert DocumentFrequencies.load(path) == found
    assert frequencies_of_column([*REFERENCES[:2], "a red car drives down the street",
                                  REFERENCES[3]]) == found  # fmt: skip
    fixed = CiderD(frequencies=str(path))
    fixed.check()
    alone = fixed(Samples(TEXTS[:1], REFERENCES[:1])).per_sample
    assert alone == pytest.approx(PYCOCOEVALCAP[:1], abs=1e-7)  # whoever else is in the batch
    assert CiderD()(Samples(TEXTS[:1], REFERENCES[:1])).value == 0.0  # one set: all weights 0
    assert fixed.version.startswith("tether/1, frequencies 4:")
    assert fixed.version == CiderD(frequencies=str(path)).version
    assert fixed.no_reward == "" and "set `frequencies`" in CiderD().no_reward


def test_errors(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    DocumentFrequencies.of([["a"]], "split").save(tmp_path / "split.json")
    for name, message in {
        "none.json": "there is no file", "x.json": "holds no document frequencies",
        "split.json": "counts split up to 4-grams, the metric words",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=message):
            CiderD(frequencies=str(tmp_path / name)).check()
    with pytest.raises(UserError, match="order 0"):
        CiderD(order=0).check()


def test_equal_texts_are_not_above_the_maximum() -> None:
    texts = ["the two play two park", "park play two park a", "play two in chess a"]
    found = CiderD()(Samples(texts, [[t] for t in texts])).per_sample or []
    assert found == pytest.approx([10.0] * len(texts), abs=1e-9)
    assert max(found) <= 10.0  # not 10.000000000000002
