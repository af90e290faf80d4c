"""A data path -> columns: files by their ending, folders by split name, the rest from the hub."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from tether.config.errors import UserError
from tether.config.half_pairs import HALF_PAIR, half_pair, half_pair_within
from tether.config.nearest import nearest
from tether.config.run import DataSettings

Table: TypeAlias = dict[str, list[Any]]
"""column -> values, all of one length."""

ENDINGS = (".jsonl", ".jsonl.gz", ".json.gz", ".json", ".csv", ".csv.gz", ".parquet")


def is_file(path: str) -> bool:
    """Whether a path names a data file (by its ending)."""
    return path.lower().endswith(ENDINGS)


def is_local(path: str) -> bool:
    """Whether a path can only mean this machine, not the hub."""
    return is_file(path) or path.startswith(("/", "./", "../", "~")) or Path(path).exists()


def size(table: Table) -> int:
    return len(next(iter(table.values()))) if table else 0


def read(settings: DataSettings, split: str) -> Table:
    """All rows of one split. `split` may itself be a file. Raises UserError."""
    if is_file(split):
        return read_file(Path(split).expanduser())
    if not settings.path:
        raise UserError("data.path is empty; give a hub id, a folder or a data file")
    if is_file(settings.path):
        if split != DataSettings().split:
            raise UserError(
                f"data.path {settings.path} is one file and has no split {split!r}; name a file "
                "for it"
            )
        return read_file(Path(settings.path).expanduser())
    if is_local(settings.path):
        folder = Path(settings.path).expanduser()
        if not folder.is_dir():
            raise UserError(f"data.path: there is no file or folder {settings.path}")
        return _folder(folder, split)
    return _hub(settings, split)


def read_file(path: Path) -> Table:
    """Rows of a .jsonl, .json (a list), .csv (each also .gz) or .parquet file. Raises UserError
    naming file and line."""
    if not path.is_file():
        here = "" if path.is_absolute() else f" (looked in {Path.cwd()})"
        raise UserError(f"data: there is no file {path}{here}")
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            import pyarrow.parquet

            return _arrow(pyarrow.parquet.read_table(path))
        if ".csv" in name:
            return _csv(path)
        opener = gzip.open if name.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8-sig") as f:  # Windows programs write a BOM
            if ".jsonl" in name:
                return _records(_lines(f, path), path)
            return _records(json.load(f), path)
    except UserError:
        raise
    except Exception as error:  # the readers' own errors are of many kinds
        what = " ".join(str(error).split())[:200]
        raise UserError(f"data: cannot read {path}: {type(error).__name__}: {what}") from error


def _csv(path: Path) -> Table:
    """Raises UserError: a row has more cells than the header, which pandas would take for row
    names, and shift all columns by one, or cut off."""
    import pandas

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            frame = pandas.read_csv(path, index_col=False, keep_default_na=False, na_values=[""])
    except pandas.errors.EmptyDataError:
        return {}  # not even a header
    except pandas.errors.ParserWarning as error:
        raise UserError(
            f"data: {path}: rows have more cells than the header has names; name every column, and "
            "put quotation marks around text with a comma in it"
        ) from error
    return {str(k): [None if pandas.isna(x) else x for x in frame[k].tolist()] for k in frame}


def _lines(f: Iterable[str], path: Path) -> list[Any]:
    out = []
    for number, line in enumerate(f, 1):
        if line.strip():
            try:
                out.append(json.loads(line))
            except ValueError as error:
                raise UserError(f"data: {path}, line {number} is not JSON: {error}") from error
    return out


def _records(rows: Any, path: Path) -> Table:
    if not isinstance(rows, list):
        raise UserError(f"data: {path} holds {type(rows).__name__}, expected a list of rows")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise UserError(f"data: {path}, row {number} is {type(row).__name__}, not an object")
    names = dict.fromkeys(k for row in rows for k in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _arrow(table: Any) -> Table:
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _folder(folder: Path, split: str) -> Table:
    """`<split>.<ending>` or `<split>-*.parquet` parts (also under data/), else a `save_to_disk`
    folder of datasets."""
    for place in (folder, folder / "data"):
        for ending in ENDINGS:
            if (place / f"{split}{ending}").is_file():
                return read_file(place / f"{split}{ending}")
        parts = sorted(place.glob(f"{split}-*.parquet"))
        if parts:
            tables = [read_file(p) for p in parts]
            return {k: [x for t in tables for x in t[k]] for k in tables[0]}
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        import datasets

        found = datasets.load_from_disk(str(folder))
        if isinstance(found, datasets.Dataset):
            return _dataset(found)
        if split in found:
            return _dataset(found[split])
        raise _no_split(folder, split, list(found))
    there = sorted(
        {p.name.removesuffix(e) for p in folder.iterdir() for e in ENDINGS if p.name.endswith(e)}
    )
    raise _no_split(folder, split, there)


def has_split(folder: Path, split: str) -> bool:
    """Whether a local folder has a split of this name, without reading it."""
    for place in (folder, folder / "data"):
        if any((place / f"{split}{e}").is_file() for e in ENDINGS):
            return True
        if any(place.glob(f"{split}-*.parquet")):
            return True
    index = folder / "dataset_dict.json"
    return index.is_file() and split in json.loads(index.read_text(encoding="utf-8"))["splits"]


def _no_split(folder: Path, split: str, there: list[str]) -> UserError:
    close = nearest(split, there)
    hint = f"did you mean {close!r}?" if close else f"there are {there}"
    return UserError(f"data.path {folder} has no split {split!r}; {hint}")


def _dataset(found: Any) -> Table:
    return {name: list(found[name]) for name in found.column_names}


def _hub(settings: DataSettings, split: str) -> Table:
    import datasets

    try:
        found = datasets.load_dataset(
            settings.path, settings.name, split=split, revision=settings.revision
        )
    except Exception as error:  # offline, unknown id, unknown split, gated...
        what = " ".join(str(error).split())[:300]
        raise UserError(
            f"data.path {settings.path!r} (split {split!r}) is no local file or folder and the hub "
            f"does not give it: {type(error).__name__}: {what}"
        ) from error
    return _dataset(found)


def utf8_text(text: str, row: int, column: str) -> str:
    """Raises UserError for half of a surrogate pair, which no tokenizer can read."""
    utf8(text, row, column)
    return text


def utf8(value: Any, row: int, column: str) -> None:
    """The same of the texts in any value, at every depth. Raises UserError."""
    at = half_pair(value) if isinstance(value, str) else half_pair_within(value)
    if at is not None:
        raise UserError(
            f"data: row {row}, column {column!r}: character {at} is {HALF_PAIR}; mend the file"
        )
