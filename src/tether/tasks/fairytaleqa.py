"""FairytaleQA: a question about a fairy tale, answered from a part of it. Stands in for
NarrativeQA.

Source: Xu et al. 2022, arXiv 2203.13947. Prompts and defaults as NarrativeQA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from tether.tasks.definition import Example, Row, text
from tether.tasks.narrativeqa import NarrativeQA


@dataclass(kw_only=True)
class FairytaleQA(NarrativeQA):
    """Question and a part of the tale -> an answer. Source: arXiv 2203.13947; as NarrativeQA."""

    hub: ClassVar[str] = "WorkInTheDark/FairytaleQA"
    licence: ClassVar[str] = "Apache-2.0; stories in the public domain"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("question",),
        ("answers", "answer1", "answer"),
        ("context", "story_section", "content"),
    )

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        return super().examples((number, _answered(row)) for number, row in rows)

    def story(self, row: Row, number: int) -> str:
        return text(row, number, "context", "story_section", "content")


def _answered(row: Row) -> Row:
    """Answers in columns of their own, as the hub has them -> a list."""
    if row.get("answers") is not None:
        return row
    names = [n for n in row if n.startswith("answer") and n[6:].strip("_").isdigit()]
    single = [row[n] for n in ("answer", *sorted(names)) if isinstance(row.get(n), str)]
    return {**row, "answers": single or None}
