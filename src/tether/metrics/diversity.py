"""Diversity and length of texts: what a reward that repeats itself lowers.

Words are lower-cased; punctuation counts as a word of its own unless `punctuation` is off, as in
GEM-metrics. The value of a corpus is over all its words or n-grams and is no mean of the samples'
values; it changes with the size of the corpus, so compare equal numbers of texts.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored
from tether.metrics.text import common_ngram_share, distinct_n, ngrams
from tether.metrics.words import tokens, words


@dataclass
class _Diversity(Metric):
    punctuation: bool = True
    """Count punctuation marks as words."""

    needs_references: ClassVar[bool] = False
    seconds_per_1000: ClassVar[float] = 1.0

    def units(self, text: str) -> list[str]:
        """The words of one text."""
        return tokens(text) if self.punctuation else words(text)

    @abstractmethod
    def of(self, texts: Sequence[Sequence[str]]) -> Scored:
        """Value and parts of texts as lists of words."""

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        return [self.of([self.units(r.text)]) for r in rows]

    def corpus(self, rows: Sequence[Row], scores: Sequence[Scored]) -> Scored:
        return self.of([self.units(r.text) for r in rows])


@dataclass
class _Ngrams(_Diversity):
    n: int = 1
    """Words in an n-gram."""

    def check(self) -> None:
        if self.n < 1:
            raise UserError(f"{self.name}: n is {self.n}; it must be at least 1")


@dataclass
class DistinctN(_Ngrams):
    """Different n-grams / n-grams; 0 without any. A text of one word repeated has the least.

    Source: Li et al. 2016, "A Diversity-Promoting Objective Function", distinct-1 and distinct-2,
    over the corpus.
    """

    name: ClassVar[str] = "distinct_n"

    def of(self, texts: Sequence[Sequence[str]]) -> Scored:
        return (distinct_n(texts, self.n),)


@dataclass
class Distinct1(DistinctN):
    """distinct-1: different words / words, over the corpus."""

    name: ClassVar[str] = "distinct_1"


@dataclass
class Distinct2(DistinctN):
    """distinct-2: different pairs of neighbouring words / pairs, over the corpus."""

    n: int = 2
    """Words in an n-gram."""

    name: ClassVar[str] = "distinct_2"


@dataclass
class CommonNgramShare(_Ngrams):
    """Share of all n-grams that are one of the k commonest: near 1 when every prompt gets the same
    phrases."""

    n: int = 4
    """Words in an n-gram."""
    k: int = 10
    """How many of the commonest."""

    name: ClassVar[str] = "common_ngram_share"
    higher_is_better: ClassVar[bool] = False

    def of(self, texts: Sequence[Sequence[str]]) -> Scored:
        return (common_ngram_share(texts, self.n, self.k),)


@dataclass
class NgramEntropy(_Ngrams):
    """Shannon entropy of the distribution of n-grams, bits: - sum p log2 p; 0 without any.

    Source: GEM-metrics (`entropy-n`), which RL4LMs prints; base 2 as there.
    """

    name: ClassVar[str] = "ngram_entropy"
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def of(self, texts: Sequence[Sequence[str]]) -> Scored:
        counts = _counts(texts, self.n)
        total = counts.total()
        return (math.fsum(-c / total * math.log2(c / total) for c in counts.values()) + 0.0,)


@dataclass
class UniqueNgrams(_Ngrams):
    """How many n-grams occur exactly once; `vocabulary` is how many different ones there are.

    Source: GEM-metrics (`unique-n`, `vocab_size-n`).
    """

    name: ClassVar[str] = "unique_ngrams"
    parts: ClassVar[tuple[str, ...]] = ("vocabulary",)
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def of(self, texts: Sequence[Sequence[str]]) -> Scored:
        counts = _counts(texts, self.n)
        return (float(sum(c == 1 for c in counts.values())), float(len(counts)))


@dataclass
class MSTTR(_Diversity):
    """Mean segmental type-token ratio: all texts as one, cut into segments of `window` words; mean
    over whole segments of different words / words. With fewer words than a segment, their own ratio
    (GEM-metrics gives NaN); 0 without any.

    Source: Johnson 1944, "Studies in Language Behavior"; GEM-metrics (`msttr-100`).
    """

    window: int = 100
    """Words in a segment."""

    name: ClassVar[str] = "msttr"
    parts: ClassVar[tuple[str, ...]] = ("segments",)

    def check(self) -> None:
        if self.window < 1:
            raise UserError(f"msttr: window is {self.window}; it must be at least 1")

    def of(self, texts: Sequence[Sequence[str]]) -> Scored:
        every = list(itertools.chain.from_iterable(texts))
        if not every:
            return (0.0, 0.0)
        size = self.window
        cut = [every[i : i + size] for i in range(0, len(every) - size + 1, size)]
        ratios = [len(set(s)) / len(s) for s in cut or [every]]
        return (math.fsum(ratios) / len(ratios), float(len(cut)))


@dataclass
class Length(_Diversity):
    """Mean length of the texts."""

    unit: Literal["words", "characters"] = "words"
    """Words with punctuation marks (`punctuation`), or characters."""

    name: ClassVar[str] = "length"
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def units(self, text: str) -> list[str]:
        return list(text) if self.unit == "characters" else super().units(text)

    def of(self, texts: Sequence[Sequence[str]]) -> Scored:
        return (math.fsum(map(len, texts)) / len(texts),)


def _counts(texts: Sequence[Sequence[str]], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(g for t in texts for g in ngrams(t, n))
