"""Tables that people filled in, as spreadsheet programs save them: CSV with a comma, semicolon or
tab, in UTF-8 (with or without byte order mark) or UTF-16.
"""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path

from tether.config.errors import UserError

DELIMITERS = (",", ";", "\t")
REMEDY = "save it again as CSV (UTF-8)"
LONGEST = 2**31 - 1
"""Characters of a cell; the csv module alone stops at 131 072."""


def read_rows(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows of a CSV file; a cell that a row lacks is "". Blank rows are left out.

    The delimiter is the one by which the header has most columns. Raises UserError, with a remedy,
    for what cannot be read.
    """
    header, rows = read_lines(file)
    return header, [row for _, row in rows]


def read_lines(file: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The same, and the line of the file in which each row ends."""
    text = _text(file)
    before = csv.field_size_limit(LONGEST)
    line = 0
    try:
        delimiter, skip = _delimiter(text)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header: list[str] | None = None
        rows: list[tuple[int, dict[str, str]]] = []
        for cells in reader:
            line = reader.line_num
            if line <= skip or _blank(cells):
                continue
            if header is None:
                header = _header(cells, file)
            else:
                rows.append((line, _row(cells, header, f"{file}:{line}")))
    except csv.Error as e:
        raise UserError(f"{file}:{line + 1} cannot be read as CSV: {e}; {REMEDY}") from e
    finally:
        csv.field_size_limit(before)
    if header is None:
        raise UserError(f"{file} is empty; {REMEDY}")
    return header, rows


def _text(file: Path) -> str:
    if not file.is_file():
        raise UserError(f"there is no file '{file}'")
    try:
        data = file.read_bytes()
    except OSError as e:
        raise UserError(f"cannot read {file}: {e.strerror or e}") from e
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):  # a zip (xlsx, ods), an xls
        raise UserError(f"{file} is a workbook, not CSV; {REMEDY}")
    try:
        return data.decode(_encoding(data))
    except UnicodeDecodeError as e:
        raise UserError(
            f"{file} is neither in UTF-8 nor in UTF-16 (byte {e.start + 1}); {REMEDY}"
        ) from e


def _encoding(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    first, second = data[:1] == b"\0", data[1:2] == b"\0"  # no byte order mark: by the header
    return "utf-8-sig" if first == second else "utf-16-be" if first else "utf-16-le"


def _delimiter(text: str) -> tuple[str, int]:
    """Of the first line with anything in it; and the lines to skip: some programs write `sep=;`."""
    first = text.lstrip("\r\n").partition("\n")[0].strip("\r").strip('"')
    if first[:4].lower() == "sep=" and first[4:] in DELIMITERS:
        above = len(text) - len(text.lstrip("\r\n"))
        return first[4:], text[:above].count("\n") + 1

    def columns(delimiter: str) -> int:
        """Of the header; 0 where it leaves a quote within a name: the cells are another's."""
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        header = next((cells for cells in reader if not _blank(cells)), [])
        return 0 if any('"' in name for name in header) else len(header)

    return max(DELIMITERS, key=columns), 0


def _blank(cells: list[str]) -> bool:
    return not "".join(cells).strip(" ,;\t\r\n")


def _header(cells: list[str], file: Path) -> list[str]:
    """Names of the columns, without empty ones at the end."""
    names = [c.strip() for c in cells]
    while names and not names[-1]:
        names.pop()
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise UserError(f"{file} has two columns '{twice}': remove or rename one")
    return names


def _row(cells: list[str], header: list[str], where: str) -> dict[str, str]:
    if any(c.strip() for c in cells[len(header) :]):
        raise UserError(
            f"{where} has {len(cells)} cells, the header {len(header)}: a cell that holds the "
            f'delimiter must stand in "quotes"; {REMEDY}'
        )
    return {
        name: cells[i] if i < len(cells) else ""  # some programs drop empty cells at the end
        for i, name in enumerate(header)
    }
