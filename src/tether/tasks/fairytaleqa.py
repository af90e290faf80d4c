"""FairytaleQA: a question about a fairy tale, answered from a part of it. Stands in for
NarrativeQA.

Source: Xu et al. 2022, arXiv 2203.13947. Prompts and defaults as NarrativeQA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from tether.tasks.definition import Example, Row, text, texts
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
        return super().examples((number, _answered(row, number)) for number, row in rows)

    def story(self, row: Row, number: int) -> str:
        return text(row, number, "context", "story_section", "content")


def _answered(row: Row, number: int) -> Row:
    """Answers in columns of their own, as the hub has them -> a list."""
    if row.get("answers") is not None:
        return row
    names = [n for n in row if n.startswith("answer") and n[6:].strip("_").isdigit()]
    given = [n for n in ("answer", *sorted(names)) if row.get(n) is not None]
    single = [answer for n in given for answer in texts(row, number, n)]
    return {**row, "answers": single or None}
