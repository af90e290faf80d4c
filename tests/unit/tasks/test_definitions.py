"""Prompts, references and columns of every task, worked out by hand, from every known schema."""

from __future__ import annotations

from typing import Any

import pytest

from tether.config.errors import UserError
from tether.tasks.cnn_dailymail import CNNDailyMail
from tether.tasks.commongen import CommonGen
from tether.tasks.dailydialog import DailyDialog
from tether.tasks.dart import DART
from tether.tasks.definition import Example, TaskDefinition, distinct
from tether.tasks.fairytaleqa import FairytaleQA
from tether.tasks.fetaqa import FeTaQA
from tether.tasks.imdb import IMDB
from tether.tasks.iwslt17 import IWSLT17
from tether.tasks.multi30k import Multi30k
from tether.tasks.narrativeqa import NarrativeQA
from tether.tasks.scitldr import SciTLDR
from tether.tasks.totto import ToTTo
from tether.tasks.xsum import XSum


def made(task: TaskDefinition, *rows: dict[str, Any]) -> list[Example]:
    return list(task.examples((i + 1, r) for i, r in enumerate(rows)))


def test_imdb_is_cut_at_half_of_the_words() -> None:
    (e,) = made(IMDB(), {"text": "one two three four five", "label": 1})
    assert (e.prompt, e.references) == ("one two", [" three four five"])
    assert e.prompt + e.references[0] == "one two three four five"
    assert e.columns == {"label": 1}
    assert e.identity == "one two three four five"
    for short in ("one", "", " a"):  # no half to continue
        assert [x.dropped for x in made(IMDB(), {"text": short, "label": 0})] == ["too_short"]
    (e,) = made(IMDB(share=0.25), {"text": "a b c d e f g h", "label": 0})
    assert e.prompt == "a b"
    with pytest.raises(UserError, match=r"imdb\.share is 1, must be between 0 and 1"):
        IMDB(share=1.0)


def test_imdb_trains_on_positive_reviews_where_it_is_told() -> None:
    good, bad = made(IMDB(), {"text": "a b", "label": 1}, {"text": "c d", "label": 0})
    assert IMDB().trains(bad)
    assert IMDB(positive_only=True).trains(good)
    assert not IMDB(positive_only=True).trains(bad)


def test_commongen_has_one_example_a_concept_set() -> None:
    rows = [
        {"concepts": ["ski", "mountain"], "target": "A man skis down a mountain."},
        {"concepts": ["dog", "run"], "target": "The dog runs."},
        {"concepts": ["ski", "mountain"], "target": "Skiers on the mountain."},
        {"concepts": ["ski", "mountain"], "target": "A man skis down a mountain. "},
    ]
    first, second = made(CommonGen(), *rows)
    assert first.prompt == "generate a sentence with: ski mountain."
    assert first.references == ["A man skis down a mountain.", "Skiers on the mountain."]
    assert (first.row, second.row) == (1, 2)
    assert first.columns == {"concepts": ["ski", "mountain"]}
    (other,) = made(CommonGen(), {"concepts": ["mountain", "ski"], "references": ["x"]})
    assert other.identity == first.identity  # the order makes no other set
    (hidden,) = made(CommonGen(), {"concepts": ["a", "b"], "target": ""})
    assert hidden.references == []
    (gem,) = made(CommonGen(), {"concepts": ["a"], "target": "", "references": ["One.", "Two."]})
    assert gem.references == ["One.", "Two."]


def test_summaries() -> None:
    (e,) = made(CNNDailyMail(), {"article": "News.", "highlights": "A .\nB .", "id": "x"})
    assert (e.prompt, e.references) == ("Summarize: News.", ["A .\nB ."])
    assert e.columns == {"document": "News."}
    (e,) = made(XSum(suffix="\nTL;DR:"), {"document": "News.", "summary": "Short."})
    assert (e.prompt, e.references) == ("Summarize: News.\nTL;DR:", ["Short."])
    (e,) = made(SciTLDR(), {"source": ["We show.", "It holds."], "target": ["One.", "Two."]})
    assert (e.prompt, e.references) == ("Summarize: We show. It holds.", ["One.", "Two."])


TABLE = [
    [("Year", True, 1), ("Result", True, 2)],
    [("", True, 1), ("Won", True, 1), ("Lost", True, 1)],
    [("1999", False, 1), ("3", False, 1), ("4", False, 1)],
    [("Sum", True, 1), ("7", False, 1), ("8", False, 1)],
]


def cells() -> list[list[dict[str, Any]]]:
    return [
        [{"value": v, "is_header": h, "column_span": c, "row_span": 1} for v, h, c in row]
        for row in TABLE
    ]


BARE = (
    "<table> <cell> 4 <col_header> Result </col_header> <col_header> Lost </col_header> </cell> "
    "<cell> 7 <col_header> Result </col_header> <col_header> Won </col_header> "
    "<row_header> Sum </row_header> </cell> </table>"
)
FULL = f"<page_title> FC Test </page_title> <section_title> Results </section_title> {BARE}"


@pytest.mark.parametrize(
    "references",
    [
        {"references": ["It lost 4.", "Four."]},
        {"sentence_annotations": {"final_sentence": ["It lost 4.", "Four.", "It lost 4."]}},
        {"sentence_annotations": [{"final_sentence": "It lost 4."}, {"final_sentence": "Four."}]},
    ],
)
def test_totto_writes_cells_with_the_headers_above_and_left(references: dict[str, Any]) -> None:
    row = {
        "table_page_title": "FC Test",
        "table_section_title": "Results",
        "table": cells(),
        "highlighted_cells": [[2, 2], [3, 1]],
        "overlap_subset": "True",
    } | references
    (e,) = made(ToTTo(), row)
    assert e.prompt == BARE + FULL  # RL4LMs joins both
    assert e.references == ["It lost 4.", "Four."]
    assert e.columns["table"] == [
        ["page_title", "FC Test"],
        ["section_title", "Results"],
        ["Result Lost", "4"],
        ["Sum Result Won", "7"],
    ]
    assert e.columns["overlap_subset"] is True
    for given, want in (("False", False), ("none", None), (None, None), (False, False)):
        (e,) = made(ToTTo(), row | {"overlap_subset": given})
        assert e.columns["overlap_subset"] is want
    (once,) = made(ToTTo(titles="once"), row)
    assert once.prompt == FULL
    for titles, table in (("both", BARE + FULL), ("once", FULL)):
        (cued,) = made(ToTTo(titles=titles, suffix=" Text:"), row)
        assert cued.prompt == f"{table} Text:" and cued.identity == e.identity
    (hidden,) = made(ToTTo(), {k: v for k, v in row.items() if k not in references})
    assert hidden.references == []


def test_a_cell_that_is_not_there_is_named() -> None:
    row = {"table": cells(), "highlighted_cells": [[2, 3]], "references": ["x"]}
    with pytest.raises(UserError, match=r"row 1: the table has no cell \(2, 3\)"):
        made(ToTTo(), row)
    with pytest.raises(UserError, match="a cell of the table is 7, expected text or"):
        made(ToTTo(), row | {"table": [[7]]})


def test_fetaqa_asks_about_a_table_of_texts() -> None:
    row = {
        "table_array": [["Year", "Film"], ["1999", "Dawn"]],
        "highlighted_cell_ids": [[1, 1]],
        "table_page_title": "Ann",
        "table_section_title": "",
        "question": "Which film?",
        "answer": "Ann was in Dawn.",
    }
    table = (
        "<page_title> Ann </page_title> <table> <cell> Dawn <col_header> Film </col_header> "
        "</cell> </table>"
    )
    (e,) = made(FeTaQA(), row)
    assert (e.prompt, e.references) == (f"Which film? {table}", ["Ann was in Dawn."])
    assert made(FeTaQA(question=False), row)[0].prompt == table
    for question, before in ((True, "Which film? "), (False, "")):
        (cued,) = made(FeTaQA(question=question, suffix=" Answer:"), row)
        assert cued.prompt == f"{before}{table} Answer:" and cued.identity == e.identity


@pytest.mark.parametrize(
    "rows",
    [
        [{"targets": ["A won B.", "B went to A."]}],
        [{"target": "A won B."}, {"target": "B went to A."}],
        [{"annotations": {"source": ["x", "y"], "text": ["A won B.", "B went to A."]}}],
        [{"annotations": [{"text": "A won B."}, {"text": "B went to A."}]}],
    ],
)
def test_dart_has_one_example_a_set_of_triples(rows: list[dict[str, Any]]) -> None:
    triples = [["A", "won", "B"], ["B", "year", "1999"]]
    (e,) = made(DART(), *({"tripleset": triples} | r for r in rows))
    assert e.prompt == "translate Graph to English: <H> A <R> won <T> B <H> B <R> year <T> 1999"
    assert e.references == ["A won B.", "B went to A."]
    assert e.columns["table"] == [["A won", "B"], ["B year", "1999"]]
    (cued,) = made(DART(suffix="\n\nText:"), *({"tripleset": triples} | r for r in rows))
    assert cued.prompt == f"{e.prompt}\n\nText:" and cued.identity == e.identity


def test_translation_from_both_schemas() -> None:
    for row in (
        {"translation": {"de": "Hallo!", "en": "Hello!"}},
        {"de": "Hallo!", "en": " Hello! "},
    ):
        (e,) = made(IWSLT17(), row)
        assert e.prompt == "translate English to German: Hello!"
        assert (e.references, e.columns) == (["Hallo!"], {"source": "Hello!"})
    empty = made(Multi30k(), {"en": "", "de": "x"}, {"en": "x", "de": " "})
    assert [e.dropped for e in empty] == ["empty_side"] * 2
    with pytest.raises(UserError, match="row 1, column translation holds 'x'"):
        made(IWSLT17(), {"translation": "x"})


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Who?", "answers": ["Tom", "tom ", "A cat"], "summary": "Tom IS a cat."},
        {
            "question": {"text": "Who?", "tokens": []},
            "answers": [{"text": "Tom"}, {"text": "A cat"}],
            "document": {"id": "1", "summary": {"text": "Tom IS a cat."}},
        },
        {
            "question": {"text": "Who?"},
            "answers": {"text": ["Tom", "A cat"]},
            "document": {"summary": {"text": "Tom IS a cat."}},
        },
    ],
)
def test_narrativeqa_is_unifiedqas_lower_case(row: dict[str, Any]) -> None:
    (e,) = made(NarrativeQA(), row)
    assert e.prompt == "who? \\n tom is a cat."
    assert e.references == ["tom", "a cat"]
    assert e.columns == {"question": "Who?"}
    (e,) = made(NarrativeQA(lower=False, separator="\n"), row)
    assert e.prompt == "Who?\nTom IS a cat."
    assert e.references[0] == "Tom"


def test_fairytaleqa_reads_its_part_of_the_tale() -> None:
    rows = [
        {"question": "Who?", "answers": ["The fox"], "context": "A Fox.", "story": "name"},
        {"question": "Who?", "answer1": "A fox", "answer2": None, "story_section": "A Fox."},
    ]
    (e,) = made(FairytaleQA(), *rows)  # the same question of the same tale: answers are joined
    assert e.prompt == "who? \\n a fox."
    assert e.references == ["the fox", "a fox"]


def test_dailydialog_counts_a_context_of_five() -> None:
    row = {
        "dialog": ["a", " b ", "c", "d", "e", "f", "g"],
        "act": [1, 2, 1, 2, 1, 3, 4],
        "emotion": [0, 0, 0, 0, 0, 4, 6],
    }
    first, second = made(DailyDialog(), row)
    assert first.prompt == "a<EOU>b<EOU>c<EOU>d<EOU>e <EOU>"
    assert first.references == ["f"]
    context = ["a", "b", "c", "d", "e"]
    assert first.columns == {"context": context, "intent": 3, "emotion": 4}
    assert second.prompt == "b<EOU>c<EOU>d<EOU>e<EOU>f <EOU>"
    assert made(DailyDialog(end="<EOU>"), row)[0].references == ["f<EOU>"]
    two = made(DailyDialog(context_size=2, mark="|"), row | {"utterances": row["dialog"]})
    assert (len(two), two[0].prompt) == (5, "a|b |")
    with pytest.raises(UserError, match="row 1 has 7 utterances, 6 acts and 7 emotions"):
        made(DailyDialog(), row | {"act": [1] * 6})
    with pytest.raises(UserError, match="must be at least 1"):
        DailyDialog(context_size=0)


def test_texts_that_are_missing_are_named() -> None:
    with pytest.raises(UserError, match="row 2 has nothing in the column text"):
        made(IMDB(), {"text": "a b", "label": 1}, {"text": None, "label": 1})
    with pytest.raises(UserError, match="row 1, column article holds 3, expected a list of texts"):
        made(CNNDailyMail(), {"article": 3, "highlights": "x"})


def test_distinct_keeps_the_order() -> None:
    assert distinct([" b", "a", "b ", ""]) == ["b", "a"]
