"""The key of a study, and the forms that came back, checked line by line."""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.reports.rating_form import COLUMNS
from tether.studies.delimited import read_lines
from tether.studies.human.prepare import FORMAT, study_id

_WHOLE = re.compile(r"^(\d+)[.,]0+$")
"""A whole number as spreadsheet programs may write it: 4.0."""
_COMMA = re.compile(r"^(\d+),(\d{1,2})$")
"""A decimal comma: forms tell tenths, and a thousand has three digits behind its comma."""


@dataclass(frozen=True)
class Key:
    """What `prepare` wrote."""

    path: Path
    study: str
    task: str
    kind: str
    axes: dict[str, str]
    options: tuple[str, ...]
    methods: tuple[str, ...]
    allowed: int
    rule: str
    texts: dict[str, dict[str, Any]]
    forms: dict[str, list[dict[str, Any]]]
    rewards: frozenset[str] | None
    """Metrics that are scores of a run's rewards, where more is better whatever the metric's own
    direction; None = an earlier version, which does not say."""


@dataclass(frozen=True)
class Sheet:
    """One form as one rater filled it in."""

    file: str
    form: str
    rater: str
    """The name or code that was typed in, else the form's name."""
    answers: dict[tuple[str, str], str]
    """(unit, axis) -> answer; what was left open is not in it."""
    seconds: float | None
    """Median time in view of a unit."""


@dataclass(frozen=True)
class Checked:
    """A sheet, its attention checks, and whether the rule of the key keeps it."""

    sheet: Sheet
    failed: int
    checks: int
    excluded: bool
    open: int
    """Answers that are missing, without those of checks."""


def read_key(path: Path) -> Key:
    """Raises UserError: no such file, not a key of this format, or changed since it was written."""
    if not path.is_file():
        raise UserError(f"there is no key '{path}': give --key, the key.json that prepare wrote")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise UserError(f"{path} has format {raw['format']}; this version reads {FORMAT}")
        if not _as_written(raw):
            raise UserError(
                f"{path} was changed since the forms of study '{raw['study']}' were made: give the "
                "key.json that prepare wrote, as it was"
            )
        likert = raw["kind"] == "likert"
        pairs = ("A", "equal", "B") if raw["equal"] else ("A", "B")
        return Key(
            path=path,
            study=raw["study"],
            task=raw["task"],
            kind=raw["kind"],
            axes=raw["axes"],
            options=tuple(str(v) for v in range(1, raw["points"] + 1)) if likert else pairs,
            methods=tuple(raw["methods"]),
            allowed=raw["rule"]["allowed"],
            rule=raw["rule"]["says"],
            texts=raw["texts"],
            forms=raw["forms"],
            rewards=frozenset(raw["rewards"]) if "rewards" in raw else None,
        )
    except (ValueError, KeyError, TypeError) as e:
        if isinstance(e, UserError):
            raise
        raise UserError(f"{path} is not the key of a human study: {e!r}") from e


def _as_written(raw: dict[str, Any]) -> bool:
    """Is the content that of its id? An earlier version wrote no `rewards`: those may be added."""
    before = {k: v for k, v in raw.items() if k != "rewards"}
    return raw["study"] in (study_id(raw), study_id(before))


def read_sheets(paths: Sequence[Path], key: Key) -> list[Sheet]:
    """Exported CSV files, or folders of them, also as a spreadsheet program saved them. A file may
    hold several forms, one after another; a file that is named twice, by whatever path, counts
    once. A rater is the same whatever the case and the white space of the name; the first spelling
    stays.

    Raises:
        UserError: no file, a copy of a file, a line that does not belong to the study, an answer
            that the form does not offer, or one form by one rater twice.
    """
    sheets: list[Sheet] = []
    seen: dict[tuple[str, str], str] = {}
    copies: dict[bytes, Path] = {}
    raters: dict[str, str] = {}
    for file in _files(paths):
        if (same := copies.setdefault(_digest(file), file)) != file:
            raise UserError(f"{file} is a copy of {same}: remove one, an answer counts once")
        for sheet in _read(file, key, raters):
            before = seen.setdefault((sheet.form, sheet.rater), sheet.file)
            if before != sheet.file:
                raise UserError(
                    f"{sheet.form} by '{sheet.rater}' is in {before} and in {sheet.file}: remove "
                    "one, or tell the raters apart in the column rater"
                )
            sheets.append(sheet)
    return sheets


def check(sheet: Sheet, key: Key) -> Checked:
    """Apply the rule that the key states."""
    failed = checks = missing = 0
    for unit in key.forms[sheet.form]:
        given = [sheet.answers.get((unit["id"], axis), "") for axis in key.axes]
        if "check" in unit:
            checks += 1
            failed += any(a != unit["check"]["answer"] for a in given)
        else:
            missing += given.count("")
    return Checked(sheet, failed, checks, failed > key.allowed, missing)


def _files(paths: Sequence[Path]) -> list[Path]:
    """Each file once, under the first path that names it."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            mine = sorted(p for p in path.iterdir() if p.suffix.lower() == ".csv")
            if not mine:
                raise UserError(f"{path} holds no CSV file")
            found += mine
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"there is no file '{path}'")
    once: dict[Path, Path] = {}
    for file in found:
        once.setdefault(file.resolve(), file)
    return list(once.values())


def _digest(file: Path) -> bytes:
    """Of what was answered: line ends and a byte order mark are the program's that saved it."""
    data = file.read_bytes().removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    return hashlib.sha256(data.strip()).digest()


def _read(file: Path, key: Key, raters: dict[str, str]) -> Iterator[Sheet]:
    """raters: name as it is compared -> its first spelling; grows."""
    answers: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for where, row in _rows(file):
        unit, form = row["unit"], row["form"]
        if row["study"] != key.study:
            raise UserError(
                f"{where} is of study '{row['study']}', but {key.path} is the key of '{key.study}'"
            )
        if form not in key.forms or unit not in {u["id"] for u in key.forms[form]}:
            raise UserError(f"{where}: the study has no unit '{unit}' in a form '{form}'")
        if row["axis"] not in key.axes:
            raise UserError(f"{where}: the study has no axis '{row['axis']}'")
        value = _WHOLE.sub(r"\1", row["value"])
        if value not in ("", *key.options):
            raise UserError(
                f"{where}: '{value}' is no answer; the form offers {', '.join(key.options)}"
            )
        rater = " ".join((row["rater"] or form).split())
        sheet = (form, raters.setdefault(rater.casefold(), rater))
        mine = answers.setdefault(sheet, {})
        if value:
            if (unit, row["axis"]) in mine:
                raise UserError(f"{where} answers unit '{unit}' a second time: leave one line")
            mine[unit, row["axis"]] = value
        seconds.setdefault(sheet, {})[unit] = _seconds(row["seconds"], where)
    if not answers:
        raise UserError(f"{file} has no line below its header")
    for (form, rater), mine in answers.items():
        times = [t for t in seconds[form, rater].values() if t > 0]
        yield Sheet(str(file), form, rater, mine, statistics.median(times) if times else None)


def _rows(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    header, rows = read_lines(file)
    missing = [c for c in COLUMNS if c not in header]
    if missing:
        raise UserError(
            f"{file} is not an exported form: it lacks {', '.join(missing)}; give the CSV file "
            "that the page of the form exported, with all its columns"
        )
    for line, row in rows:
        yield f"{file}:{line}", {c: row[c].strip() for c in COLUMNS}


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(_COMMA.sub(r"\1.\2", text) or 0)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise UserError(
            f"{where}: '{text}' is no number of seconds; write it like 4.5, or leave it empty"
        )
    return seconds
