"""DART: a sentence that says what a set of triples says. Stands in for ToTTo.

Source: Nan et al. 2021, arXiv 2007.02871; triples as text as in Ribeiro et al. 2020,
arXiv 2007.08426; defaults as ToTTo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.tasks.definition import Example, Row, TaskDefinition, distinct, texts, value


@dataclass(kw_only=True)
class DART(TaskDefinition):
    """Triples -> a sentence, several references. Source: arXiv 2007.02871; defaults as ToTTo."""

    prefix: str = "translate Graph to English: "
    """Before the triples."""
    suffix: str = ""
    """After the triples: where a model without an encoder begins the sentence."""

    hub: ClassVar[str] = "GEM/dart"
    hub_revision: ClassVar[str | None] = "refs/convert/parquet"
    licence: ClassVar[str] = "MIT; parts CC BY-NC-SA 4.0 and CC BY-SA 4.0"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("tripleset",),
        ("targets", "references", "target", "annotations"),
    )
    columns: ClassVar[tuple[str, ...]] = ("table",)
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "meteor": {"kind": "metric", "metric": {"kind": "meteor"}}
    }
    metrics: ClassVar[tuple[str, ...]] = ("sacre_bleu", "parent", "meteor", "ter", "chrf")
    naturalness: ClassVar[tuple[str, ...]] = ("bert_score", "bleurt")
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 512, "too_long": "truncate_left"}
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 50, "min_new_tokens": 9}
    evaluation: ClassVar[Mapping[str, Any]] = {"greedy": True}

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        """One example a set of triples, wherever its sentences stand: the hub has one a row."""
        first: dict[str, int] = {}
        triples: dict[str, list[list[str]]] = {}
        found: dict[str, list[str]] = {}
        for number, row in rows:
            own = value(row, number, "tripleset")
            if not all(isinstance(t, list) and len(t) == 3 for t in own):
                raise UserError(
                    f"data: row {number}, column tripleset holds {repr(own)[:60]}, expected triples"
                )
            graph = " ".join(f"<H> {s} <R> {r} <T> {o}" for s, r, o in own)
            first.setdefault(graph, number)
            triples.setdefault(graph, own)
            found.setdefault(graph, []).extend(_sentences(row, number))
        for graph, own in triples.items():
            # PARENT's record: what is said of whom, and the value
            columns = {"table": [[f"{s} {r}", o] for s, r, o in own]}
            prompt = f"{self.prefix}{graph}{self.suffix}"
            yield Example(first[graph], prompt, distinct(found[graph]), columns, graph)


def _sentences(row: Row, number: int) -> list[str]:
    notes = row.get("annotations")
    if isinstance(notes, dict):  # the first hub copy: {source: [...], text: [...]}
        return list(notes.get("text") or [])
    if isinstance(notes, list):  # the published files
        return [n["text"] for n in notes]
    out: list[str] = []
    for name in ("targets", "references", "target"):
        if row.get(name):
            out += texts(row, number, name)
    return out
