"""DART: a sentence that says what a set of triples says. Stands in for ToTTo.

Source: Nan et al. 2021, arXiv 2007.02871; triples as text as in Ribeiro et al. 2020,
arXiv 2007.08426; defaults as ToTTo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.definition import Example, Row, TaskDefinition, distinct, items, texts, wrong


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
    mappings: ClassVar[tuple[str, ...]] = ("annotations",)
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
            own = items(row, number, "tripleset")
            if not all(map(_is_triple, own)):
                raise wrong(own, number, ("tripleset",), "triples of texts")
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
        return _of_note(notes, number)
    if isinstance(notes, list) and all(isinstance(n, dict) for n in notes):  # the published files
        return [sentence for n in notes for sentence in _of_note(n, number)]
    if notes is not None:
        raise wrong(notes, number, ("annotations",), "the annotations of DART")
    out: list[str] = []
    for name in ("targets", "references", "target"):
        if row.get(name):
            out += texts(row, number, name)
    return out


def _of_note(note: Row, number: int) -> list[str]:
    return texts(note, number, "text") if note.get("text") is not None else []


def _is_triple(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(isinstance(x, str | int | float) for x in value)
    )
