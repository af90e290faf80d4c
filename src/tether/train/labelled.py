"""Texts with a class each, for a classifier: every row read and checked before a model is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.rewards.batch import text_of
from tether.rewards.class_names import in_order, is_number, one_name, shown
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
    dropped: int = 0
    """Training rows left out, since their text is held out too."""


def load_labelled(settings: ClassifierSettings, found: Splits | None = None) -> Labelled:
    """found: the splits of `settings.data`, where they are read already.

    Training rows whose text is held out are dropped and counted. Equal numbers are one class.
    Raises UserError naming row and column for a text or a label that is missing, for fewer than two
    classes, for a class that is only held out, and where no training row is left.
    """
    columns = _columns(settings)
    text, column = columns
    found = splits(settings.data) if found is None else found
    tests = {k: _read(t, n, *columns) for k, (t, n) in found.items() if k != "train"}
    whole, every = found["train"]
    held = {x for texts, _ in tests.values() for x in texts}
    free = [i for i, x in enumerate(whole[text]) if _plain(x) not in held]
    if not free:
        raise UserError(
            f"data: no text of {settings.data.path} is left for train (rows {len(every)}, "
            f"dropped_text_held_out {len(every)}); hold out fewer rows, or give more texts"
        )
    table, numbers = {k: [whole[k][i] for i in free] for k in columns}, [every[i] for i in free]
    rows = part_of(len(numbers), settings.half, settings.share)
    texts, classes = _read({k: table[k][rows] for k in columns}, numbers[rows], *columns)
    name = _names(found, column)
    classes = [name[x] for x in classes]
    tests = {k: (x, [name[c] for c in y]) for k, (x, y) in tests.items()}
    labels = in_order(classes)
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
    return Labelled(texts, classes, labels, tests, len(every) - len(free))


def held_out(settings: ClassifierSettings) -> dict[str, tuple[list[str], list[str]]]:
    """Texts and classes of validation and test rows, called as in training."""
    columns = _columns(settings)
    found = splits(settings.data)
    name = _names(found, columns[1])
    tests = {k: _read(t, n, *columns) for k, (t, n) in found.items() if k != "train"}
    return {k: (x, [name[c] for c in y]) for k, (x, y) in tests.items()}


def _names(found: Splits, column: str) -> dict[str, str]:
    """What each class is called, by all rows of all splits: the same for every share and half.

    Raises UserError where true or false stand beside numbers, or beside "true" as text: they may be
    meant to be one class, or not.
    """
    values = {k: [x for x in t[column] if _is_class(x)] for k, (t, _) in found.items()}
    all_of = [x for v in values.values() for x in v]
    truths = [x for x in all_of if _name(x).casefold() in ("true", "false")]
    other = next((x for x in all_of if is_number(_name(x))), None)
    if other is None and any(isinstance(x, bool) for x in truths):
        other = next((x for x in truths if isinstance(x, str)), None)
    if truths and other is not None:
        first = next((x for x in truths if type(x) is not type(other)), truths[0])
        raise UserError(
            f"data.label {column!r} holds {json.dumps(first)} beside {json.dumps(other)}, classes "
            "of mixed kinds: write all of them as true and false, or all as numbers"
        )
    further = [_name(x) for k, v in values.items() if k != "train" for x in v]
    return one_name([_name(x) for x in values["train"]], further)


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
    if not _is_class(value):
        raise UserError(
            f"data: row {row}, column {column!r} holds {repr(value)[:60]}, expected the name or "
            "number of a class"
        )
    return _name(value)


def _is_class(value: Any) -> bool:
    return isinstance(value, str | int | float) and not _absent(value)


def _name(value: Any) -> str:
    return str(value).strip()


def _plain(value: Any) -> str | None:
    """Text of a row that may not be used, so that nothing is refused here."""
    messages = isinstance(value, list) and value and all(isinstance(m, dict) for m in value)
    return text_of(value) if isinstance(value, str) or messages else None


def _absent(value: Any) -> bool:
    """Nothing, not a number, or blank text: as a string it would be a class, or a text, of its
    own."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())
