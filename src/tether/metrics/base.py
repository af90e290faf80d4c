"""The seam of a metric of texts: samples in, one result out that says what it is.

A metric is a dataclass whose fields are its settings. It scores distinct rows once, keeps what it
scored (policies repeat themselves, and references come back every update), and gives one value a
sample where it has one, and one for the corpus, which need not be their mean.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from tether.config.describe import plain
from tether.config.errors import UserError
from tether.metrics.given import column_given, prompts_given, references_given, texts_given

Scored: TypeAlias = tuple[float, ...]
"""Value of one row, then its parts in the order of `Metric.parts`."""


@dataclass(frozen=True)
class Samples:
    """n texts and what is known about them. Every list has length n."""

    texts: Sequence[str]
    references: Sequence[Sequence[str]] | None = None
    """Human texts, one or several a sample."""
    prompts: Sequence[str] | None = None
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Further columns of the samples' rows (concepts, table, intent)."""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Row:
    """One sample, hashable; `extra` holds the columns that the metric reads, frozen."""

    text: str
    references: tuple[str, ...] = ()
    given: str | None = None
    """The prompt; None for a metric that says that it reads none (`Metric.needs_prompts`)."""
    extra: tuple[Any, ...] = ()
    reader: str = field(default="", compare=False, repr=False)
    """Whose row it is: the metric's name, for messages."""
    written: str = field(init=False, repr=False, default="")
    """`extra` as text: 1, 1.0 and True are equal in Python and another value to a metric."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", repr(self.extra))

    @property
    def prompt(self) -> str:
        """Raises UserError where the metric says that it reads none: an empty text in the place of
        the prompt would be another number without a word."""
        if self.given is None:
            raise UserError(
                f"the metric {self.reader or 'of this row'} reads row.prompt and says that it "
                "reads no prompts: let its property needs_prompts return True"
            )
        return self.given


@dataclass(frozen=True)
class MetricResult:
    """What was measured, and by what: numbers of different signatures are not comparable."""

    name: str
    value: float | None
    """Of the corpus; None = nothing to measure (no samples)."""
    per_sample: list[float] | None
    """n values, None for a metric of whole corpora."""
    version: str
    """Implementation and its version: `sacrebleu 2.6.0`, `tether/1`."""
    settings: dict[str, Any]
    parts: dict[str, float] = field(default_factory=dict)
    """Further values of the corpus, such as precision and recall."""
    n: int = 0

    @property
    def signature(self) -> str:
        """`name|version|setting=value|...`, settings by name."""
        return signature(self.name, self.version, self.settings)


class ScoreCache:
    """The newest scores by row; safe in several threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._scores: OrderedDict[Row, Scored] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, row: Row) -> Scored | None:
        with self._lock:
            found = self._scores.get(row)
            if found is not None:
                self._scores.move_to_end(row)
            return found

    def put(self, row: Row, score: Scored) -> None:
        with self._lock:
            self._scores[row] = score
            while len(self._scores) > self.limit:
                self._scores.popitem(last=False)


@dataclass
class Metric(ABC):
    """Base of every metric of texts. A subclass is a dataclass and defines `score`."""

    name: ClassVar[str] = ""
    package: ClassVar[str] = ""
    """Distribution that does the work; empty = this library."""
    revision: ClassVar[int] = 1
    """Of our own implementations; raised when their numbers change."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Names of what `score` gives after the value."""
    needs_references: ClassVar[bool] = True
    higher_is_better: ClassVar[bool] = True
    per_sample: ClassVar[bool] = True
    """False = only a corpus has a value; such a metric is no reward."""
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Smallest and largest value (inf where there is none)."""
    seconds_per_1000: ClassVar[float] = math.inf
    """Time that 1,000 rows of a sentence may take on one core, the card's limit; of a metric with a
    model for a model of no size."""
    beside: ClassVar[tuple[str, ...]] = ("batch_size", "device")
    """Settings that change no number, also those of its parts: left out of the result's settings
    and signature."""
    cache_rows: ClassVar[int] = 20_000

    def __post_init__(self) -> None:
        self._cache = ScoreCache(self.cache_rows)
        self._busy = threading.Lock()

    @property
    def version(self) -> str:
        """Implementation and its version; with a model also the hash of its weights, since a path
        says nothing about them. May load what it names."""
        return installed(self.package) if self.package else f"tether/{self.revision}"

    @property
    def told(self) -> str:
        """What a run says of it as a reward when it starts; empty where nothing is."""
        return ""

    @property
    def settings(self) -> dict[str, Any]:
        """The fields that decide the number, as a file holds them."""
        names = [f.name for f in dataclasses.fields(self) if f.init and f.name not in self.beside]
        return {name: _without(plain(getattr(self, name)), self.beside) for name in names}

    @property
    def signature(self) -> str:
        """As that of its results."""
        return signature(self.name, self.version, self.settings)

    @property
    def cached(self) -> bool:
        """Whether a row's score is a function of the row alone."""
        return True

    @property
    def needs_prompts(self) -> bool:
        """Whether it reads the prompts, as it is set: only then do rows have them, and reading
        `row.prompt` of the others is refused."""
        return False

    @property
    def as_given(self) -> bool:
        """Whether the prompts that it reads are those that the model was given, cut where they were
        too long, as a reward's are; else the benchmark gives it whole ones."""
        return False

    @property
    def keeps_blanks(self) -> bool:
        """Whether it reads completions with the blanks around them, as a reward does; else the
        benchmark takes them off."""
        return False

    @property
    def best(self) -> float:
        """Best value that it can take, as it is set; infinite where there is none. Call `prepare`
        before."""
        low, high = self.bounds
        return high if self.higher_is_better else low

    @property
    def no_reward(self) -> str:
        """Why this metric, as it is set, cannot be a reward; empty = it can."""
        return "" if self.per_sample else "it has a value for a corpus only"

    def columns(self) -> tuple[str, ...]:
        """Dataset columns that it reads beside the references."""
        return ()

    def refuses(self, row: Row) -> str:
        """What is wrong with the columns of a row (`row.extra`), said of the row; empty = nothing.
        Asked before anything is loaded, where this is a reward."""
        return ""

    def check(self) -> None:  # noqa: B027 - most metrics have nothing to check
        """Raise UserError for what can be known to fail before anything expensive starts."""

    def prepare(self) -> None:  # noqa: B027 - most metrics load nothing
        """Load what `score` needs; called once before the first batch."""

    @abstractmethod
    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        """Value and parts of distinct rows. Never called for no rows, nor in two threads at once.
        An empty text is legal (B38)."""

    def corpus(self, rows: Sequence[Row], scores: Sequence[Scored]) -> Scored:
        """Value and parts of a corpus of n > 0 rows: their means unless a metric says otherwise."""
        n = len(scores)
        return tuple(math.fsum(x) / n for x in zip(*scores, strict=True))

    def as_reward(self, value: float) -> float:
        """A sample's value as a reward, where more is better."""
        return value if self.higher_is_better else -value

    def __call__(self, samples: Samples) -> MetricResult:
        """Measure. Raises UserError: references, prompts or columns are missing, a row's references
        are empty, or there is no text where one is expected."""
        rows = self.rows(samples)
        scores = self._scores(rows) if self.per_sample else []
        of_corpus: Scored = ()
        if rows:
            with self._busy:
                of_corpus = self.corpus(rows, scores)
        return MetricResult(
            self.name,
            of_corpus[0] if of_corpus else None,
            [s[0] for s in scores] if self.per_sample else None,
            self.version,
            self.settings,
            dict(zip(self.parts, of_corpus[1:], strict=True)) if of_corpus else {},
            len(rows),
        )

    def rows(self, samples: Samples) -> list[Row]:
        """The samples with what this metric reads, checked."""
        named, n = self.name or type(self).__name__, len(samples)
        texts = texts_given(named, samples)
        references: list[tuple[str, ...]] = [()] * n
        if self.needs_references:
            references = references_given(named, samples)
        extra = [column_given(named, samples, c) for c in self.columns()]
        prompts: Sequence[str | None] = [None] * n
        if self.needs_prompts:
            prompts = prompts_given(named, samples)
        rows = [
            Row(
                texts[i], references[i], prompts[i], tuple(frozen(c[i]) for c in extra),
                named,
            )
            for i in range(n)
        ]  # fmt: skip
        for i, row in enumerate(rows if extra else ()):
            if why := self.refuses(row):
                raise UserError(f"{named}: row {i + 1} {why}")
        return rows

    def _scores(self, rows: Sequence[Row]) -> list[Scored]:
        found: dict[Row, Scored] = {}
        if self.cached:
            found = {r: s for r in set(rows) if (s := self._cache.get(r)) is not None}
        new = [r for r in dict.fromkeys(rows) if r not in found]
        if new:
            with self._busy:
                scored = self.score(new)
            for row, values in zip(new, scored, strict=True):
                found[row] = values
                if self.cached:
                    self._cache.put(row, values)
        return [found[r] for r in rows]


def frozen(value: Any) -> Any:
    """Lists and arrays as tuples and mappings as tuples of pairs, at every depth: hashable."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return tuple((k, frozen(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(frozen(v) for v in value)
    return value


def shown(value: Any) -> str:
    """A frozen value as it was given, for messages."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value)


def signature(name: str, version: str, settings: Mapping[str, Any]) -> str:
    """`name|version|setting=value|...`, settings by name."""
    return "|".join([name, version, *(f"{k}={settings[k]}" for k in sorted(settings))])


def _without(value: Any, names: Sequence[str]) -> Any:
    """A setting without those names, at every depth."""
    if isinstance(value, dict):
        return {k: _without(v, names) for k, v in value.items() if k not in names}
    return value


def installed(package: str) -> str:
    """`package version`; `package` alone where it is not installed."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def missing(metric: str, package: str, install: str) -> UserError:
    """The one line for a package that is not there."""
    return UserError(f"the metric {metric} needs the package {package}: {install}")
