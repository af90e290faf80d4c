"""One row of every known schema of every task, written here."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
CELL = {"value": "Dawn – Ünï", "is_header": False, "column_span": 1, "row_span": 1}
HEAD = {**CELL, "value": "Film", "is_header": True}
TABLE = {
    "table_page_title": "Ann",
    "table_section_title": "Films",
    "table": [[HEAD], [CELL]],
    "highlighted_cells": [[1, 0]],
}
DIALOG = [f"utterance {i}" for i in range(6)]
SCHEMAS: dict[str, list[Row]] = {
    "imdb": [{"text": "Ein schöner film 🔥 indeed", "label": 1}],
    "commongen": [
        {"concept_set_idx": 0, "concepts": ["café", "sit"], "target": "They sit in the café."},
        {"concepts": ["café", "sit"], "references": ["They sit in the café.", "Sit, café!"]},
    ],
    "cnn_dailymail": [{"article": "News – from Köln.", "highlights": "News .\nKöln .", "id": "1"}],
    "totto": [
        TABLE | {"sentence_annotations": {"final_sentence": ["Ann was in Dawn."]}},
        TABLE | {"sentence_annotations": [{"final_sentence": "Ann was in Dawn."}]},
        TABLE | {"references": ["Ann was in Dawn.", "In Dawn."]},
    ],
    "iwslt17": [
        {"translation": {"en": "Good morning.", "de": "Grüß Gott."}},
        {"en": "Good morning.", "de": "Grüß Gott."},
    ],
    "wmt16": [{"translation": {"de": "Grüß Gott.", "en": "Good morning."}}],
    "multi30k": [{"en": "Good morning.", "de": "Grüß Gott."}],
    "narrativeqa": [
        {
            "document": {"id": "1", "summary": {"text": "Zoë ran away.", "tokens": []}},
            "question": {"text": "Who ran?", "tokens": []},
            "answers": [{"text": "Zoë", "tokens": []}, {"text": "The girl", "tokens": []}],
        },
        {"question": "Who ran?", "answers": ["Zoë", "The girl"], "summary": "Zoë ran away."},
    ],
    "dailydialog": [
        {"dialog": DIALOG, "act": [1] * 6, "emotion": [0] * 6},
        {"utterances": DIALOG, "act": [1] * 6, "emotion": [0] * 6},
    ],
    "fairytaleqa": [
        {"story_section": "Zoë ran.", "question": "Who?", "answer1": "Zoë", "answer2": "She"},
        {"context": "Zoë ran.", "question": "Who?", "answers": ["Zoë", "She"]},
    ],
    "fetaqa": [
        {
            "table_page_title": "Ann",
            "table_section_title": "Films",
            "table_array": [["Film"], ["Dawn – Ünï"]],
            "highlighted_cell_ids": [[1, 0]],
            "question": "Which film?",
            "answer": "Ann was in Dawn.",
        }
    ],
    "dart": [
        {"tripleset": [["Zoë", "ran", "away"]], "target": "Zoë ran away.", "references": []},
        {"tripleset": [["Zoë", "ran", "away"]], "targets": ["Zoë ran away.", "Away!"]},
        {"tripleset": [["Zoë", "ran", "away"]], "annotations": {"text": ["Zoë ran away."]}},
    ],
    "scitldr": [{"source": ["We show α.", "It holds."], "target": ["α holds.", "We show it."]}],
    "xsum": [
        {"document": "News – from Köln.", "summary": "Köln .", "id": "1"},
        {"document": "News – from Köln.", "target": "Köln ."},
    ],
}
"""Task -> rows; the first is the hub's."""

MINIS = {
    "imdb": "imdb",
    "commongen": "commongen",
    "cnn_dailymail": "cnn_dailymail_sample",
    "totto": "totto_sample",
    "iwslt17": "iwslt17_de_en",
    "multi30k": "multi30k",
    "narrativeqa": "narrativeqa_sample",
    "dailydialog": "dailydialog",
    "fairytaleqa": "fairytaleqa",
    "fetaqa": "fetaqa",
    "dart": "dart",
    "scitldr": "scitldr",
    "xsum": "xsum",
}
"""Task -> file of real rows in ../shared/data/mini."""
