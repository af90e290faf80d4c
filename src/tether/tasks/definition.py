"""The seam of a task: rows of a dataset in, prompts and references out, and the task's defaults.

A task says where its data are, how a prompt is built from a row, what the references are, which
rows count as the same (for the overlap between splits), and what reward, metrics and decoding it is
used with. It needs no torch: settings are resolved from it before a model is thought of.
"""

from __future__ import annotations

import ast
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tether.config.errors import UserError

Row = dict[str, Any]
"""Column -> value of one row."""
RL4LMS = "allenai/RL4LMs@97df0bd"
"""Source of prompts and defaults, where nothing else is said."""
MINI = Path(__file__).with_name("mini")
"""Folder of the bundled miniature sets, one file a task."""


@dataclass(frozen=True)
class Example:
    """One prompt with everything that is known about it."""

    row: int
    """Number (from 1) of the row of the source that it was built from."""
    prompt: str
    references: list[str]
    """Human completions, without repetitions; empty where the source hides them."""
    columns: Row = field(default_factory=dict)
    """What rewards and metrics read beside prompt and references."""
    key: str = ""
    """What makes two examples the same one, for the overlap of splits; default: the prompt."""
    dropped: str = ""
    """Why it is none after all: the split leaves it out and notes how many as `dropped_<this>`."""

    @property
    def identity(self) -> str:
        """`key` without differences of case and white space."""
        return " ".join((self.key or self.prompt).casefold().split())


@dataclass(kw_only=True)
class TaskDefinition(ABC):
    """Base of every task. A subclass is a dataclass (fields = settings) with `examples`."""

    one_row_a_reference: bool = False
    """Training split: every reference is a row of its own, so that supervised training sees all of
    them; without it the first one trains. All of them stay in the column `references`."""

    hub: ClassVar[str] = ""
    """Hub id."""
    hub_name: ClassVar[str | None] = None
    """Configuration of the hub dataset."""
    hub_revision: ClassVar[str | None] = None
    """Revision, where the main one holds a script, which the datasets library no longer runs."""
    hub_splits: ClassVar[Mapping[str, str]] = {
        "train": "train",
        "validation": "validation",
        "test": "test",
    }
    """Our split -> the hub's; an absent one is held out of the training rows."""
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Our split -> further names that its file has in local folders."""
    licence: ClassVar[str] = ""
    """Of the data, in short."""
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Columns of the source; each entry lists the names that one of them has in known copies."""
    mappings: ClassVar[tuple[str, ...]] = ()
    """Columns of the source that hold a mapping, or a list of them; a CSV cell has its JSON."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Names in `Example.columns`, of every example."""
    rewards: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Default reward: name -> part, by the reward's name in the catalog."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Metrics of the task, by name."""
    naturalness: ClassVar[tuple[str, ...]] = ()
    """Metrics of how natural the text is, by name."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Metrics that the benchmark measures and puts into no score, by name."""
    data: ClassVar[Mapping[str, Any]] = {}
    """Defaults of `data`: length of prompts, which side is cut, held-out rows."""
    sampling: ClassVar[Mapping[str, Any]] = {}
    """Defaults of `sampling`: how training completions are drawn."""
    evaluation: ClassVar[Mapping[str, Any]] = {}
    """Defaults of `evaluation.sampling` where evaluation decodes in another way than training."""

    @abstractmethod
    def examples(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Example]:
        """Examples of one split in the order of its rows. rows: (number from 1, row). A row that
        gives none is an example that says why (`unusable`), so that it is counted.

        Raises UserError naming the row that cannot be read.
        """

    def trains(self, example: Example) -> bool:
        """Whether an example of the training split trains. Asked when rows for validation and test
        are held out of it, which are then the same whatever trains."""
        return True

    def aliases(self, split: str) -> tuple[str, ...]:
        """Names that one of our splits may have in a local folder or in a column `split`."""
        return (*NAMES[split], *self.files.get(split, ()))

    @classmethod
    def mini(cls, kind: str) -> Path:
        """The bundled miniature set of a task. Raises UserError where it has none."""
        path = MINI / f"{kind}.jsonl.gz"
        if not path.is_file():
            there = sorted(p.name.removesuffix(".jsonl.gz") for p in MINI.glob("*.jsonl.gz"))
            raise UserError(
                f"data.path mini: the task {kind} has no bundled set (those of {', '.join(there)} "
                "have one); give a folder, a file or a hub id"
            )
        return path


NAMES: dict[str, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("validation", "val", "dev", "valid"),
    "test": ("test",),
}
"""Our split -> what it is called in the field."""


def unusable(number: int, why: str) -> Example:
    """A row that gives no example. why: the end of its note, `dropped_<why>`."""
    return Example(number, "", [], dropped=why)


def distinct(texts: Iterable[str]) -> list[str]:
    """Texts without surrounding white space, without empty ones and repetitions, in order."""
    return list(dict.fromkeys(t.strip() for t in texts if t.strip()))


def value(row: Row, number: int, *names: str) -> Any:
    """The first of several columns that the row has. Raises UserError naming row and columns."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise UserError(f"data: row {number} has nothing in the column {' or '.join(names)}")


def text(row: Row, number: int, *names: str) -> str:
    """As `value`, for text. Raises UserError where it is none."""
    found = value(row, number, *names)
    if not isinstance(found, str):
        raise wrong(found, number, names, "text")
    return found


def texts(row: Row, number: int, *names: str) -> list[str]:
    """As `value`, for a list of texts (one text is a list of one; the JSON of a list is that list).
    Raises UserError."""
    found = value(row, number, *names)
    if isinstance(found, str):
        inner = _list_in(found, json.loads)
        python = _list_in(found, ast.literal_eval) if inner is None else None
        if python and all(isinstance(x, str) for x in python):  # NumPy's has no commas
            raise wrong(found, number, names, "text, or a list of texts in JSON")
        found = [found] if inner is None or not all(isinstance(x, str) for x in inner) else inner
    if not isinstance(found, list) or not all(isinstance(x, str) for x in found):
        raise wrong(found, number, names, "a list of texts")
    return found


def items(row: Row, number: int, *names: str) -> list[Any]:
    """As `value`, for a list of anything, also as the JSON text of it (a CSV cell has no other).
    Raises UserError for anything else, one text too: it is no list of its letters."""
    found = value(row, number, *names)
    inner = _list_in(found, json.loads) if isinstance(found, str) else found
    if not isinstance(inner, list):
        raise wrong(found, number, names, "a list")
    return inner


def several_texts(row: Row, number: int, *names: str) -> list[str]:
    """As `items`, for texts: where one text would not be a list of one. Raises UserError."""
    found = items(row, number, *names)
    if not all(isinstance(x, str) for x in found):
        raise wrong(found, number, names, "a list of texts")
    return found


def title(row: Row, number: int, name: str) -> str:
    """Text or a number as text; empty where the row has none. Raises UserError."""
    found = row.get(name)
    if found is None or isinstance(found, str):
        return found or ""
    if isinstance(found, int | float):  # a CSV column of numbers with an empty cell has floats
        return str(int(found)) if found % 1 == 0 else str(found)
    raise wrong(found, number, (name,), "text")


def unpacked(cell: Any) -> Any:
    """The mapping, or the list of mappings, that a text is in JSON; anything else as it is."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("{", "[")):
        return cell
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    listed = found if isinstance(found, list) else [found]
    return found if all(isinstance(x, dict) for x in listed) else cell


def wrong(found: Any, number: int, names: Sequence[str], expected: str) -> UserError:
    """That a value is not what a task expects in a column (its names in known copies)."""
    return UserError(
        f"data: row {number}, column {' or '.join(names)} holds {repr(found)[:60]}, expected "
        f"{expected}"
    )


def _list_in(words: str, reader: Callable[[str], Any]) -> list[Any] | None:
    """The list that a text is in JSON or Python; None where it is none."""
    if not words.lstrip().startswith("["):
        return None
    try:
        found = reader(words.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return found if isinstance(found, list) else None
