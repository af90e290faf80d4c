"""What the summarisation tasks share: a document in, a shorter text out.

Source of prompt and defaults: allenai/RL4LMs@97df0bd,
scripts/training/task_configs/summarization/t5_ppo.yml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.definition import Example, Row, TaskDefinition, distinct, texts

METRICS = ("rouge_1", "rouge_2", "rouge_l", "rouge_lsum", "meteor", "bleu", "summac")
ONE_SENTENCE = tuple(m for m in METRICS if m != "rouge_lsum")
"""Where summaries are one sentence: ROUGE-Lsum is ROUGE-L there, and would count twice."""


@dataclass(kw_only=True)
class Summarization(TaskDefinition):
    """Base of the tasks that shorten a document."""

    prefix: str = "Summarize: "
    """Before the document."""
    suffix: str = ""
    """After it."""

    metrics: ClassVar[tuple[str, ...]] = METRICS
    naturalness: ClassVar[tuple[str, ...]] = ("bert_score",)
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "rouge_1": {"kind": "metric", "metric": {"kind": "rouge_1"}}
    }
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 512, "too_long": "truncate_right"}

    document: ClassVar[tuple[str, ...]] = ()
    """Names of the document's column; a list of sentences is joined by spaces."""
    summary: ClassVar[tuple[str, ...]] = ()
    """Names of the summary's column; a list is several references."""

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        for number, row in rows:
            document = " ".join(texts(row, number, *self.document))
            prompt = f"{self.prefix}{document}{self.suffix}"
            references = distinct(texts(row, number, *self.summary))
            yield Example(number, prompt, references, {"document": document}, document)
