"""Learned rewards as metrics: the same model, with a result that names it.

They live above `tether.metrics` because they read a reward. What a reward run optimises and what a
report calls a metric are then one piece of code with one setting.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Samples, Scored
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward


@dataclass
class _Learned(Metric):
    needs_references: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (float("-inf"), float("inf"))
    seconds_per_1000: ClassVar[float] = 5.0

    @property
    @abstractmethod
    def reward(self) -> Reward:
        """What measures."""

    @property
    def version(self) -> str:
        return ", ".join(v for v in (super().version, self.reward.version) if v)

    @property
    def needs_prompts(self) -> bool:
        return self.reward.needs_prompts

    @property
    def as_given(self) -> bool:
        return self.needs_prompts

    @property
    def keeps_blanks(self) -> bool:
        return True


@dataclass
class LearnedClassifier(_Learned):
    """Mean probability (or logit) of a label by a text classifier."""

    classifier: ClassifierReward = field(default_factory=ClassifierReward)
    """As a classifier reward: path, label, output, reads ..."""

    name: ClassVar[str] = "classifier"

    @property
    def reward(self) -> Reward:
        return self.classifier

    @property
    def told(self) -> str:
        return self.classifier.told

    @property
    def best(self) -> float:
        return super().best if self.classifier.is_raw else 1.0  # of a probability

    def check(self) -> None:
        self.classifier.check()

    def prepare(self) -> None:
        self.classifier.prepare()

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        return [(float(x),) for x in self.classifier(_batch(rows))]


@dataclass
class PreferenceModel(_Learned):
    """Mean score of a preference or reward model: any reward that reads prompt and completion as
    text."""

    model: Reward = field(default_factory=ClassifierReward)
    """A classifier reward (a reward model with one output: `output: logit` for its raw score), or
    any other that needs no column of the data."""

    name: ClassVar[str] = "preference"

    @property
    def reward(self) -> Reward:
        return self.model

    @property
    def told(self) -> str:
        return self.model.told

    def check(self) -> None:
        if self.model.needs():
            raise UserError(
                f"preference: the reward reads the columns {list(self.model.needs())}; a "
                "preference model reads prompt and completion only"
            )
        if self.model.is_async:
            raise UserError("preference: the reward must not be an async function")
        self.model.check()

    def prepare(self) -> None:
        self.model.prepare()

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        values = list(self.model(_batch(rows)))
        for i, value in enumerate(values):
            if value is None or isinstance(value, list):
                raise UserError(
                    f"preference: the reward gives {value!r:.40} for {rows[i].text!r:.40}"
                )
        return [(float(x),) for x in values]


@dataclass
class IntentAccuracy(_Learned):
    """Share of completions whose intent, by a classifier, is the one that the data ask for.

    Source: allenai/RL4LMs@97df0bd, metric.py, `IntentAccuracyDailyDialog`: the classifier reads the
    prompt's last turn and the completion, joined without anything between.
    """

    classifier: ClassifierReward = field(default_factory=ClassifierReward)
    """Any text classifier; its `label`, `output` and `reads` have no part in this."""
    intent: str = "intent"
    """Column of wanted intents: names of labels or numbers; of a list the first."""
    first: int = 1
    """The number that means the classifier's label 0: DailyDialog counts its acts from 1."""
    reads: Literal["last_turn", "completion", "prompt_and_completion"] = "last_turn"
    """What is classified."""
    turn_end: str = "<EOU>"
    """What ends a turn in the prompt; without one in it the whole prompt is the turn."""

    name: ClassVar[str] = "intent_accuracy"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def reward(self) -> Reward:
        return self.classifier

    @property
    def needs_prompts(self) -> bool:
        return self.reads != "completion"

    @property
    def keeps_blanks(self) -> bool:
        return False  # nor does its form as a reward (`MetricReward.strip`)

    def columns(self) -> tuple[str, ...]:
        return (self.intent,)

    def check(self) -> None:
        self.classifier.check()

    def prepare(self) -> None:
        self.classifier.prepare()

    def refuses(self, row: Row) -> str:
        value = _first(row.extra[0])
        if isinstance(value, str) or (isinstance(value, int) and value >= self.first):
            return ""  # whether the classifier has it is known once it is loaded
        return (
            f"asks for the intent {value!r:.40} in {self.intent!r}, expected the name of a label "
            f"or its number, counted from {self.first}"
        )

    def rows(self, samples: Samples) -> list[Row]:
        rows = super().rows(samples)
        if rows:
            names = [str(x) for x in self.classifier.classifier.labels]
            for i, row in enumerate(rows):
                self._wanted(row, names, i)
        return rows

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        model = self.classifier.classifier
        names = [str(x) for x in model.labels]
        found = model.logits([self._text(r) for r in rows], batch_size=self.classifier.batch_size)
        guessed = found.argmax(-1).tolist()
        return [
            (float(g == self._wanted(r, names, i)),)
            for i, (g, r) in enumerate(zip(guessed, rows, strict=True))
        ]

    def _wanted(self, row: Row, names: list[str], i: int) -> int:
        value = _first(row.extra[0])
        if isinstance(value, str) and value in names:
            return names.index(value)
        if isinstance(value, int) and 0 <= value - self.first < len(names):
            return value - self.first
        raise UserError(
            f"intent_accuracy: row {i + 1} asks for the intent {value!r:.40} in {self.intent!r}; "
            f"the classifier has {names}, counted from {self.first}"
        )

    def _text(self, row: Row) -> str:
        if self.reads == "completion":
            return row.text
        if self.reads == "prompt_and_completion":
            return row.prompt + row.text
        turns = [t for t in row.prompt.split(self.turn_end) if t.strip()]
        return (turns[-1] if turns else "") + row.text


def _first(value: Any) -> Any:
    """Of several intents the first."""
    return value[0] if isinstance(value, tuple) and value else value


def _batch(rows: Sequence[Row]) -> RewardBatch:
    """With empty prompts where the reward says that it reads none."""
    return RewardBatch([r.given or "" for r in rows], [r.text for r in rows], [[] for _ in rows])
