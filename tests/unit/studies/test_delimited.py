"""Filled-in tables as spreadsheet programs save them."""

from __future__ import annotations

import codecs
import csv
from pathlib import Path

import pytest

from tether.config.errors import UserError
from tether.studies.delimited import read_lines, read_rows

WANT = [{"pair": "1", "text": "a, b; c\td\nnew „line“", "choice": "left"},
        {"pair": "2", "text": "", "choice": ""}]  # fmt: skip


def table(delimiter: str, end: str = "\r\n") -> str:
    quoted = '"' + WANT[0]["text"] + '"'
    lines = [("pair", "text", "choice"), ("1", quoted, "left"), ("2", "", "")]
    return "".join(delimiter.join(x) + end for x in lines)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "bare utf-16-le"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_encodings_and_line_ends(
    delimiter: str, encoding: str, end: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    file.write_bytes(mark + table(delimiter, end).encode(encoding.removeprefix("bare ")))
    header, rows = read_rows(file)
    assert header == ["pair", "text", "choice"] and rows == WANT


def test_a_name_may_hold_other_delimiters(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    for delimiter, others in ((";", "left, right, or, tie"), (",", "left; right; or; tie")):
        file.write_text(delimiter.join(("pair", f'"{others}"', "rater")) + "\n")
        assert read_rows(file)[0] == ["pair", others, "rater"]


def test_blank_rows_and_missing_cells(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("\n;;\npair ;choice;;\n\n1;left;;\n;;;\n2\n ; ;\n\n")
    header, rows = read_lines(file)
    assert header == ["pair", "choice"]
    assert rows == [(5, {"pair": "1", "choice": "left"}), (7, {"pair": "2", "choice": ""})]


def test_a_line_that_names_the_delimiter(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("sep=;\na,b;c\n1;2\n")
    assert read_rows(file) == (["a,b", "c"], [{"a,b": "1", "c": "2"}])


def test_one_column_and_long_cells(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    before = csv.field_size_limit()
    file.write_text("text\n" + "x" * 200_000 + "\n\0y\n")
    rows = read_rows(file)[1]
    assert [len(r["text"]) for r in rows] == [200_000, 2]  # a model may write a null character
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "t.csv is empty; save it again as CSV"),
        (b"\n;;\n", "t.csv is empty"),
        (b"PK\x03\x04...", "is a workbook, not CSV; save it again as CSV"),
        (
            "pair,ä\n".encode("latin-1"),
            r"is neither in UTF-8 nor in UTF-16 \(byte 6\); save it again as CSV",
        ),
        (codecs.BOM_UTF16_LE + b"a\0,\0b", "is neither in UTF-8 nor in UTF-16"),
        (b"a,b\n1,2,3\n", r"t.csv:2 has 3 cells, the header 2: .* must stand in \"quotes\""),
        (b'a,b\n1,2\n1,"open\n2,3\n', "t.csv:3 cannot be read as CSV: .*; save it again"),
        (b"a,b,a\n", "two columns 'a': remove or rename one"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_a_remedy(
    data: bytes, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(data)
    with pytest.raises(UserError, match=message) as e:
        read_rows(file)
    assert "\n" not in str(e.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        read_rows(tmp_path / "absent.csv")
