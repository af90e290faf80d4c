"""Rows whose lists are texts, and whose texts are numbers: read as what they are, or refused by
row; never letter by letter."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.test_definitions import cells, made
from tether.config.errors import UserError
from tether.config.parts import check
from tether.config.run import DataSettings
from tether.tasks.cnn_dailymail import CNNDailyMail
from tether.tasks.commongen import CommonGen
from tether.tasks.dailydialog import DailyDialog
from tether.tasks.dart import DART
from tether.tasks.definition import TaskDefinition
from tether.tasks.fairytaleqa import FairytaleQA
from tether.tasks.fetaqa import FeTaQA
from tether.tasks.iwslt17 import IWSLT17
from tether.tasks.loading import splits
from tether.tasks.narrativeqa import NarrativeQA
from tether.tasks.totto import ToTTo

TOTTO: dict[str, Any] = {"table": cells(), "highlighted_cells": [[2, 2]], "references": ["Four."]}
FETAQA = {
    "table_array": [["Year"], ["1999"]], "highlighted_cell_ids": [[1, 0]],
    "question": "Q?", "answer": "A.",
}  # fmt: skip
DIALOG = {"dialog": ["a", "b"], "act": [1, 2], "emotion": [0, 0]}
TALE = {"question": "Who?", "context": "A fox."}
STORY = {"question": "Who?", "summary": "A fox."}


@pytest.mark.parametrize(
    ("task", "row", "change"),
    [
        (ToTTo(), TOTTO, "table"),
        (ToTTo(), TOTTO, "highlighted_cells"),
        (ToTTo(), TOTTO, "references"),
        (FeTaQA(), FETAQA, "table_array"),
        (FeTaQA(), FETAQA, "highlighted_cell_ids"),
        (DART(), {"tripleset": [["A", "b", "C"]], "targets": ["One.", "Two."]}, "tripleset"),
        (DART(), {"tripleset": [["A", "b", "C"]], "targets": ["One.", "Two."]}, "targets"),
        (CommonGen(), {"concepts": ["a", "b"], "references": ["x", "y"]}, "concepts"),
        (CommonGen(), {"concepts": ["a", "b"], "references": ["x", "y"]}, "references"),
        (DailyDialog(context_size=1), DIALOG, "dialog"),
        (DailyDialog(context_size=1), DIALOG, "act"),
        (NarrativeQA(), {**STORY, "answers": ["Tom", "A cat"]}, "answers"),
        (FairytaleQA(), {**TALE, "answers": ["Tom", "A cat"]}, "answers"),
        (CNNDailyMail(), {"article": ["A.", "B."], "highlights": ["C.", "D."]}, "article"),
        (CNNDailyMail(), {"article": ["A.", "B."], "highlights": ["C.", "D."]}, "highlights"),
    ],
)
def test_a_list_in_json_is_that_list(
    task: TaskDefinition, row: dict[str, Any], change: str
) -> None:
    """A CSV cell holds no other list."""
    assert made(task, {**row, change: json.dumps(row[change])}) == made(task, row)


@pytest.mark.parametrize("form", ["mapping", "mappings"])
def test_one_sentence_of_totto_is_one_reference(form: str) -> None:
    note: Any = {"final_sentence": "It lost."}
    row = {**TOTTO, "references": None}
    row["sentence_annotations"] = note if form == "mapping" else [note, {"final_sentence": None}]
    assert made(ToTTo(), row)[0].references == ["It lost."]


def test_one_sentence_of_dart_is_one_reference() -> None:
    row = {"tripleset": [["A", "b", 3]], "annotations": {"text": "One."}}
    assert made(DART(), row)[0].references == ["One."]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("totto", {**TOTTO, "references": "", "sentence_annotations": [{"final_sentence": "A."}]}),
        ("iwslt17", {"translation": {"en": "A fox.", "de": "Ein Fuchs."}}),
        ("wmt16", {"translation": {"en": "A fox.", "de": "Ein Fuchs."}}),
        ("dart", {"tripleset": [["A", "b", "C"]], "annotations": [{"text": "One."}]}),
        ("dart", {"tripleset": [["A", "b", "C"]], "annotations": {"text": ["One.", "Two."]}}),
        (
            "narrativeqa",
            {
                "question": {"text": "Who?"}, "answers": [{"text": "Tom"}],
                "document": {"summary": {"text": "A fox."}},
            },
        ),
    ],
)  # fmt: skip
def test_a_mapping_in_a_csv_cell_is_that_mapping(
    kind: str, row: dict[str, Any], tmp_path: Path
) -> None:
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.csv"
    lines.write_text(json.dumps(row) + "\n")
    cells = {k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()}
    with open(table, "w", newline="") as f:
        writer = csv.DictWriter(f, list(cells))
        writer.writeheader()
        writer.writerow(cells)
    first, second = (
        splits(DataSettings(path=str(p), task=check("task", kind), validation_rows=0))["train"]
        for p in (lines, table)
    )
    assert first == second and first[0]["references"]


def test_brackets_in_a_text_are_text() -> None:
    for words in ("[1] A note.", "[1]", "[sic]", "['tis] so", '["x"] said he [aside]'):
        (e,) = made(CNNDailyMail(), {"article": words, "highlights": words})
        assert (e.columns["document"], e.references) == (words, [words])


def test_numbers_where_a_title_or_a_value_stands() -> None:
    table = [[{"value": "Y", "is_header": True, "column_span": None}], [{"value": 7}]]
    row = {**TOTTO, "table": table, "highlighted_cells": [["1", 0.0]], "table_page_title": 1984}
    (e,) = made(ToTTo(), row)
    assert e.columns["table"] == [["page_title", "1984"], ["Y", "7"]]


def _wrong(changes: dict[str, Any], said: str, task: TaskDefinition, row: dict[str, Any]) -> Any:
    return pytest.param(task, {**row, **changes}, said, id=f"{type(task).__name__}-{said[:30]}")


@pytest.mark.parametrize(
    ("task", "row", "said"),
    [
        _wrong({"table": "a|b"}, "column table holds 'a|b', expected a list", ToTTo(), TOTTO),
        _wrong(
            {"table": ["ab"]}, "a row of the table is 'ab', expected a list of c", ToTTo(), TOTTO
        ),
        _wrong(
            {"table": [[{"value": None}]]}, "a cell of the table is {'value': None}", ToTTo(), TOTTO
        ),
        _wrong(
            {"table": [[{"value": "a", "is_header": "False"}]]},
            "is_header: true or false",
            ToTTo(),
            TOTTO,
        ),
        _wrong(
            {"table": [[{"value": "a", "column_span": "two"}]]},
            "column_span: a number from 1",
            ToTTo(),
            TOTTO,
        ),
        *(
            _wrong(
                {"highlighted_cells": [x]}, f"a highlighted cell is {x!r}, expec", ToTTo(), TOTTO
            )
            for x in (3, "12", [1], [0, "b"], [0, 1, 2], [0.5, 1], [None, 0], {"a": 1})
        ),
        _wrong(
            {"highlighted_cells": 3}, "highlighted_cells holds 3, expected a list", ToTTo(), TOTTO
        ),
        _wrong({"table_page_title": ["x"]}, "table_page_title holds ['x'], exp", ToTTo(), TOTTO),
        _wrong({"references": "['a' 'b']"}, "or a list of texts in JSON", ToTTo(), TOTTO),
        _wrong(
            {"references": None, "sentence_annotations": {"final_sentence": 3}},
            "column final_sentence holds 3, expected a list of texts",
            ToTTo(),
            TOTTO,
        ),
        _wrong(
            {"references": None, "sentence_annotations": "x"},
            "expected the annotations of ToTTo",
            ToTTo(),
            TOTTO,
        ),
        _wrong(
            {"table_array": "Year"}, "table_array holds 'Year', expected a list", FeTaQA(), FETAQA
        ),
        _wrong({"tripleset": "A b C"}, "tripleset holds 'A b C', expected a list", DART(), {}),
        _wrong({"tripleset": ["abc"]}, "holds ['abc'], expected triples of texts", DART(), {}),
        _wrong({"tripleset": [["a", "b", None]]}, "expected triples of texts", DART(), {}),
        _wrong(
            {"annotations": [{"text": ["x", 3]}]},
            "column text holds ['x', 3]",
            DART(),
            {"tripleset": [["a", "b", "c"]]},
        ),
        _wrong(
            {"annotations": ["x"]},
            "expected the annotations of DART",
            DART(),
            {"tripleset": [["a", "b", "c"]]},
        ),
        _wrong(
            {"concepts": "dog run"}, "concepts holds 'dog run', expected a list", CommonGen(), {}
        ),
        _wrong({"concepts": ["a", 3]}, "expected a list of texts", CommonGen(), {}),
        _wrong({"dialog": "hi"}, "holds 'hi', expected a list", DailyDialog(), DIALOG),
        _wrong({"act": 3}, "column act holds 3, expected a list", DailyDialog(), DIALOG),
        _wrong(
            {"act": ["1", "2"]}, "['1', '2'], expected a list of whole n", DailyDialog(), DIALOG
        ),
        _wrong({"emotion": [0, None]}, "column emotion holds [0, None]", DailyDialog(), DIALOG),
        _wrong({"answers": "Tom"}, "answers holds 'Tom', expected a list", NarrativeQA(), STORY),
        _wrong(
            {"answers": [1876]}, "holds [1876], expected texts (numbers in", NarrativeQA(), STORY
        ),
        _wrong({"answers": [{"text": 3}]}, "expected texts (numbers in q", NarrativeQA(), STORY),
        _wrong({"answer": 5}, "column answer holds 5, expected", FairytaleQA(), TALE),
        _wrong({"answer1": "x", "answer2": 5}, "column answer2 holds 5, exp", FairytaleQA(), TALE),
        _wrong(
            {"highlights": ["a", 3]},
            "['a', 3], expected a list of texts",
            CNNDailyMail(),
            {"article": "x"},
        ),
        _wrong({"en": "x", "de": ["y"]}, "column de holds ['y'], expected text", IWSLT17(), {}),
    ],
)
def test_other_forms_are_refused_by_row(
    task: TaskDefinition, row: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as e:
        made(task, row)
    assert str(e.value).startswith("data: row 1")
    assert said in str(e.value)
