"""Forms that a spreadsheet program saved again, and raters who type their name twice."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.human_study.studies import fill, read, study
from tests.unit.human_study.test_analyse import by_method
from tether.config.errors import UserError
from tether.reports.rating_form import COLUMNS
from tether.studies.human.analyse import analyse
from tether.studies.human.returned import read_key, read_sheets


def saved(delimiter: str, comma: bool, ends: str = "", whole: str = "{}") -> Callable[[str], str]:
    """The text of a form as a program with such settings writes it."""

    def written(text: str) -> str:
        out = io.StringIO()
        write = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
        rows = list(csv.DictReader(io.StringIO(text)))
        write.writerow(COLUMNS)
        for r in rows:
            r["seconds"] = r["seconds"].replace(".", ",") if comma else r["seconds"]
            r["value"] = whole.format(r["value"]) if r["value"] else ""
            write.writerow([r[c] for c in COLUMNS])
        return out.getvalue() + ends

    return written


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (saved(";", True, whole="{},0"), "utf-8-sig"),
        (saved("\t", True), "utf-16"),
        (saved(",", False, ",,,,,,,\r\n", "{}.0"), "utf-8"),
        (saved(";", False, ";;;;;;;\r\n;;;;;;;\r\n"), "utf-8"),
        (saved(",", True), "utf-8"),  # "4,5" in quotes
    ],
)
def test_the_answers_are_those_of_the_form(
    text: Callable[[str], str], encoding: str, tmp_path: Path
) -> None:
    done = study(tmp_path)
    key = read_key(done.key)
    file = fill(read(done), "form-01", tmp_path / "back", by_method(read(done)), rater="Ann")
    (first,) = read_sheets([file], key)
    file.write_bytes(text(file.read_text()).encode(encoding))
    (again,) = read_sheets([file], key)
    assert again == first and again.seconds == 4.5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (",4.5", ",4.5.1", "'4.5.1' is no number of seconds; write it like 4.5, or leave it empty"),
        (",4.5", ',"1,234"', "'1,234' is no number of seconds"),
        (",4.5", ',"1,234.5"', "'1,234.5' is no number of seconds"),
        ("seconds", "time", "lacks seconds; give the CSV file that the page of the form exported"),
    ],
)
def test_what_is_no_answer(old: str, new: str, said: str, tmp_path: Path) -> None:
    done = study(tmp_path)
    file = fill(read(done), "form-01", tmp_path / "back", by_method(read(done)))
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as e:
        read_sheets([file], read_key(done.key))
    assert said in str(e.value)


def test_a_half_is_no_answer(tmp_path: Path) -> None:
    done = study(tmp_path)
    file = fill(read(done), "form-01", tmp_path / "back", lambda unit, axis: "4.5")
    with pytest.raises(UserError, match=r"'4\.5' is no answer; the form offers 1, 2, 3, 4, 5"):
        read_sheets([file], read_key(done.key))


def test_a_rater_is_one_however_the_name_is_typed(tmp_path: Path) -> None:
    done = study(tmp_path)
    key, back = read(done), tmp_path / "back"
    fill(key, "form-01", back, by_method(key), rater="Ann  Lee ")
    fill(key, "form-02", back, by_method(key), rater="ann lee")
    fill(key, "form-04", back, by_method(key), rater="ANN LEE")
    found = analyse([back], done.key)
    assert [s.rater for s in found.sheets] == ["Ann Lee"] * 3
    assert "One rater alone: there is no agreement to measure." in found.notes
    fill(key, "form-01", back, by_method(key, seed=1), rater="ann lee", name="other")
    with pytest.raises(UserError, match=r"form-01 by 'Ann Lee' is in .*form-01.* and in .*other"):
        analyse([back], done.key)


def test_one_form_twice_in_a_file_by_two_spellings(tmp_path: Path) -> None:
    done = study(tmp_path)
    key, back = read(done), tmp_path / "back"
    one = fill(key, "form-01", back, by_method(key), rater="Ann")
    two = fill(key, "form-01", back, by_method(key), rater="ann ", name="again")
    one.write_text(one.read_text() + two.read_text().split("\n", 1)[1])
    two.unlink()
    with pytest.raises(UserError, match="a second time: leave one line"):
        read_sheets([one], read_key(done.key))


def test_files_in_capitals(tmp_path: Path) -> None:
    done = study(tmp_path)
    file = fill(read(done), "form-01", tmp_path / "back", by_method(read(done)))
    file.rename(file.with_suffix(".CSV"))
    assert len(read_sheets([tmp_path / "back"], read_key(done.key))) == 1
