"""ROUGE by the library rouge-score: n-grams, longest common subsequence, and its summary form.

    rouge_n      F1 of clipped n-gram counts
    rouge_l      F1 of the longest common subsequence of the two whole texts
    rouge_lsum   F1 of the union of the sentences' longest common subsequences; without sentences
                 of its own a text is one, and the value is rouge_l's (B39)
    rouge_l_max  rouge_l of the best reference

Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", sections 2 and 3;
implementation google-research/google-research, rouge (package rouge-score).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

from tether.metrics.base import Metric, Row, Scored, missing
from tether.metrics.words import sentences

_UNICODE = re.compile(r"[^\W_]+")


class _UnicodeTokens:
    """Letters and digits of any script, lower-cased, with the stemmer of rouge-score's tokenizer
    (words of more than three characters)."""

    def __init__(self, stemmer: Any) -> None:
        self._stemmer = stemmer

    def tokenize(self, text: str) -> list[str]:
        words = _UNICODE.findall(text.lower())
        if self._stemmer is None:
            return words
        return [self._stemmer.stem(w) if len(w) > 3 else w for w in words]


class _Remembering:
    """A tokenizer that reads a text once: references come back with every completion."""

    def __init__(self, inner: Any) -> None:
        self.tokenize = lru_cache(maxsize=20_000)(inner.tokenize)


@dataclass
class _Rouge(Metric):
    """What all of ROUGE shares."""

    stemmer: bool = True
    """Porter stemmer, as RL4LMs and most work on CNN/DM; the library's own default is off."""
    tokens: Literal["ascii", "unicode"] = "ascii"
    """ascii: rouge-score's own tokens, a-z and 0-9 only, so that other scripts and umlauts vanish;
    published numbers use it. unicode: letters and digits of any script."""
    value: Literal["f1", "precision", "recall"] = "f1"
    """Which of the three is the value; all three means are in `parts`."""

    package: ClassVar[str] = "rouge-score"
    parts: ClassVar[tuple[str, ...]] = ("precision", "recall", "f1")
    seconds_per_1000: ClassVar[float] = 4.0
    kind: ClassVar[str] = ""
    """The library's name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scorer: Any = None

    def check(self) -> None:
        self._library()

    def prepare(self) -> None:
        rouge_scorer, tokenizers, porter = self._library()
        inner: Any = tokenizers.DefaultTokenizer(self.stemmer)
        if self.tokens == "unicode":
            inner = _UnicodeTokens(porter.PorterStemmer() if self.stemmer else None)
        self._scorer = rouge_scorer.RougeScorer([self.kind], tokenizer=_Remembering(inner))

    def _library(self) -> tuple[Any, Any, Any]:
        try:
            from nltk.stem import porter
            from rouge_score import rouge_scorer, tokenizers
        except ImportError as e:
            raise missing(self.name, self.package, "pip install rouge-score") from e
        return rouge_scorer, tokenizers, porter

    def text(self, text: str) -> str:
        """What the library is given."""
        return text

    def one(self, text: str, reference: str) -> Scored:
        """Value, precision, recall and F1 of one pair; 0 where either has no word."""
        found = self._scorer.score(self.text(reference), self.text(text))[self.kind]
        p, r, f = float(found.precision), float(found.recall), float(found.fmeasure)
        return ({"f1": f, "precision": p, "recall": r}[self.value], p, r, f)

    def over(self, scores: Sequence[Scored]) -> Scored:
        """One score from those against each reference: the best."""
        return max(scores, key=lambda s: s[0])

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        if self._scorer is None:
            self.prepare()
        return [self.over([self.one(r.text, x) for x in r.references]) for r in rows]


@dataclass
class _Several(_Rouge):
    several: Literal["max", "mean", "first"] = "max"
    """Of several references: the best one (rouge-score's `score_multi`), the mean over them, or the
    first alone (RL4LMs)."""

    def over(self, scores: Sequence[Scored]) -> Scored:
        if self.several == "max":
            return super().over(scores)
        if self.several == "first":
            return scores[0]
        return tuple(sum(x) / len(scores) for x in zip(*scores, strict=True))


@dataclass
class Rouge1(_Several):
    """ROUGE-1: F1 of words."""

    name: ClassVar[str] = "rouge_1"
    kind: ClassVar[str] = "rouge1"


@dataclass
class Rouge2(_Several):
    """ROUGE-2: F1 of pairs of words; 0 for a text of one word."""

    name: ClassVar[str] = "rouge_2"
    kind: ClassVar[str] = "rouge2"


@dataclass
class RougeL(_Several):
    """ROUGE-L: F1 of the longest common subsequence of the whole texts."""

    name: ClassVar[str] = "rouge_l"
    kind: ClassVar[str] = "rougeL"


@dataclass
class RougeLsum(_Several):
    """ROUGE-Lsum: F1 of the union of longest common subsequences over sentences."""

    split: Literal["rule", "newline"] = "rule"
    """Sentences: after `.`, `!`, `?` and at line breaks (`tether.metrics.words.sentences`), or at
    line breaks only, as the library."""

    name: ClassVar[str] = "rouge_lsum"
    kind: ClassVar[str] = "rougeLsum"
    seconds_per_1000: ClassVar[float] = 6.0

    def text(self, text: str) -> str:
        return "\n".join(sentences(text)) if self.split == "rule" else text


@dataclass
class RougeLMax(_Rouge):
    """ROUGE-L of the best reference, whatever their number: NarrativeQA's measure."""

    name: ClassVar[str] = "rouge_l_max"
    kind: ClassVar[str] = "rougeL"
