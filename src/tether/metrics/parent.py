"""PARENT: precision and recall of a text against references and the table they describe.

    w(g)   share of the n-gram's words that stand in the table           (word overlap model)
    P_n    sum_g c(g) [p + (1 - p) w(g)] / sum_g c(g),   p = min(1, c_ref(g) / c(g))
    R_n    sum_g c_ref(g) w(g) min(1, c(g) / c_ref(g)) / sum_g c_ref(g) w(g)
    R_T    mean over table entries of LCS(value, text) / words of the value
    P = geometric mean of P_1..P_4;  R = R_ref^(1 - lambda) R_T^lambda;  F = 2 P R / (P + R)

g runs over the text's n-grams in P, the reference's in R. Of several references the one with the
best F counts. Orders above 1 that are 0 become `smoothing`, as in the authors' code (below); a text
without any supported word has P = 0.
Source: Dhingra et al. 2019, "Handling Divergent Reference Texts when Evaluating Table-to-Text
Generation", sections 3 and 4; the authors' code is google-research/language@865fae6,
language/table_text_eval/table_text_eval.py, `parent` with `overlap_probability` and
`_mention_probability` (a test holds these numbers against values made with that commit).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored, shown
from tether.metrics.text import ngrams
from tether.metrics.words import tokens

Words = tuple[str, ...]


@dataclass
class Parent(Metric):
    """PARENT-F of a table description: supported by the table or by a reference, and complete."""

    table: str = "table"
    """Column of tables: a list of entries, each [attribute, value], [head, relation, tail] or a
    value alone; or a mapping attribute: value. Values are compared, of triples head and tail; all
    are text or numbers, and an empty one (null) is left out."""
    weight: float = 0.5
    """lambda: share of the recall against the table in the recall, as an exponent."""
    order: int = 4
    """Largest n-gram."""
    smoothing: float = 1e-5
    """In place of a precision or recall of 0 at the orders above 1, and of a recall of 0."""
    tokens: Literal["words", "split"] = "words"
    """words: lower-cased, punctuation on its own; split: lower-cased, at spaces (the authors'
    script, google-research/language@865fae6, which expects tokenised text)."""

    name: ClassVar[str] = "parent"
    parts: ClassVar[tuple[str, ...]] = ("precision", "recall")
    seconds_per_1000: ClassVar[float] = 8.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._words = lru_cache(maxsize=20_000)(_words)

    def columns(self) -> tuple[str, ...]:
        return (self.table,)

    def check(self) -> None:
        if self.order < 1 or not 0 <= self.weight <= 1 or not 0 < self.smoothing < 1:
            raise UserError(
                f"parent: order {self.order} must be at least 1, weight {self.weight} in [0, 1] "
                f"and smoothing {self.smoothing} in (0, 1)"
            )

    def refuses(self, row: Row) -> str:
        try:
            if _values(row.extra[0]):
                return ""
        except _NotATable as e:
            return str(e)
        table = shown(row.extra[0])
        return f"has no table in {self.table!r} ({table:.60}); entries are [attribute, value]"

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        return [self._row(r) for r in rows]

    def _row(self, row: Row) -> Scored:
        text = self._words(row.text, self.tokens)
        if not text:
            return (0.0, 0.0, 0.0)
        values = [self._words(v, self.tokens) for v in _values(row.extra[0])]
        values = [v for v in values if v]
        told = [_common(v, text) / len(v) for v in values]
        table_recall = (math.fsum(told) / len(told) if told else 0.0) or self.smoothing
        known = {w for v in values for w in v}
        return max(
            self._against(text, self._words(r, self.tokens), known, table_recall)
            for r in row.references
        )

    def _against(
        self, text: Words, reference: Words, known: set[str], table_recall: float
    ) -> Scored:
        """F, precision and recall against one reference."""
        precisions, recalls = [], []
        for n in range(1, self.order + 1):
            mine, theirs = Counter(ngrams(text, n)), Counter(ngrams(reference, n))
            support = {g: sum(w in known for w in g) / n for g in {*mine, *theirs}}
            precisions.append(_precision(mine, theirs, support))
            recalls.append(_recall(mine, theirs, support))
        precisions[1:] = [x or self.smoothing for x in precisions[1:]]
        recalls[1:] = [x or self.smoothing for x in recalls[1:]]
        p = _geometric(precisions)
        r = _geometric(recalls) or self.smoothing
        r = r ** (1.0 - self.weight) * table_recall**self.weight
        return (2.0 * p * r / (p + r + 1e-8), p, r)


def _precision(mine: Counter[Any], theirs: Counter[Any], support: dict[Any, float]) -> float:
    total = mine.total()
    if not total:
        return 0.0
    found = 0.0
    for gram, count in mine.items():
        p = min(1.0, theirs[gram] / count)
        found += count * (p + (1.0 - p) * support[gram])
    return found / total


def _recall(mine: Counter[Any], theirs: Counter[Any], support: dict[Any, float]) -> float:
    """1 where nothing of the reference stands in the table: there is nothing to recall (as in
    google-research/language@865fae6)."""
    total = math.fsum(c * support[g] for g, c in theirs.items())
    if not total:
        return 1.0
    found = math.fsum(c * support[g] * min(1.0, mine[g] / c) for g, c in theirs.items())
    return found / total


def _geometric(values: Iterable[float]) -> float:
    values = list(values)
    if any(v <= 0.0 for v in values):
        return 0.0
    return math.exp(math.fsum(math.log(v) for v in values) / len(values))


def _common(a: Words, b: Words) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = 0
        for j, y in enumerate(b, 1):
            kept = row[j]
            row[j] = before + 1 if x == y else max(row[j], row[j - 1])
            before = kept
    return row[-1]


class _NotATable(ValueError):
    """What is wrong, said of the row."""


def _values(table: Any) -> list[str]:
    """The text of each entry that is compared, of a table that `frozen` has been at (a mapping is
    its pairs by then). Raises _NotATable."""
    if table is not None and not isinstance(table, tuple):
        raise _not_a_table(table)
    out = []
    for entry in table or ():
        parts = entry if isinstance(entry, tuple) else (entry,)
        if not 1 <= len(parts) <= 3 or (len(parts) == 1 and parts is entry):
            raise _not_a_table(entry)
        texts = [_part(p, entry) for p in parts]
        out.append(f"{texts[0]} {texts[2]}" if len(texts) == 3 else texts[-1])
    return [v for v in out if v.strip()]


def _part(value: Any, entry: Any) -> str:
    """Text of an attribute or value: nested lists and mappings have none of their own."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float) and math.isfinite(value):
        return str(value)
    raise _not_a_table(entry)


def _not_a_table(found: Any) -> _NotATable:
    return _NotATable(
        f"holds {shown(found):.60} as a table or an entry of one; a table is a list of entries "
        "[attribute, value], [head, relation, tail] or a value, each text or a number"
    )


def _words(text: str, how: str) -> Words:
    return tuple(tokens(text) if how == "words" else text.lower().split())
