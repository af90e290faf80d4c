"""What a reward function is given: one batch of completions and everything known about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import SimpleNamespace
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
"""{"role": ..., "content": ...}"""
Prompt: TypeAlias = str | list[Message]

TAKEN = frozenset({"prompt", "completion", "completion_ids"})
"""Columns that TRL 1.16 does not pass on (trl/trainer/grpo_trainer.py, `_calculate_rewards`)."""
ARGUMENTS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""Keyword arguments of every TRL reward function beside the dataset's columns."""


@dataclass
class TrainerState:
    """The fields of transformers' `TrainerState` that a reward can read to shape itself over time.

    Unit: `global_step` counts completed updates (rollout + optimise), as TRL's GRPO does with one
    optimizer step a rollout.
    """

    global_step: int = 0
    max_steps: int = 0
    epoch: float = 0.0
    """Passes over the training prompts."""
    num_train_epochs: int = 0
    train_batch_size: int | None = None
    log_history: list[dict[str, float]] = field(default_factory=list)
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True


def _no_extra(column: str, values: list[Any]) -> None:
    """For a batch whose extra columns nobody collects."""


def _no_metric(name: str, value: float) -> None:
    """For a batch whose extra metrics nobody collects."""


@dataclass(frozen=True)
class RewardBatch:
    """n samples. Every list has length n."""

    prompts: list[Prompt]
    """Text, or chat messages, as the dataset has them."""
    completions: list[Any]
    """Decoded text without padding and special tokens (message lists are accepted too)."""
    completion_ids: list[list[int]]
    """Real tokens only, the stop token included."""
    columns: dict[str, list[Any]] = field(default_factory=dict)
    """Every column of the samples' rows."""
    trainer_state: Any = field(default_factory=TrainerState)
    """A `TrainerState`, or a mapping of some of its fields."""
    log_extra: Callable[[str, list[Any]], None] = _no_extra
    """(column, n values): goes to samples.jsonl."""
    log_metric: Callable[[str, float], None] = _no_metric
    """(name, value): averaged over the update and recorded."""
    finished: list[bool] | None = None
    """False = cut at the length limit."""

    def __post_init__(self) -> None:
        if isinstance(self.trainer_state, Mapping):  # functions read attributes, as in TRL
            state = SimpleNamespace(**(asdict(TrainerState()) | dict(self.trainer_state)))
            object.__setattr__(self, "trainer_state", state)

    def __len__(self) -> int:
        return len(self.prompts)

    def check(self) -> RewardBatch:
        """Itself; raises ValueError when a list has another length than `prompts`."""
        named = {"completions": self.completions, "completion_ids": self.completion_ids}
        if self.finished is not None:
            named["finished"] = self.finished
        for name, values in (named | self.columns).items():
            if len(values) != len(self):
                raise ValueError(
                    f"reward batch: {name} has {len(values)} values for {len(self)} prompts"
                )
        return self

    @property
    def texts(self) -> list[str]:
        """Completions as text, for chat prompts too."""
        return [text_of(c) for c in self.completions]

    @property
    def prompt_texts(self) -> list[str]:
        """Prompts as text; the contents of chat messages stand on lines of their own."""
        return [text_of(p) for p in self.prompts]

    @property
    def joined_texts(self) -> list[str]:
        """Prompt and completion as one text; after chat messages the completion is a new line."""
        return [
            text_of(p) + ("" if isinstance(p, str) else "\n") + t
            for p, t in zip(self.prompts, self.texts, strict=True)
        ]

    @property
    def trl_completions(self) -> list[Any]:
        """As TRL hands them over: message lists where the prompt is one, else text."""
        return [
            [{"role": "assistant", "content": text_of(c)}] if isinstance(p, list) else text_of(c)
            for p, c in zip(self.prompts, self.completions, strict=True)
        ]

    def row(self, i: int) -> RewardBatch:
        """Sample i alone."""
        return replace(
            self,
            prompts=[self.prompts[i]],
            completions=[self.completions[i]],
            completion_ids=[self.completion_ids[i]],
            columns={k: [v[i]] for k, v in self.columns.items()},
            finished=None if self.finished is None else [self.finished[i]],
        )

    def beginning(self, i: int, length: int = 40) -> str:
        """The first characters of prompt i on one line, for error messages."""
        text = " ".join(text_of(self.prompts[i]).split())
        return repr(text if len(text) <= length else text[:length] + "...")


def text_of(value: Any) -> str:
    """Text of a prompt or completion: itself, or the contents of its messages, one a line."""
    if isinstance(value, str):
        return value
    return "\n".join(_content(m.get("content")) for m in value)


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text", "")) for block in content)
