"""FeTaQA: a question about a table, answered in a sentence. Stands in for ToTTo.

Source: Nan et al. 2022, arXiv 2104.00369. Tables are ToTTo's; prompts are the question and the
highlighted cells in ToTTo's format, defaults as ToTTo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.definition import (
    Example,
    Row,
    TaskDefinition,
    distinct,
    items,
    text,
    title,
)
from tether.tasks.tables import highlighted, linearized, records


@dataclass(kw_only=True)
class FeTaQA(TaskDefinition):
    """Question and highlighted cells -> a sentence. Source: arXiv 2104.00369; defaults as ToTTo."""

    question: bool = True
    """Write the question before the table; without it the task is ToTTo's."""
    suffix: str = ""
    """After the table: where a model without an encoder begins the sentence."""

    hub: ClassVar[str] = "DongfuJiang/FeTaQA"
    licence: ClassVar[str] = "CC BY-SA 4.0"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("table_array",),
        ("highlighted_cell_ids",),
        ("question",),
        ("answer",),
    )
    columns: ClassVar[tuple[str, ...]] = ("table", "question")
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "meteor": {"kind": "metric", "metric": {"kind": "meteor"}}
    }
    metrics: ClassVar[tuple[str, ...]] = ("sacre_bleu", "parent", "meteor", "rouge_2", "rouge_l")
    naturalness: ClassVar[tuple[str, ...]] = ("bert_score", "bleurt")
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 512, "too_long": "truncate_left"}
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 50, "min_new_tokens": 9}
    evaluation: ClassVar[Mapping[str, Any]] = {"greedy": True}

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        for number, row in rows:
            places = items(row, number, "highlighted_cell_ids")
            cells = highlighted(items(row, number, "table_array"), places, number)
            page, section = (title(row, number, f"table_{x}_title") for x in ("page", "section"))
            question = text(row, number, "question")
            table = linearized(cells, page, section)
            prompt = (f"{question} {table}" if self.question else table) + self.suffix
            columns = {"table": records(cells, page, section), "question": question}
            references = distinct([text(row, number, "answer")])
            yield Example(number, prompt, references, columns, f"{question} {table}")
