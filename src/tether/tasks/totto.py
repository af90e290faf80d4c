"""ToTTo: a sentence that says what the highlighted cells of a Wikipedia table say.

Source: Parikh et al. 2020, arXiv 2004.14373; prompts and defaults as in allenai/RL4LMs@97df0bd,
scripts/training/task_configs/totto/t5_ppo.yml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tether.tasks.definition import (
    Example,
    Row,
    TaskDefinition,
    distinct,
    items,
    texts,
    title,
    wrong,
)
from tether.tasks.tables import highlighted, linearized, records


@dataclass(kw_only=True)
class ToTTo(TaskDefinition):
    """Highlighted cells -> a sentence, up to three references. Source: allenai/RL4LMs@97df0bd."""

    titles: Literal["both", "once"] = "both"
    """both: the cells twice, without and with the titles of page and section, as RL4LMs joins them.
    once: with titles only, as the task's own baseline."""
    suffix: str = ""
    """After the cells: where a model without an encoder begins the sentence."""

    hub: ClassVar[str] = "google-research-datasets/totto"
    hub_revision: ClassVar[str | None] = "refs/convert/parquet"
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "train": ("totto_train_data",),
        "validation": ("totto_dev_data",),
        "test": ("unlabeled_totto_test_data",),
    }
    licence: ClassVar[str] = "CC BY-SA 3.0"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("table",), ("highlighted_cells",))
    mappings: ClassVar[tuple[str, ...]] = ("sentence_annotations",)
    columns: ClassVar[tuple[str, ...]] = ("table", "overlap_subset")
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "meteor": {"kind": "metric", "metric": {"kind": "meteor"}}
    }
    metrics: ClassVar[tuple[str, ...]] = ("sacre_bleu", "parent", "meteor", "rouge_2", "rouge_l")
    naturalness: ClassVar[tuple[str, ...]] = ("bert_score", "bleurt")
    beside: ClassVar[tuple[str, ...]] = ("sacre_bleu_by_overlap", "parent_by_overlap")
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 512, "too_long": "truncate_left"}
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 50, "min_new_tokens": 9}
    # RL4LMs decodes with a beam of 5; there is no beam search here
    evaluation: ClassVar[Mapping[str, Any]] = {"greedy": True}

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        for number, row in rows:
            table, places = items(row, number, "table"), items(row, number, "highlighted_cells")
            cells = highlighted(table, places, number)
            page, section = (title(row, number, f"table_{x}_title") for x in ("page", "section"))
            full = linearized(cells, page, section)
            prompt = (linearized(cells) + full if self.titles == "both" else full) + self.suffix
            columns = {
                "table": records(cells, page, section),
                "overlap_subset": _OVERLAP.get(str(row.get("overlap_subset"))),
            }
            yield Example(number, prompt, _references(row, number), columns, full)


_OVERLAP = {"True": True, "False": False}
"""As published, in text; training rows have none of the two."""


def _references(row: Row, number: int) -> list[str]:
    """Final sentences of the annotators: a list of its own, a mapping of lists (hub) or a list of
    mappings (the published files); none in the unlabelled test split."""
    if row.get("references"):
        return distinct(texts(row, number, "references"))
    if row.get("target"):
        return distinct(texts(row, number, "target"))
    notes = row.get("sentence_annotations")
    if notes is None:
        return []
    notes = [notes] if isinstance(notes, dict) else notes
    if not isinstance(notes, list) or not all(isinstance(n, dict) for n in notes):
        raise wrong(notes, number, ("sentence_annotations",), "the annotations of ToTTo")
    given = [n for n in notes if n.get("final_sentence") is not None]
    return distinct(t for n in given for t in texts(n, number, "final_sentence"))
