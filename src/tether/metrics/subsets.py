"""PARENT and SacreBLEU of ToTTo by the subsets of its evaluation.

In half of ToTTo's validation and test rows the combination of headers occurs in training (the
overlap subset), in the others it does not. The official evaluation gives every number three times:
over all rows, and over each subset. A row that does not say which it is in counts in the first
alone.

Source: Parikh et al. 2020, arXiv 2004.14373, section 6; allenai/RL4LMs@97df0bd, metric.py,
`ParentToTTo` and `BLEUToTTo`.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tether.metrics.base import Metric, MetricResult, Row, Samples, Scored
from tether.metrics.parent import Parent
from tether.metrics.translation import SacreBleu


@dataclass
class _ByOverlap(Metric):
    """The value is the inner metric's over all rows; its own parts make place for the subsets'."""

    column: str = "overlap_subset"
    """Column that says where a row belongs: true or 1 (overlap), false or 0 (non-overlap), or
    nothing."""

    parts: ClassVar[tuple[str, ...]] = ("overlap", "non_overlap")
    """The inner metric over each subset; a subset without rows has none."""

    @property
    @abstractmethod
    def inner(self) -> Metric:
        """The metric that is measured."""

    @property
    def version(self) -> str:
        return self.inner.version

    @property
    def needs_prompts(self) -> bool:
        return self.inner.needs_prompts

    def columns(self) -> tuple[str, ...]:
        return (*self.inner.columns(), self.column)

    def check(self) -> None:
        self.inner.check()

    def prepare(self) -> None:
        self.inner.prepare()

    def refuses(self, row: Row) -> str:
        if row.extra[:-1] and (why := self.inner.refuses(_plain([row])[0])):
            return why
        # 1 and 1.0 are equal to True: a CSV has them where a value is missing elsewhere
        if row.extra[-1] in (True, False, None):
            return ""
        return (
            f"holds {row.extra[-1]!r:.40} in {self.column!r}, expected true (or 1), false (or 0) "
            "or nothing"
        )

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        return self.inner.score(_plain(rows))

    def corpus(self, rows: Sequence[Row], scores: Sequence[Scored]) -> Scored:
        def over(wanted: Sequence[int]) -> float:
            if not wanted:
                return float("nan")
            mine = _plain([rows[i] for i in wanted])
            return self.inner.corpus(mine, [scores[i] for i in wanted])[0]

        whole = range(len(rows))
        subsets = ([i for i in whole if rows[i].extra[-1] == which] for which in (True, False))
        return (over(whole), *map(over, subsets))

    def __call__(self, samples: Samples) -> MetricResult:
        result = super().__call__(samples)
        there = {k: v for k, v in result.parts.items() if v == v}
        return dataclasses.replace(result, parts=there)


def _plain(rows: Sequence[Row]) -> list[Row]:
    """Rows as the inner metric knows them."""
    return [dataclasses.replace(r, extra=r.extra[:-1]) for r in rows]


@dataclass
class ParentByOverlap(_ByOverlap):
    """PARENT over all rows of ToTTo, its overlap and its non-overlap subset."""

    parent: Parent = field(default_factory=Parent)
    """How it is measured."""

    name: ClassVar[str] = "parent_by_overlap"
    seconds_per_1000: ClassVar[float] = Parent.seconds_per_1000

    @property
    def inner(self) -> Metric:
        return self.parent


@dataclass
class SacreBleuByOverlap(_ByOverlap):
    """SacreBLEU over all rows of ToTTo, its overlap and its non-overlap subset; each pooled over
    its own rows."""

    bleu: SacreBleu = field(default_factory=SacreBleu)
    """How it is measured."""

    name: ClassVar[str] = "sacre_bleu_by_overlap"
    package: ClassVar[str] = "sacrebleu"
    seconds_per_1000: ClassVar[float] = 2 * SacreBleu.seconds_per_1000
    """Pooled over all rows, then over those of each subset."""

    @property
    def inner(self) -> Metric:
        return self.bleu
