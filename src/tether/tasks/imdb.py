"""IMDB text continuation: go on with a film review so that it turns out positive.

Source: Maas et al. 2011 (ACL); prompts as in allenai/RL4LMs@97df0bd,
rl4lms/data_pools/custom_text_generation_pools.py, IMDB and IMDBForSeq2Seq.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.tasks.definition import Example, Row, TaskDefinition, text, unusable, value


@dataclass(kw_only=True)
class IMDB(TaskDefinition):
    """Continue the first half of a film review. Source: allenai/RL4LMs@97df0bd."""

    share: float = 0.5
    """Share of a review's words (split at single spaces, rounded down) that is the prompt; the rest
    is the reference (RL4LMs' supervised pool; its RL pool takes the whole review as reference)."""
    positive_only: bool = False
    """Training split: reviews with label 1 only, as RL4LMs' supervised pool."""

    hub: ClassVar[str] = "stanfordnlp/imdb"
    hub_splits: ClassVar[Mapping[str, str]] = {"train": "train", "test": "test"}
    licence: ClassVar[str] = "no explicit licence; research only"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("text",), ("label",))
    columns: ClassVar[tuple[str, ...]] = ("label",)
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sentiment": {"kind": "classifier", "path": "lvwerra/distilbert-imdb", "label": 1}
    }
    metrics: ClassVar[tuple[str, ...]] = ("classifier",)
    naturalness: ClassVar[tuple[str, ...]] = ("perplexity", "msttr", "distinct_1", "distinct_2")
    data: ClassVar[Mapping[str, Any]] = {
        "max_prompt_tokens": 64,
        "too_long": "truncate_left",
        "validation_rows": 5000,
        "label": "label",
    }
    sampling: ClassVar[Mapping[str, Any]] = {
        "max_new_tokens": 48,
        "min_new_tokens": 48,
        "top_k": 50,
    }

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UserError(f"imdb.share is {self.share:g}, must be between 0 and 1")

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        for number, row in rows:
            whole, label = text(row, number, "text"), value(row, number, "label")
            words = whole.split(" ")
            at = int(len(words) * self.share)
            prompt, rest = " ".join(words[:at]), " ".join(words[at:])
            if not (prompt and rest):
                yield unusable(number, "too_short")
                continue
            # the reference goes on after the prompt's last word: the space is its own
            yield Example(number, prompt, [f" {rest}"], {"label": label}, whole)

    def trains(self, example: Example) -> bool:
        return not self.positive_only or example.columns["label"] == 1
