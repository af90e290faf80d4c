"""CIDEr-D: consensus of a text with its references, n-grams weighted by how rare they are.

    g_n(x)   tf-idf vector of the n-grams of x: count(w) * (log N - log max(1, df(w)))
    sim_n    sum_w min(g_n(c)_w, g_n(r)_w) g_n(r)_w / (|g_n(c)| |g_n(r)|)
    CIDEr-D  10 / n_max * sum_n mean over references r of exp(-(|c| - |r|)^2 / (2 sigma^2)) sim_n

N = sets of references, df(w) = how many of them contain w. Source: Vedantam, Zitnick and Parikh
2015, "CIDEr: Consensus-based Image Description Evaluation", section 4 and "CIDEr-D" in section 7;
the numbers are those of pycocoevalcap 1.2 (`cider`), against which a test holds them.

Where the document frequencies come from decides the number: from the references that are given with
the samples (the evaluation's convention) or from a file. A reward must not depend on which samples
share its batch, so it needs the file.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from tether.config.errors import UserError
from tether.config.whole_file import write_whole
from tether.metrics.base import Metric, Row, Scored
from tether.metrics.text import ngrams
from tether.metrics.words import words

Gram = tuple[str, ...]
_FORMAT = "tether-document-frequencies-1"


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of `documents` sets of references an n-gram occurs."""

    documents: int
    counts: dict[Gram, int]
    tokens: str
    order: int

    @staticmethod
    def of(
        references: Iterable[Sequence[str]], tokens: str = "words", order: int = 4
    ) -> DocumentFrequencies:
        """Count. A set of references counts once however often it is given."""
        sets = {tuple(r) for r in references}
        counts: Counter[Gram] = Counter()
        for texts in sets:
            counts.update({g for t in texts for g in grams(t, tokens, order)})
        return DocumentFrequencies(len(sets), dict(counts), tokens, order)

    @cached_property
    def name(self) -> str:
        """`documents:checksum`, the same for the same counts."""
        lines = sorted(f"{' '.join(g)} {n}" for g, n in self.counts.items())
        return f"{self.documents}:{zlib.crc32(chr(10).join(lines).encode()):08x}"

    def idf(self, gram: Gram) -> float:
        """log N - log max(1, df), nats."""
        return math.log(self.documents) - math.log(max(1, self.counts.get(gram, 0)))

    def save(self, path: str | Path) -> None:
        """Write one JSON file, whole or not at all."""
        state = {
            "format": _FORMAT, "documents": self.documents, "tokens": self.tokens,
            "order": self.order,
            "counts": {" ".join(g): n for g, n in sorted(self.counts.items())},
        }  # fmt: skip
        write_whole(Path(path), json.dumps(state, ensure_ascii=False))

    @staticmethod
    def load(path: str | Path) -> DocumentFrequencies:
        """Read what `save` wrote. Raises UserError."""
        path = Path(path).expanduser()
        if not path.is_file():
            raise UserError(f"cider_d: there is no file {path} of document frequencies")
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            if state["format"] != _FORMAT:
                raise ValueError(f"format {state['format']!r}")
            counts = {tuple(k.split(" ")): int(n) for k, n in state["counts"].items()}
            documents, order = int(state["documents"]), int(state["order"])
            return DocumentFrequencies(documents, counts, str(state["tokens"]), order)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise UserError(f"cider_d: {path} holds no document frequencies ({e})") from e


def grams(text: str, tokens: str, order: int) -> Counter[Gram]:
    """Counts of all n-grams up to `order`."""
    units = words(text) if tokens == "words" else text.split()
    return Counter(tuple(map(str, g)) for n in range(1, order + 1) for g in ngrams(units, n))


@dataclass
class CiderD(Metric):
    """CIDEr-D, from 0 to 10: tf-idf consensus with the references."""

    frequencies: str = ""
    """File of `DocumentFrequencies.of(references).save(path)`. Empty: counted over the references
    that are measured together; with one set of references every weight, and the value, is 0."""
    order: int = 4
    """Largest n-gram."""
    sigma: float = 6.0
    """Width of the length penalty, words."""
    tokens: Literal["words", "split"] = "words"
    """words: lower-cased, without punctuation, as the tokenizer of the captioning code leaves them;
    split: at spaces, for text that is tokenised already."""

    name: ClassVar[str] = "cider_d"
    beside: ClassVar[tuple[str, ...]] = ("frequencies",)
    bounds: ClassVar[tuple[float, float]] = (0.0, 10.0)
    seconds_per_1000: ClassVar[float] = 6.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts = lru_cache(maxsize=20_000)(grams)
        self._frequencies: DocumentFrequencies | None = None

    @property
    def version(self) -> str:
        """With the document frequencies: of the samples, or how many of which content."""
        self.prepare()
        if self._frequencies is None:
            return f"{super().version}, frequencies of the samples"
        return f"{super().version}, frequencies {self._frequencies.name}"

    @property
    def cached(self) -> bool:
        return bool(self.frequencies)

    @property
    def no_reward(self) -> str:
        if self.frequencies:
            return ""
        return (
            "its weights would change with the batch; set `frequencies` to a file of "
            "DocumentFrequencies.of(references).save(path)"
        )

    def check(self) -> None:
        if self.order < 1 or self.sigma <= 0:
            raise UserError(
                f"cider_d: order {self.order} and sigma {self.sigma} must be at least 1 and above 0"
            )
        if self.frequencies:
            self.prepare()

    def prepare(self) -> None:
        if not self.frequencies or self._frequencies is not None:
            return
        found = DocumentFrequencies.load(self.frequencies)
        if (found.tokens, found.order) != (self.tokens, self.order):
            raise UserError(
                f"cider_d: {self.frequencies} counts {found.tokens} up to {found.order}-grams, the "
                f"metric {self.tokens} up to {self.order}"
            )
        self._frequencies = found

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        self.prepare()
        weights = self._frequencies or DocumentFrequencies.of(
            (r.references for r in rows), self.tokens, self.order
        )
        vector = lru_cache(maxsize=20_000)(lambda text: self._vector(text, weights))
        return [(self._one(vector(r.text), [vector(x) for x in r.references]),) for r in rows]

    def _vector(self, text: str, weights: DocumentFrequencies) -> _Vector:
        by_order: list[dict[Gram, float]] = [{} for _ in range(self.order)]
        length = 0
        for gram, count in self._counts(text, self.tokens, self.order).items():
            by_order[len(gram) - 1][gram] = count * weights.idf(gram)
            length += count if len(gram) == 1 else 0
        norms = [math.sqrt(math.fsum(x * x for x in v.values())) for v in by_order]
        return by_order, norms, length

    def _one(self, text: _Vector, references: Sequence[_Vector]) -> float:
        total = math.fsum(
            self._similarity(text, r) * math.exp(-((text[2] - r[2]) ** 2) / (2 * self.sigma**2))
            for r in references
        )
        # rounding of a cosine of equal texts may pass 1
        return min(10.0 * total / (self.order * len(references)), self.bounds[1])

    def _similarity(self, text: _Vector, reference: _Vector) -> float:
        """Sum over n of the clipped cosine."""
        total = 0.0
        for a, b, na, nb in zip(text[0], reference[0], text[1], reference[1], strict=True):
            if na and nb:
                both = math.fsum(min(x, b[g]) * b[g] for g, x in a.items() if g in b)
                total += both / (na * nb)
        return total


_Vector = tuple[list[dict[Gram, float]], list[float], int]


def frequencies_of_column(values: Iterable[Any]) -> DocumentFrequencies:
    """Of a dataset's column of references: a text or a list of texts a row."""
    return DocumentFrequencies.of([v] if isinstance(v, str) else list(v) for v in values)
