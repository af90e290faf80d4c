"""Labelled texts: every row is read and checked before a model is loaded."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.config.settings import parse
from tether.train.classifier import train_classifier
from tether.train.labelled import load_labelled


def rows(n: int = 40, classes: int = 10) -> list[dict[str, Any]]:
    return [{"text": f"text {i}", "label": 1 + i % classes} for i in range(n)]


def given(
    folder: Path, table: list[dict[str, Any]], held: int = 4, **changes: Any
) -> ClassifierSettings:
    file = folder / "labelled.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in table))
    data = {"path": str(file), "text": "text", "label": "label", "validation_rows": held}
    mapping = {"job": "classifier", "kind": "model", "data": data,
               "model": {"path": str(folder / "there is none")}}  # fmt: skip
    found = parse({**mapping, **changes}, "a test")
    assert isinstance(found, ClassifierSettings)
    return found


def test_classes_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    assert load_labelled(given(tmp_path, rows())).labels == [str(i) for i in range(1, 11)]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("label", None, "row 7 has no class in the column 'label'; fill it in"),
        ("label", math.nan, "row 7 has no class in the column 'label'"),
        ("label", " ", "row 7 has no class in the column 'label'"),
        ("label", [1], r"row 7, column 'label' holds \[1\], expected the name or number"),
        ("text", None, "row 7 has no text in the column 'text'; fill it in"),
        ("text", math.nan, "row 7 has no text in the column 'text'"),
        ("text", "\n", "row 7 has no text in the column 'text'"),
        ("text", 5, "row 7, column 'text' holds 5, expected text"),
    ],
)
@pytest.mark.parametrize("held", [0, 39])
def test_what_is_missing_is_refused_before_a_model_is_loaded(
    column: str, value: Any, message: str, held: int, tmp_path: Path
) -> None:
    """In training rows and in held-out ones."""
    table = rows(classes=2)
    table[6][column] = value
    s = given(tmp_path, table, held)
    with pytest.raises(UserError, match=message) as e:
        train_classifier(s, tmp_path / "run")
    assert "\n" not in str(e.value) and not (tmp_path / "run").exists()


def test_the_first_of_many_is_named(tmp_path: Path) -> None:
    table = rows(classes=2)
    for i in (30, 8, 21):
        table[i]["label"] = None
    s = given(tmp_path, table, 0)
    with pytest.raises(UserError, match=r"row 9 has no class .* \(3 rows have none\)"):
        load_labelled(s)


def test_a_share_with_one_class_is_named(tmp_path: Path) -> None:
    s = given(tmp_path, rows(), share=0.01, half="first")
    of = r"the share 0.01 of the first half of the training rows \(1 row\)"
    with pytest.raises(UserError, match=of + "; a classifier needs two: use a larger share"):
        load_labelled(s)


def test_all_of_one_class(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has only the class '1' in the training rows; a class"):
        load_labelled(given(tmp_path, rows(classes=1)))
