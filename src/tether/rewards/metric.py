"""Any metric with a value a sample as a reward.

    score_i = metric.as_reward(value_i)     1 - TER for TER, minus the value where less is better

One call of the metric for the batch. The references are a column of the dataset; with several a
row the metric decides what to make of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tether.config.errors import UserError
from tether.config.half_pairs import HALF_PAIR, half_pair_within
from tether.metrics.base import Metric, Row, Samples, frozen
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch


@dataclass
class MetricReward(Reward):
    """Value of a metric of the catalog (`tether list metrics`), by sample."""

    metric: Metric | None = None
    """Name of a metric, or {kind: NAME, ...} with its settings."""
    references: str = "references"
    """Column of human texts: a text or a list of texts a row. Metrics without references ignore
    it."""
    where: dict[str, Any] = field(default_factory=dict)
    """column -> value: only rows with these values are measured, the others get no number (ToTTo's
    subsets: `overlap_subset: true`)."""
    strip: bool = True
    """Measure the completion without the white space around it."""

    @property
    def source(self) -> str:
        return f"metric {self.metric.name}" if self.metric is not None else "metric"

    @property
    def version(self) -> str:
        """The metric's signature: its implementation, and every setting that decides a number."""
        return self._metric().signature

    @property
    def told(self) -> str:
        return self._metric().told

    @property
    def needs_prompts(self) -> bool:
        return self._metric().needs_prompts

    def needs(self) -> tuple[str, ...]:
        metric = self._metric()
        own = (self.references,) if metric.needs_references else ()
        return tuple(dict.fromkeys((*own, *metric.columns(), *self.where)))

    def lacks(self, row: Mapping[str, Any]) -> str:
        metric, drop = self._metric(), self.missing == "drop"
        if any(row[column] != value for column, value in self.where.items()):
            return ""  # it is not measured
        if metric.needs_references:
            value = row[self.references]
            if not _is_texts(value):
                return (
                    f"holds {value!r:.60} in {self.references!r}, expected a text or a list of "
                    "texts (references)"
                )
            if not texts_of(value):
                empty = f"has no reference in {self.references!r} ({value!r:.60})"
                return "" if drop else f"{empty}{_MEND}"
            if (at := half_pair_within(texts_of(value))) is not None:
                return f"holds text in {self.references!r} whose character {at} is {HALF_PAIR}"
        values = {c: row[c] for c in metric.columns()}
        why = self._refused(values)
        if why and None in values.values():
            return "" if drop else f"{why}{_MEND}"
        if not why and (at := half_pair_within(values)) is not None:
            return f"holds text in {' or '.join(values)} whose character {at} is {HALF_PAIR}"
        return why

    def _refused(self, values: Mapping[str, Any]) -> str:
        """Why the metric cannot read a row's columns."""
        if not values:
            return ""
        return self._metric().refuses(Row("", extra=tuple(frozen(v) for v in values.values())))

    def check(self) -> None:
        """What the metric needs is there (packages, WordNet, files), and it can be a reward."""
        metric = self._metric()
        if metric.no_reward:
            raise UserError(f"the metric {metric.name} cannot be a reward: {metric.no_reward}")
        metric.check()

    def prepare(self) -> None:
        self._metric().prepare()

    def _metric(self) -> Metric:
        if self.metric is None:
            raise UserError("a metric reward needs `metric`: a name of `tether list metrics`")
        return self.metric

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        metric = self._metric()
        values: list[float | None] = [None] * len(batch)
        kept = [i for i in range(len(batch)) if self._measured(batch, i)]
        if metric.needs_references:
            given = batch.columns.get(self.references)
            if given is None:
                raise UserError(f"reward {self.source}: there is no column {self.references!r}")
            if self.missing == "drop":
                kept = [i for i in kept if texts_of(given[i])]
        if self.missing == "drop":
            kept = [i for i in kept if not self._without(batch, i)]
        if kept:
            result = metric(self.samples(batch, kept))
            assert result.per_sample is not None
            for i, value in zip(kept, result.per_sample, strict=True):
                values[i] = metric.as_reward(value)
        return values

    def _measured(self, batch: RewardBatch, i: int) -> bool:
        """Whether row i is one of those in `where`."""
        for column, value in self.where.items():
            if column not in batch.columns:
                raise UserError(f"reward {self.source}: there is no column {column!r} (where)")
            if batch.columns[column][i] != value:
                return False
        return True

    def _without(self, batch: RewardBatch, i: int) -> bool:
        """Whether row i has nothing in a column that the metric reads, and cannot do without."""
        names = [c for c in self._metric().columns() if c in batch.columns]
        values = {c: batch.columns[c][i] for c in names}
        return None in values.values() and bool(self._refused(values))

    def samples(self, batch: RewardBatch, rows: Sequence[int]) -> Samples:
        """What the metric reads of these rows of the batch."""
        metric = self._metric()
        texts = [batch.texts[i].strip() if self.strip else batch.texts[i] for i in rows]
        references = None
        if metric.needs_references:
            column = batch.columns[self.references]
            references = [texts_of(column[i]) for i in rows]
        prompts = batch.prompt_texts
        columns = {
            c: [batch.columns[c][i] for i in rows] for c in metric.columns() if c in batch.columns
        }
        return Samples(texts, references, [prompts[i] for i in rows], columns)


_MEND = "; mend it, or leave such rows out with missing: drop"
"""What is missing may be left out; what cannot be read may not."""


def _is_texts(value: Any) -> bool:
    """Whether a reference column's value is text, a list of texts, or nothing."""
    if value is None or isinstance(value, str):
        return True
    if hasattr(value, "tolist"):
        value = value.tolist()
    return isinstance(value, list | tuple) and all(x is None or isinstance(x, str) for x in value)


def texts_of(value: Any) -> list[str]:
    """A reference column's value as texts; blank ones are left out."""
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else list(value)
    return [t for t in texts if isinstance(t, str) and t.strip()]
