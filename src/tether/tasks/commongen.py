"""CommonGen: a sentence of everyday life that uses all given concepts.

Source: Lin et al. 2020 (Findings of EMNLP), github INK-USC/CommonGen; prompts as in
allenai/RL4LMs@97df0bd, scripts/training/task_configs/common_gen/t5_ppo.yml.
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
    several_texts,
    texts,
)


@dataclass(kw_only=True)
class CommonGen(TaskDefinition):
    """Concepts -> a sentence that has them all. Source: allenai/RL4LMs@97df0bd."""

    prefix: str = "generate a sentence with: "
    """Before the concepts."""
    separator: str = " "
    """Between them."""
    end: str = "."
    """After them."""

    hub: ClassVar[str] = "allenai/common_gen"
    licence: ClassVar[str] = "MIT"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("concepts",), ("references", "target"))
    columns: ClassVar[tuple[str, ...]] = ("concepts",)
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "meteor": {"kind": "metric", "metric": {"kind": "meteor"}},
        "repeat_penalty": {"kind": "repeat_penalty"},
    }
    metrics: ClassVar[tuple[str, ...]] = (
        "rouge_2",
        "rouge_l",
        "bleu",
        "meteor",
        "cider_d",
        "coverage",
    )
    naturalness: ClassVar[tuple[str, ...]] = ("spice", "bert_score")
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 20, "too_long": "truncate_right"}
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 20, "min_new_tokens": 4}
    # RL4LMs decodes with a beam of 5; there is no beam search here
    evaluation: ClassVar[Mapping[str, Any]] = {"greedy": True}

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        """One example a concept set, wherever its sentences stand: the hub has one a row."""
        first: dict[tuple[str, ...], int] = {}
        found: dict[tuple[str, ...], list[str]] = {}
        for number, row in rows:
            concepts = tuple(several_texts(row, number, "concepts"))
            first.setdefault(concepts, number)
            sentences = found.setdefault(concepts, [])
            for name in ("references", "target", "targets"):
                if row.get(name) is not None:
                    sentences += texts(row, number, name)
        for concepts, sentences in found.items():
            prompt = f"{self.prefix}{self.separator.join(concepts)}{self.end}"
            # a set is the same in any order
            key = " ".join(sorted(concepts))
            columns = {"concepts": list(concepts)}
            yield Example(first[concepts], prompt, distinct(sentences), columns, key)
