"""Texts with a class each, for a classifier: every row read and checked before a model is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.rewards.class_names import in_order, shown
from tether.tasks.loading import splits
from tether.tasks.preferences import text_in
from tether.tasks.reading import Table
from tether.train.head_fit import part_of

Splits = Mapping[str, tuple[Table, list[int]]]


@dataclass(frozen=True)
class Labelled:
    """The training rows, the classes in order, and the rows of the other splits."""

    texts: list[str]
    classes: list[str]
    """One a text."""
    labels: list[str]
    """Different ones, numbers in the order of numbers."""
    tests: dict[str, tuple[list[str], list[str]]]


def load_labelled(settings: ClassifierSettings, found: Splits | None = None) -> Labelled:
    """found: the splits of `settings.data`, where they are read already.

    Raises UserError naming row and column for a text or a label that is missing, for fewer than two
    classes, and for a class that is only held out.
    """
    columns = _columns(settings)
    found = splits(settings.data) if found is None else found
    table, numbers = found["train"]
    rows = part_of(len(numbers), settings.half, settings.share)
    texts, classes = _read({k: table[k][rows] for k in columns}, numbers[rows], *columns)
    tests = {k: _read(t, n, *columns) for k, (t, n) in found.items() if k != "train"}
    labels = in_order(classes)
    column = columns[1]
    if len(labels) < 2:
        raise UserError(
            f"data.label {column!r} has only the class {labels[0]!r} in "
            f"{_part(settings, len(texts))}; a classifier needs two: {_more(settings)}"
        )
    odd = next((x for _, y in tests.values() for x in y if x not in labels), None)
    if odd is not None:
        raise UserError(
            f"data.label {column!r}: {odd!r} is held out but is no class in "
            f"{_part(settings, len(texts))}, only {shown(labels)}; use more rows, or a larger share"
        )
    return Labelled(texts, classes, labels, tests)


def held_out(settings: ClassifierSettings) -> dict[str, tuple[list[str], list[str]]]:
    """Texts and classes of validation and test rows."""
    columns = _columns(settings)
    found = splits(settings.data)
    return {k: _read(t, n, *columns) for k, (t, n) in found.items() if k != "train"}


def _columns(settings: ClassifierSettings) -> tuple[str, str]:
    text, label = settings.data.text, settings.data.label
    if text is None or label is None:
        raise UserError(
            "a classifier needs data.text and data.label: the columns of text and class"
        )
    return text, label


def _part(settings: ClassifierSettings, rows: int) -> str:
    """What is used of the training rows."""
    whole = "the training rows"
    if settings.half == "all" and settings.share == 1:
        return whole
    whole = whole if settings.half == "all" else f"the {settings.half} half of {whole}"
    return f"the share {settings.share:g} of {whole} ({rows} row{'s' if rows > 1 else ''})"


def _more(settings: ClassifierSettings) -> str:
    return "use a larger share" if settings.share < 1 else "use other or more rows"


def _read(
    table: Table, numbers: Sequence[int], column: str, label: str
) -> tuple[list[str], list[str]]:
    for name, what in ((column, "text"), (label, "class")):
        empty = [row for x, row in zip(table[name], numbers, strict=True) if _absent(x)]
        if empty:
            others = f" ({len(empty)} rows have none)" if len(empty) > 1 else ""
            raise UserError(
                f"data: row {min(empty)} has no {what} in the column {name!r}{others}; fill it in, "
                "or remove the row"
            )
    texts = [text_in(x, row, column) for x, row in zip(table[column], numbers, strict=True)]
    return texts, [_class(x, row, label) for x, row in zip(table[label], numbers, strict=True)]


def _class(value: Any, row: int, column: str) -> str:
    if not isinstance(value, str | int | float):
        raise UserError(
            f"data: row {row}, column {column!r} holds {repr(value)[:60]}, expected the name or "
            "number of a class"
        )
    return str(value)


def _absent(value: Any) -> bool:
    """Nothing, not a number, or blank text: as a string it would be a class, or a text, of its
    own."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())
