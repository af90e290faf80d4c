"""BLEU, SacreBLEU, chrF and TER by the library sacrebleu, as shares: sacrebleu's number / 100.

Corpus values are pooled over the corpus by the library, from its counts; they are not means of the
samples' values. Any number of references a sample, and not the same number for all.
"""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored, missing

Tokens = Literal["13a", "none", "intl", "char", "zh"]


class _Once(logging.Filter):
    """The library has a hint on text that looks tokenised, at every call: the first is enough where
    a benchmark measures twenty parts of each cell."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        new = said not in self._said
        self._said.add(said)
        return new


_ONCE = _Once()


@dataclass
class _Sacre(Metric):
    package: ClassVar[str] = "sacrebleu"
    seconds_per_1000: ClassVar[float] = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scorers: tuple[Any, Any] | None = None

    def check(self) -> None:
        self._library()

    def prepare(self) -> None:
        self._scorers = self.scorers(self._library())

    def _library(self) -> Any:
        try:
            from sacrebleu import metrics
        except ImportError as e:
            raise missing(self.name, self.package, "pip install sacrebleu") from e
        logging.getLogger("sacrebleu").addFilter(_ONCE)
        return metrics

    @abstractmethod
    def scorers(self, library: Any) -> tuple[Any, Any]:
        """The library's metric for sentences and for a corpus."""

    def _pair(self) -> tuple[Any, Any]:
        if self._scorers is None:
            self.prepare()
        assert self._scorers is not None
        return self._scorers

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        sentence, _ = self._pair()
        return [
            (self._share(sentence.sentence_score(r.text, list(r.references)).score),) for r in rows
        ]

    def corpus(self, rows: Sequence[Row], scores: Sequence[Scored]) -> Scored:
        _, corpus = self._pair()
        most = max(len(r.references) for r in rows)
        streams = [
            [r.references[i] if i < len(r.references) else None for r in rows] for i in range(most)
        ]
        return (self._share(corpus.corpus_score([r.text for r in rows], streams).score),)

    def _share(self, score: float) -> float:
        """The library's number / 100. Its rounding makes 100.00000000000004 of equal texts: never
        above the largest value that the metric states."""
        return min(score / 100.0, self.bounds[1])


@dataclass
class Bleu(_Sacre):
    """BLEU of Papineni et al.: brevity penalty times the geometric mean of clipped n-gram
    precisions, without smoothing; a text without a common n-gram of the largest order has 0.

    Source: Papineni et al. 2002, section 2.3; the closest reference's length counts.
    """

    order: int = 4
    """Largest n-gram: 3 and 4 are CommonGen's BLEU-3 and BLEU-4."""
    tokens: Tokens = "13a"
    """mteval-v13a; none = split at spaces, as RL4LMs."""
    lowercase: bool = False
    """Compare without case."""

    name: ClassVar[str] = "bleu"

    def check(self) -> None:
        super().check()
        if self.order < 1:
            raise UserError(f"bleu: order is {self.order}; it must be at least 1")

    def scorers(self, library: Any) -> tuple[Any, Any]:
        made = library.BLEU(
            lowercase=self.lowercase, tokenize=self.tokens, smooth_method="none",
            max_ngram_order=self.order,
        )  # fmt: skip
        return made, made

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        return [self.corpus([r], ()) for r in rows]  # a corpus of one: no order is left out


@dataclass
class SacreBleu(_Sacre):
    """SacreBLEU with its defaults: 13a tokens, case kept, exponential smoothing of empty orders;
    a sentence's value leaves out the orders that it is too short for.

    Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """

    tokens: Tokens = "13a"
    """sacrebleu's tokenizer: 13a, intl, char or zh; none = split at spaces."""
    lowercase: bool = False
    """Compare without case."""

    name: ClassVar[str] = "sacre_bleu"

    def scorers(self, library: Any) -> tuple[Any, Any]:
        same = {"lowercase": self.lowercase, "tokenize": self.tokens}
        return library.BLEU(effective_order=True, **same), library.BLEU(**same)


@dataclass
class ChrF(_Sacre):
    """chrF: F-score of character n-grams, recall weighted beta^2 times; with words chrF++.

    Source: Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation".
    """

    order: int = 6
    """Largest character n-gram."""
    words: int = 0
    """Largest word n-gram: 0 is chrF, 2 is chrF++."""
    beta: int = 2
    """Weight of recall over precision."""
    lowercase: bool = False
    """Compare without case."""

    name: ClassVar[str] = "chrf"
    seconds_per_1000: ClassVar[float] = 8.0

    def check(self) -> None:
        super().check()
        for what, least in (("order", 1), ("words", 0), ("beta", 0)):
            if getattr(self, what) < least:
                raise UserError(
                    f"chrf: {what} is {getattr(self, what)}; it must be at least {least}"
                )

    def scorers(self, library: Any) -> tuple[Any, Any]:
        made = library.CHRF(
            char_order=self.order, word_order=self.words, beta=self.beta, lowercase=self.lowercase
        )
        return made, made


@dataclass
class TER(_Sacre):
    """Translation edit rate: edits and shifts to the closest reference / mean length of the
    references; lower is better, and more than 1 is possible. As a reward: 1 - TER (RL4LMs).

    Source: Snover et al. 2006, "A Study of Translation Edit Rate with Targeted Human Annotation".
    """

    normalize: bool = False
    """Tercom's splitting of punctuation."""
    punctuation: bool = True
    """Keep punctuation."""
    case: bool = False
    """Compare upper and lower case as written."""

    name: ClassVar[str] = "ter"
    higher_is_better: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]] = ("edits", "words")
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)
    seconds_per_1000: ClassVar[float] = 20.0

    def scorers(self, library: Any) -> tuple[Any, Any]:
        made = library.TER(
            normalized=self.normalize, no_punct=not self.punctuation, case_sensitive=self.case
        )
        return made, made

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        sentence, _ = self._pair()
        found = [sentence.sentence_score(r.text, list(r.references)) for r in rows]
        return [(f.score / 100.0, float(f.num_edits), float(f.ref_length)) for f in found]

    def corpus(self, rows: Sequence[Row], scores: Sequence[Scored]) -> Scored:
        """All edits / all words, as the library pools them, without its second search."""
        edits, words = (math.fsum(s[i] for s in scores) for i in (1, 2))
        return (edits / words if words else float(edits > 0), edits, words)

    def as_reward(self, value: float) -> float:
        return 1.0 - value
