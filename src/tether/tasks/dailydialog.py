"""DailyDialog: the next utterance of an everyday conversation.

Source: Li et al. 2017, arXiv 1710.03957; prompts as in allenai/RL4LMs@97df0bd,
rl4lms/data_pools/custom_text_generation_pools.py, DailyDialog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.tasks.definition import (
    Example,
    Row,
    TaskDefinition,
    items,
    several_texts,
    unusable,
    wrong,
)

CLASSIFIER = "rajkumarrrk/roberta-daily-dialog-intent-classifier"
"""RL4LMs' classifier of the four intents."""
INTENT = {"kind": "intent_accuracy", "classifier": {"path": CLASSIFIER}}
"""The same as a metric."""


@dataclass(kw_only=True)
class DailyDialog(TaskDefinition):
    """The last utterances -> the next one. Source: allenai/RL4LMs@97df0bd."""

    context_size: int = 5
    """Utterances in the prompt; the first ones of a dialogue, which have fewer before them, are no
    examples."""
    mark: str = "<EOU>"
    """Between utterances, and after the last one with a space before it."""
    end: str = ""
    """After the reference. RL4LMs writes the mark there, since its GPT-2 does not learn EOS; here
    every completion ends with EOS."""

    hub: ClassVar[str] = "li2017dailydialog/daily_dialog"
    hub_revision: ClassVar[str | None] = "refs/convert/parquet"
    licence: ClassVar[str] = "CC BY-NC-SA 4.0: non-commercial"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("dialog", "utterances"),
        ("act",),
        ("emotion",),
    )
    columns: ClassVar[tuple[str, ...]] = ("context", "intent", "emotion")
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "intent": {"kind": "metric", "metric": INTENT, "weight": 0.75},
        "meteor": {"kind": "metric", "metric": {"kind": "meteor"}, "weight": 0.25},
    }
    metrics: ClassVar[tuple[str, ...]] = ("meteor", "intent_accuracy", "rouge_1", "sacre_bleu")
    naturalness: ClassVar[tuple[str, ...]] = ("bert_score",)
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 128, "too_long": "truncate_left"}
    sampling: ClassVar[Mapping[str, Any]] = {
        "max_new_tokens": 20,
        "min_new_tokens": 2,
        "top_k": 20,
    }

    def __post_init__(self) -> None:
        if self.context_size < 1:
            raise UserError(f"dailydialog.context_size is {self.context_size}, must be at least 1")

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        """intent: 1 inform, 2 question, 3 directive, 4 commissive; emotion: 0 none to 6 surprise;
        both of the reference. context: the utterances of the prompt."""
        for number, row in rows:
            said = [u.strip() for u in several_texts(row, number, "dialog", "utterances")]
            intents, emotions = (_numbers(row, number, name) for name in ("act", "emotion"))
            if not len(said) == len(intents) == len(emotions):
                raise UserError(
                    f"data: row {number} has {len(said)} utterances, {len(intents)} acts and "
                    f"{len(emotions)} emotions; there must be as many of each"
                )
            if len(said) <= self.context_size:
                yield unusable(number, "too_short")
            for at in range(self.context_size, len(said)):
                before = said[at - self.context_size : at]
                if not said[at]:
                    yield unusable(number, "empty_utterance")
                    continue
                columns = {"context": before, "intent": intents[at], "emotion": emotions[at]}
                prompt = f"{self.mark.join(before)} {self.mark}"
                yield Example(number, prompt, [f"{said[at]}{self.end}"], columns)


def _numbers(row: Row, number: int, name: str) -> list[Any]:
    """Of a list of whole numbers: as text they would be equal to no intent of a classifier."""
    found = items(row, number, name)
    for x in found:
        if isinstance(x, bool) or not isinstance(x, int | float) or x % 1 != 0:
            raise wrong(found, number, (name,), "a list of whole numbers")
    return found
