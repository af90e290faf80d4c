"""Tables as text: the highlighted cells with the headers that they stand under.

    <page_title> P </page_title> <section_title> S </section_title> <table>
    <cell> V <col_header> H </col_header> <row_header> R </row_header> </cell> ... </table>

Source: the baseline of ToTTo (Parikh et al. 2020, arXiv 2004.14373, section 6), whose format
allenai/RL4LMs@97df0bd uses (rl4lms/data_pools/task_utils/totto). Here it is written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tether.config.errors import UserError


@dataclass(frozen=True)
class Cell:
    """One cell where it stands in the grid: columns `first` to `last` - 1."""

    value: str
    header: bool
    first: int
    last: int


@dataclass(frozen=True)
class Highlighted:
    """A cell with its headers, outermost first."""

    value: str
    column_headers: tuple[str, ...]
    row_headers: tuple[str, ...]

    @property
    def record(self) -> list[str]:
        """[attribute, value]: the headers joined, for metrics that read tables as records."""
        return [" ".join((*self.row_headers, *self.column_headers)), self.value]


def grid(table: Sequence[Sequence[Any]], number: int) -> list[list[Cell]]:
    """Rows of cells with the columns that they cover.

    Cells are {value, is_header, column_span} as in ToTTo, or plain text, whose first row is then
    the header. Cells that reach down from a row above are not made up for, as in the baseline.
    Raises UserError naming the row of the data.
    """
    out: list[list[Cell]] = []
    for r, row in enumerate(table):
        if not isinstance(row, list):
            raise UserError(
                f"data: row {number}: a row of the table is {repr(row)[:60]}, expected a list of "
                "cells"
            )
        cells, at = [], 0
        for cell in row:
            value, header, span = _read(cell, r == 0, number)
            cells.append(Cell(value, header, at, at + span))
            at += span
        out.append(cells)
    return out


def _read(cell: Any, first: bool, number: int) -> tuple[str, bool, int]:
    """Value, whether it is a header, and columns; first: it stands in the first row."""
    if isinstance(cell, str):
        return cell, first, 1
    if isinstance(cell, dict) and isinstance(cell.get("value"), str | int | float):
        header, span = cell.get("is_header") or False, _count(cell.get("column_span") or 1)
        if isinstance(header, bool | int) and span:
            return str(cell["value"]), bool(header), span
    raise UserError(
        f"data: row {number}: a cell of the table is {repr(cell)[:90]}, expected text or {{value: "
        "text, is_header: true or false, column_span: a number from 1, row_span}"
    )


def _count(x: Any) -> int | None:
    """A whole number from 0, also as a float or in digits; None for anything else."""
    if isinstance(x, str):
        return int(x) if x.isascii() and x.isdigit() else None
    whole = isinstance(x, int | float) and not isinstance(x, bool) and x >= 0 and x % 1 == 0
    return int(x) if whole else None


def highlighted(
    table: Sequence[Sequence[Any]], places: Sequence[Sequence[int]], number: int
) -> list[Highlighted]:
    """The cells at (row, position in the row), with header cells above and to the left of each.

    Raises UserError for a place that is no pair of numbers, or that the table does not have.
    """
    cells, out = grid(table, number), []
    for place in places:
        r, c = map(_count, place) if isinstance(place, list) and len(place) == 2 else (None, None)
        if r is None or c is None:
            raise UserError(
                f"data: row {number}: a highlighted cell is {repr(place)[:60]}, expected [row, "
                "position in the row]"
            )
        if not (r < len(cells) and c < len(cells[r])):
            raise UserError(f"data: row {number}: the table has no cell ({r}, {c}) to highlight")
        cell = cells[r][c]
        above = tuple(
            h.value
            for row in cells[:r]
            for h in row
            if h.header and h.first < cell.last and h.last > cell.first
        )
        left = tuple(h.value for h in cells[r][:c] if h.header)
        out.append(Highlighted(cell.value, above, left))
    return out


def linearized(cells: Sequence[Highlighted], page: str = "", section: str = "") -> str:
    """The format above; titles that are empty are left out."""
    words = []
    for name, title in (("page_title", page), ("section_title", section)):
        if title:
            words.append(f"<{name}> {title} </{name}>")
    words.append("<table>")
    for cell in cells:
        words.append(f"<cell> {cell.value}")
        words += [f"<col_header> {h} </col_header>" for h in cell.column_headers]
        words += [f"<row_header> {h} </row_header>" for h in cell.row_headers]
        words.append("</cell>")
    return " ".join([*words, "</table>"])


def records(cells: Sequence[Highlighted], page: str = "", section: str = "") -> list[list[str]]:
    """[attribute, value] of titles and cells: the table as PARENT reads it."""
    titles = [["page_title", page], ["section_title", section]]
    return [t for t in titles if t[1]] + [c.record for c in cells]
