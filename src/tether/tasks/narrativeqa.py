"""NarrativeQA: a question about a story, answered from its summary.

Source: Kočiský et al. 2018, arXiv 1712.07040; prompts as in UnifiedQA (Khashabi et al. 2020,
arXiv 2005.00700), which allenai/RL4LMs@97df0bd takes its files from, all in lower case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.definition import Example, Row, TaskDefinition, distinct, items, value, wrong


@dataclass(kw_only=True)
class NarrativeQA(TaskDefinition):
    """Question and summary -> an answer, two references. Source: allenai/RL4LMs@97df0bd."""

    separator: str = " \\n "
    """Between question and story: a backslash and the letter n, as UnifiedQA was trained."""
    lower: bool = True
    """Prompt and references in lower case, as RL4LMs."""

    hub: ClassVar[str] = "deepmind/narrativeqa"
    licence: ClassVar[str] = "Apache-2.0; summaries from Wikipedia CC BY-SA 3.0"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("question",),
        ("answers",),
        ("summary", "document", "context"),
    )
    mappings: ClassVar[tuple[str, ...]] = ("question", "answers", "document", "summary")
    columns: ClassVar[tuple[str, ...]] = ("question",)
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "rouge_l_max": {"kind": "metric", "metric": {"kind": "rouge_l_max"}}
    }
    metrics: ClassVar[tuple[str, ...]] = ("rouge_1", "rouge_2", "rouge_l", "meteor", "sacre_bleu")
    # with the best of several references the first two are rouge_l (answers are one sentence), and
    # bleu is sacre_bleu: GRUE's list would weigh one number three times, and one twice
    beside: ClassVar[tuple[str, ...]] = ("rouge_lsum", "rouge_l_max", "bleu")
    naturalness: ClassVar[tuple[str, ...]] = ("bert_score",)
    data: ClassVar[Mapping[str, Any]] = {"max_prompt_tokens": 512, "too_long": "truncate_right"}
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 50, "top_k": 50}
    # RL4LMs decodes with a beam of 4; there is no beam search here
    evaluation: ClassVar[Mapping[str, Any]] = {"top_k": 0, "greedy": True}

    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        """One example a question and story: copies of a question have their answers joined."""
        first: dict[str, int] = {}
        questions: dict[str, str] = {}
        found: dict[str, list[str]] = {}
        for number, row in rows:
            question, story = _text(row, number, "question"), self.story(row, number)
            prompt = self.cased(f"{question}{self.separator}{story}")
            first.setdefault(prompt, number)
            questions.setdefault(prompt, question)
            found.setdefault(prompt, []).extend(_answers(row, number))
        for prompt, answers in found.items():
            references = distinct(map(self.cased, answers))
            yield Example(first[prompt], prompt, references, {"question": questions[prompt]})

    def story(self, row: Row, number: int) -> str:
        """What the question is answered from: the summary."""
        document = row.get("document")
        if isinstance(document, dict) and document.get("summary") is not None:
            return _text(document, number, "summary")
        return _text(row, number, "summary", "context")

    def cased(self, words: str) -> str:
        return words.lower() if self.lower else words


def _text(row: Row, number: int, *names: str) -> str:
    """Text, or the hub's {text, tokens}."""
    found = value(row, number, *names)
    found = found.get("text") if isinstance(found, dict) else found
    if not isinstance(found, str):
        raise wrong(found, number, names, "text")
    return found


def _answers(row: Row, number: int) -> list[str]:
    found = value(row, number, "answers")
    # the datasets library turns a list of mappings into one of lists
    listed = items(
        {"answers": found.get("text")} if isinstance(found, dict) else row, number, "answers"
    )
    answers = [a.get("text") if isinstance(a, dict) else a for a in listed]
    if not all(isinstance(a, str) for a in answers):
        raise wrong(listed, number, ("answers",), "texts (numbers in quotation marks)")
    return answers
