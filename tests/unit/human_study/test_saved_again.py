"""Forms that a spreadsheet program saved again, raters who type their name twice, edited keys."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.human_study.studies import METHODS, fill, read, study
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


@pytest.mark.parametrize("design", [{}, {"kind": "pairwise", "equal": False}, {"axes": {"é": "?"}}])
def test_a_key_as_it_was_written_is_read(design: dict[str, Any], tmp_path: Path) -> None:
    """White space is not content."""
    done = study(tmp_path, prompts=6, task="\u2028 ß", **design)
    key = read_key(done.key)
    assert key.study == read(done)["study"]
    for indent in (None, 4):
        done.key.write_text(json.dumps(read(done), indent=indent))
        assert read_key(done.key) == key


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """(what holds it, its name or place) of everything in a key."""
    for place, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, place
        if isinstance(inner, dict | list):
            yield from parts(inner)


def test_every_edit_of_a_key_is_refused(tmp_path: Path) -> None:
    """Whatever is left out or put in another's place, with one line."""
    done = study(tmp_path, METHODS[:2], prompts=2, per_form=4, raters=1, checks=1)
    key = read(done)
    count = sum(1 for _ in parts(key))
    assert count > 50
    for n in range(count):
        for new in (None, "0", 7):
            edited = read(done)
            holder, place = list(parts(edited))[n]
            if new is None:
                del holder[place]
            else:
                holder[place] = new
            (tmp_path / "edited.json").write_text(json.dumps(edited))
            with pytest.raises(
                UserError, match=r"edited\.json (was changed|has format|is not the)"
            ):
                read_key(tmp_path / "edited.json")


def edits() -> dict[str, Callable[[dict[str, Any]], object]]:
    first = {name: lambda k, n=name: next(iter(k["texts"].values())).pop(n)
             for name in ("scores", "method")}  # fmt: skip
    return {
        "more failures forgiven": lambda k: k["rule"].update(allowed=2),
        "allowed as text": lambda k: k["rule"].update(allowed="0"),
        "methods swapped": lambda k: k["methods"].reverse(),
        "a method dropped": lambda k: k["methods"].pop(),
        "a text without scores": first["scores"],
        "a text without method": first["method"],
        "a text dropped": lambda k: k["texts"].popitem(),
        "scores as a list": lambda k: next(iter(k["texts"].values())).update(scores=[1]),
        "a unit without id": lambda k: k["forms"]["form-01"][0].pop("id"),
        "rewards named": lambda k: k.update(rewards=["good"]),
        "rewards dropped": lambda k: k.pop("rewards"),
        "something new": lambda k: k.update(note="mine"),
    }


@pytest.mark.parametrize("name", edits())
def test_an_edited_key_changes_no_result(name: str, tmp_path: Path) -> None:
    done = study(tmp_path, allowed=0)
    key = read(done)
    fill(key, "form-01", tmp_path / "back", by_method(key))
    edits()[name](key)
    done.key.write_text(json.dumps(key))
    with pytest.raises(UserError) as e:
        analyse([tmp_path / "back"], done.key)
    assert f"key.json was changed since the forms of study '{key['study']}' were made" in str(
        e.value
    )
