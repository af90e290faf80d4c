"""CommonGen's coverage: which of the given concepts a text uses, in any inflection.

    coverage = concepts that the text contains / concepts

The leaderboard lemmatises with spaCy. Here a word uses a concept where both have the same stem
(Porter) or the same base form (a table of irregular English verbs and nouns): no model, no data
file. On the references of CommonGen, which people wrote to contain all concepts, docs/metrics.md
gives the share that is found.
Source: Lin et al. 2020, "CommonGen", section 5 ("Coverage: the average percentage of input concepts
that are present in lemmatized outputs").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from tether.metrics.base import Metric, Row, Scored, missing, shown
from tether.metrics.irregular import BASE
from tether.metrics.words import words


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as e:
        raise missing("coverage", "nltk", "pip install nltk") from e
    return PorterStemmer()


@lru_cache(maxsize=100_000)
def forms(word: str) -> frozenset[str]:
    """What a lower-cased word is compared by: its base form and their stems."""
    word = word.removesuffix("'s").removesuffix("’s")
    bases = {word, *BASE.get(word, ())}
    stem = _stemmer().stem
    return frozenset(bases | {stem(b) for b in bases})


def used(text: str, concepts: Sequence[str]) -> list[bool]:
    """Of each concept (one or several words, all of them needed), whether the text uses it."""
    there: set[str] = set()
    for word in words(text):
        for piece in {word, *word.split("-")}:
            there |= forms(piece)
    return [
        bool(parts) and all(forms(p) & there for p in parts)
        for parts in (words(c) for c in concepts)
    ]


def missing_concepts(text: str, concepts: Sequence[str]) -> int:
    """How many concepts the text does not use."""
    return sum(not x for x in used(text, concepts))


@dataclass
class Coverage(Metric):
    """Share of the given concepts that a text uses, in any inflection; 0 for an empty text."""

    concepts: str = "concepts"
    """Column of lists of concepts."""

    name: ClassVar[str] = "coverage"
    needs_references: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]] = ("complete",)
    """Share of texts that use every concept."""
    seconds_per_1000: ClassVar[float] = 1.5

    def columns(self) -> tuple[str, ...]:
        return (self.concepts,)

    def check(self) -> None:
        _stemmer()

    def refuses(self, row: Row) -> str:
        given = row.extra[0]
        if isinstance(given, tuple) and given and all(map(_is_word, given)):
            return ""
        return f"holds {shown(given):.60} in {self.concepts!r}, expected a list of concepts"

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        out: list[Scored] = []
        for row in rows:
            found = used(row.text, row.extra[0])
            out.append((sum(found) / len(found), float(all(found))))
        return out


def _is_word(x: Any) -> bool:
    return isinstance(x, str) and bool(words(x))
