"""Labelled texts: every row is read and checked before a model is loaded."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.config.settings import parse
from tether.train.classifier import train_classifier
from tether.train.labelled import held_out, load_labelled


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


def labelled(labels: list[Any]) -> list[dict[str, Any]]:
    return [{"text": f"text {i}", "label": x} for i, x in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ([1, 1.0, 0, 0.0], ["0", "1"]),
        (["1", "1.0", "2", "2.0"], ["1", "2"]),
        (["pos", "pos ", "neg", " neg"], ["neg", "pos"]),
        ([1.0, 0.0, 1.0, 0.0], ["0.0", "1.0"]),  # unmixed ones are called as they are written
        ([True, False, True, False], ["False", "True"]),
        (["true", "false", "true", "false"], ["false", "true"]),
        (["1.0", "0.50", "x", "1.0"], ["0.50", "1.0", "x"]),
    ],
)
def test_equal_numbers_are_one_class(labels: list[Any], want: list[str], tmp_path: Path) -> None:
    found = load_labelled(given(tmp_path, labelled(labels * 10)))
    assert found.labels == want and set(found.classes) == set(want)
    assert {c for _, y in found.tests.values() for c in y} <= set(want)


def test_a_held_out_class_is_called_as_in_training(tmp_path: Path) -> None:
    s = given(tmp_path, labelled([1.0, 0.0] * 10), 0)
    other = [{"text": f"other {i}", "label": i % 2} for i in range(4)]
    (tmp_path / "held.jsonl").write_text("".join(json.dumps(r) + "\n" for r in other))
    s = replace(s, data=replace(s.data, validation=str(tmp_path / "held.jsonl")))
    found = load_labelled(s)
    assert found.labels == ["0.0", "1.0"] and set(found.tests["validation"][1]) == {"0.0", "1.0"}
    assert {k: sorted(y) for k, (_, y) in held_out(s).items()} == {
        "validation": ["0.0", "0.0", "1.0", "1.0"]
    }


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([True, 1, False, 0], r"'label' holds true beside [01], classes of mixed kinds: write"),
        ([1.0, False], "holds false beside 1.0"),
        (["true", "0"], 'holds "true" beside "0"'),
        ([True, "true", False], 'holds true beside "true"'),
    ],
)
def test_true_beside_a_number_is_refused(labels: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as e:
        load_labelled(given(tmp_path, labelled(labels * 10)))
    assert "\n" not in str(e.value)


def test_training_rows_whose_text_is_held_out_are_dropped(tmp_path: Path) -> None:
    table = [{"text": f"good bad {i % 20}", "label": i % 2} for i in range(40)]
    s = given(tmp_path, table, kind="tfidf")
    found = load_labelled(s)
    held = set(found.tests["validation"][0])
    assert held and found.dropped > 0 and not held & set(found.texts)
    assert len(found.texts) + found.dropped == 36
    said: list[str] = []
    train_classifier(s, tmp_path / "run", say=said.append)
    assert f"{found.dropped} training rows are left out: their text is held out too" in said
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["notes"] == {"train": {"dropped_text_held_out": found.dropped}}
    same = [{"text": "the same", "label": i % 2} for i in range(10)]
    with pytest.raises(UserError, match=r"no text of .* is left for train \(rows 6, dropped_text"):
        load_labelled(given(tmp_path, same))


@pytest.mark.parametrize("kind", ["model", "tfidf"])
def test_columns_of_pairs_are_refused_beside_labels(kind: str, tmp_path: Path) -> None:
    s = given(tmp_path, rows(classes=2), kind=kind, pairs={"margin": "m"})
    with pytest.raises(UserError, match=rf"pairs\.margin cannot have an effect: kind is {kind}"):
        train_classifier(s, tmp_path / "run")
