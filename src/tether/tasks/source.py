"""Where rows come from: a dataset with its own columns, or a task that builds them.

Both give rows of one split with their numbers in the source. A task finds its splits by the names
that they have on the hub, in local folders or in a column `split` of one file, and says which rows
count as the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.config.half_pairs import half_pair_within
from tether.config.nearest import nearest
from tether.config.parts import build
from tether.config.run import DataSettings
from tether.rewards.batch import ARGUMENTS
from tether.tasks.definition import Example, Row, TaskDefinition, unpacked
from tether.tasks.reading import Table, has_split, is_file, is_local, read, read_file, size, utf8

BUNDLED = "mini"
"""`data.path` of the miniature set that comes with a task."""


@dataclass(frozen=True)
class Rows:
    """Rows of one split. All lists have one entry a row."""

    table: Table
    numbers: list[int]
    """From 1, in the file or split that they were read from."""
    keys: list[str] | None = None
    """What makes two rows the same; None = nobody says."""
    notes: dict[str, Any] = field(default_factory=dict)
    trains: list[bool] | None = None
    """Which rows a task trains on; None = all."""

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, at: Sequence[int]) -> Rows:
        """Some rows, by position."""
        table = {k: [v[i] for i in at] for k, v in self.table.items()}
        keys = None if self.keys is None else [self.keys[i] for i in at]
        trains = None if self.trains is None else [self.trains[i] for i in at]
        return Rows(table, [self.numbers[i] for i in at], keys, self.notes, trains)

    def cut(self, most: int | None) -> Rows:
        """The first rows."""
        return self if most is None else self.take(range(min(most, len(self))))

    def without(self, keys: set[str], note: str) -> Rows:
        """Rows whose key is not among `keys`; how many went is noted."""
        assert self.keys is not None
        kept = self.take([i for i, k in enumerate(self.keys) if k not in keys])
        return replace(kept, notes={**self.notes, note: len(self) - len(kept)})

    def digest(self) -> str:
        """SHA-256 of prompts and references, whatever the order of the rows."""
        pairs = zip(self.table["prompt"], self.table["references"], strict=True)
        lines = sorted(json.dumps(p, ensure_ascii=False) for p in pairs)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def source_of(settings: DataSettings, columns: Mapping[str, str | None] | None = None) -> Source:
    """columns: setting -> column that must be there instead of those of the settings.

    Raises UserError for settings that a task leaves without effect.
    """
    if settings.task is None:
        return Source(settings, columns)
    if columns is not None:
        raise UserError("data.task builds prompts and references, which are not read here: drop it")
    return TaskSource(settings)


class Source:
    """A dataset whose columns the settings name."""

    def __init__(
        self, settings: DataSettings, columns: Mapping[str, str | None] | None = None
    ) -> None:
        self.settings, self.wanted = settings, columns

    def own(self, split: str) -> str | None:
        """Name or file of the validation or test split; None = rows are held out for it."""
        found: str | None = getattr(self.settings, split)
        return found

    def columns(self, extra: Iterable[str] = ()) -> list[str]:
        """Columns of the training split, after checking that every named one is there (B34)."""
        table = self._table(self.settings.split, extra)
        return list(table)

    def read(self, split: str) -> Rows:
        """All rows of `train`, `validation` or `test`. Raises UserError."""
        name = self.settings.split if split == "train" else self.own(split)
        table = self._table(name or "")
        return Rows(table, list(range(1, size(table) + 1)))

    def used(self, rows: Rows) -> Rows:
        """Training rows that train, of those that are left when others are held out."""
        return rows

    def trained(self, rows: Rows) -> Rows:
        """The same as they train: a row may become several."""
        return rows

    def _table(self, name: str, extra: Iterable[str] = ()) -> Table:
        table = read(self.settings, name)
        if not size(table):
            raise UserError(f"data.path {self.settings.path} (split {name!r}) has no rows")
        s = self.settings
        wanted: list[tuple[str, str | None]] = [("data.text", s.text)]
        if not s.text:
            wanted = [("data.prompt", s.prompt), ("data.reference", s.reference)]
        wanted.append(("data.label", s.label))
        if self.wanted is not None:
            wanted = list(self.wanted.items())
        named = [(k, v) for k, v in wanted if v is not None]
        check_names(list(table), [*named, *(("a reward", x) for x in extra)], s.path, name)
        if self.wanted is None:
            check_taken(list(table), s.path)
        return table


def check_names(there: list[str], wanted: Iterable[tuple[str, str]], path: str, split: str) -> None:
    """wanted: (who names it, column). Raises UserError with the nearest name."""
    for key, column in wanted:
        if column not in there:
            close = nearest(column, there)
            hint = f"did you mean {close!r}?" if close else f"there are {there}"
            raise UserError(
                f"no column {column!r} in the split {split!r} of {path}, which {key} names; {hint}"
            )


def check_taken(there: list[str], path: str) -> None:
    """Raises UserError for a column that a reward function could not be given."""
    for column in there:
        if column in ARGUMENTS:
            raise UserError(
                f"the column {column!r} of {path} has the name of a reward function's own "
                "argument; rename it"
            )


class TaskSource(Source):
    """The rows of a task: columns prompt, reference, references, and the task's own."""

    def __init__(self, settings: DataSettings) -> None:
        assert settings.task is not None
        for key in ("text", "prompt", "reference"):
            if getattr(settings, key) != getattr(DataSettings(), key):
                raise UserError(
                    f"data.task builds prompts and references, so data.{key} has no effect: drop "
                    f"it (--data.{key} null), or drop the task (--data.task null)"
                )
        self.kind = str(settings.task["kind"])
        self.task: TaskDefinition = build("task", settings.task, "data.task")
        path, name, revision = settings.path, settings.name, settings.revision
        if not path:
            path, name, revision = self.task.hub, self.task.hub_name, self.task.hub_revision
        elif path == BUNDLED:
            path = str(self.task.mini(self.kind))
        super().__init__(
            replace(settings, path=path, name=name, revision=revision, reference="reference")
        )
        self._file: Table | None = None
        self._read: dict[str, Rows | None] = {}

    def own(self, split: str) -> str | None:
        name = self._find(split)
        if name is None or getattr(self.settings, split) is not None:
            return name
        # the hub hides the references of some test splits: nothing can be measured on those
        return name if self._rows(split) is not None else None

    def columns(self, extra: Iterable[str] = ()) -> list[str]:
        self._raw("train")
        there = ["prompt", "reference", "references", *self.task.columns]
        label = [("data.label", self.settings.label)] if self.settings.label else []
        wanted = [*label, *(("a reward", x) for x in extra)]
        check_names(there, wanted, self.settings.path, self.settings.split)
        return there

    def read(self, split: str) -> Rows:
        rows = self._rows(split)
        if rows is None:
            raise UserError(
                f"data.path {self.settings.path}: no row of the {split} split has a reference (they"
                " may be hidden); name another split or hold rows out"
            )
        return rows

    def used(self, rows: Rows) -> Rows:
        """Rows that the task trains on. Raises UserError where there is none."""
        at = [i for i, used in enumerate(rows.trains or ()) if used]
        if rows.trains is None or len(at) == len(rows):
            return rows
        notes = {**rows.notes, "dropped_not_for_training": len(rows) - len(at)}
        if not at:
            raise UserError(
                f"data.path {self.settings.path}: the task {self.kind} trains on none of the "
                f"{len(rows)} rows of the train split that are not held out"
            )
        return replace(rows.take(at), notes=notes)

    def trained(self, rows: Rows) -> Rows:
        """Each reference on its own, where the task says so."""
        if not self.task.one_row_a_reference:
            return rows
        at = [i for i, refs in enumerate(rows.table["references"]) for _ in refs]
        out = rows.take(at)
        table = {**out.table, "reference": [x for r in rows.table["references"] for x in r]}
        return replace(out, table=table, notes={**rows.notes, "rows_of_references": len(at)})

    def _rows(self, split: str) -> Rows | None:
        """Examples with references; None where no row has any."""
        if split not in self._read:
            self._read[split] = self._found(split)
        return self._read[split]

    def _found(self, split: str) -> Rows | None:
        """Examples with references, and how many were left out for what."""
        raw = self._raw(split)
        made = list(self.task.examples(raw))
        _check_text(raw, made)
        notes = Counter(f"dropped_{e.dropped}" for e in made if e.dropped)
        found = [e for e in made if not e.dropped]
        told: dict[str, Any] = dict(notes)
        if not found:
            why = f": {', '.join(f'{k} {n}' for k, n in told.items())}" if told else ""
            raise UserError(
                f"data.path {self.settings.path}: the {split} split gives no example of the "
                f"task {self.kind}{why}"
            )
        kept = [e for e in found if e.references]
        if len(kept) < len(found):
            told["dropped_without_reference"] = len(found) - len(kept)
        if not kept:
            return None
        # of the training split rows may be held out, which are the same whatever trains
        trains = [self.task.trains(e) for e in kept] if split == "train" else None
        return replace(_table_of(kept), notes=told, trains=trains)

    def _raw(self, split: str) -> list[tuple[int, Row]]:
        """(number, row) of one split, after checking the columns that the task reads."""
        s, name = self.settings, self._find(split)
        if name is None:
            raise UserError(
                f"data.path {s.path} has no {split} split under the names "
                f"{', '.join(self.task.aliases(split))}; name one in data.split"
            )
        if is_file(s.path) and not is_file(name):
            table, rows = self._one_file(), self._of_split(name)
        else:
            table = read(s, name)
            rows = list(range(size(table)))
        if not size(table):
            raise UserError(f"data.path {s.path} (split {name!r}) has no rows")
        for names in self.task.needs:
            if not any(n in table for n in names):
                close = nearest(names[0], list(table))
                hint = f"did you mean {close!r}?" if close else f"there are {list(table)}"
                raise UserError(
                    f"no column {' or '.join(map(repr, names))} in the split {name!r} of {s.path}, "
                    f"which the task {self.kind} reads; {hint}"
                )
        kept = {k: v for k, v in table.items() if k != "split"}
        for column in self.task.mappings:
            if column in kept:
                kept[column] = list(map(unpacked, kept[column]))
        return [(i + 1, {k: v[i] for k, v in kept.items()}) for i in rows]

    def _find(self, split: str) -> str | None:
        """What a split is called where the data are; None where they have none."""
        s = self.settings
        given = s.split if split == "train" else getattr(s, split)
        if given is not None and (split != "train" or given != DataSettings().split):
            return str(given)
        if is_file(s.path):
            values = set(self._one_file().get("split", []))
            there = [n for n in self.task.aliases(split) if n in values]
            name = there[0] if there else ("train" if split == "train" and not values else None)
        elif is_local(s.path):
            folder = Path(s.path).expanduser()
            there = [n for n in self.task.aliases(split) if has_split(folder, n)]
            # a folder without the split is answered by the reader, which says what there is
            name = there[0] if there else ("train" if split == "train" else None)
        else:
            name = self.task.hub_splits.get(split)
        return None if split != "train" and name == self._find("train") else name

    def _one_file(self) -> Table:
        if self._file is None:
            self._file = read_file(Path(self.settings.path).expanduser())
        return self._file

    def _of_split(self, name: str) -> list[int]:
        """Positions of a split in one file: by its column `split`, else all of them."""
        table = self._one_file()
        if "split" not in table:
            if name != DataSettings().split:
                raise UserError(
                    f"data.path {self.settings.path} is one file without a column 'split', so it "
                    f"has no split {name!r}; name a file for it"
                )
            return list(range(size(table)))
        rows = [i for i, x in enumerate(table["split"]) if x == name]
        if not rows:
            there = sorted(set(map(str, table["split"])))
            raise UserError(
                f"data.path {self.settings.path}: its column 'split' has no {name!r}; there are "
                f"{there}"
            )
        return rows


def _check_text(raw: Sequence[tuple[int, Row]], examples: Iterable[Example]) -> None:
    """Raises UserError naming the row and column of the source where the text of an example has
    half of a surrogate pair. Columns that no example is made of do not matter."""
    for e in examples:
        if half_pair_within([e.prompt, e.references, e.columns, e.key]) is not None:
            for number, row in raw:
                for column, value in row.items():
                    utf8(value, number, column)


def _table_of(examples: list[Example]) -> Rows:
    names = examples[0].columns
    table: Table = {
        "prompt": [e.prompt for e in examples],
        "reference": [e.references[0] for e in examples],
        "references": [list(e.references) for e in examples],
        **{n: [e.columns[n] for e in examples] for n in names},
    }
    return Rows(table, [e.row for e in examples], [e.identity for e in examples])
