"""What the translation tasks share: an English sentence in, a German one out.

Source of prompt and defaults: allenai/RL4LMs@97df0bd,
scripts/training/task_configs/iwslt2017/t5_ppo.yml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.tasks.definition import Example, Row, TaskDefinition, distinct, text, unusable


@dataclass(kw_only=True)
class Translation(TaskDefinition):
    """Base of the tasks that translate `source` into `target`."""

    prefix: str = "translate English to German: "
    """Before the sentence."""
    suffix: str = ""
    """After it."""

    source: ClassVar[str] = "en"
    target: ClassVar[str] = "de"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("translation", "en"), ("translation", "de"))
    mappings: ClassVar[tuple[str, ...]] = ("translation",)
    columns: ClassVar[tuple[str, ...]] = ("source",)
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "ter": {"kind": "metric", "metric": {"kind": "ter"}}
    }
    metrics: ClassVar[tuple[str, ...]] = (
        "sacre_bleu",
        "chrf",
        "ter",
        "meteor",
        "rouge_1",
        "rouge_2",
        "rouge_l",
    )
    beside: ClassVar[tuple[str, ...]] = ("bleu",)  # sacre_bleu's number, where any 4-gram matches
    naturalness: ClassVar[tuple[str, ...]] = ("bert_score",)
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 128, "too_long": "truncate_right"}
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 128, "top_k": 10}
    # RL4LMs decodes with a beam of 4 and length penalty .6; there is no beam search here
    evaluation: ClassVar[Mapping[str, Any]] = {"top_k": 0, "greedy": True}

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        for number, row in rows:
            pair = row.get("translation")
            if pair is not None and not isinstance(pair, dict):
                raise UserError(
                    f"data: row {number}, column translation holds {repr(pair)[:60]}, expected "
                    f"{{{self.source!r}: ..., {self.target!r}: ...}}"
                )
            pair = row if pair is None else pair
            sentence = text(pair, number, self.source).strip()
            references = distinct([text(pair, number, self.target)])
            prompt = f"{self.prefix}{sentence}{self.suffix}"
            if not (sentence and references):  # an alignment that failed
                yield unusable(number, "empty_side")
                continue
            yield Example(number, prompt, references, {"source": sentence}, sentence)
