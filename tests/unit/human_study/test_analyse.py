"""Forms that come back: the rule of the attention checks, known answers, mistakes, the report."""

from __future__ import annotations

import html
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.human_study.studies import METHODS, NASTY, fill, read, study
from tether.analysis.group_means import one_way_anova
from tether.analysis.human_study import ChoiceResult, RatingResult
from tether.config.errors import UserError
from tether.reports.human_study import p_value, page, summary
from tether.studies.human.analyse import analyse, as_json
from tether.studies.human.prepare import Prepared

BASE = {m: i + 2 for i, m in enumerate(METHODS)}
"""Ratings 2, 3, 4, give or take one."""


def by_method(key: dict[str, Any], seed: int = 0) -> Any:
    rng = random.Random(seed)

    def answer(unit: dict[str, Any], axis: str) -> str:
        method = key["texts"][unit["texts"][0]]["method"]
        return str(BASE[method] + rng.choice([-1, 0, 1]))

    return answer


def prefer_later(key: dict[str, Any], slips: int = 6) -> Any:
    """The later method wins; one time in `slips` the other does, and as often they are equal."""
    rng = random.Random(slips)

    def answer(unit: dict[str, Any], axis: str) -> str:
        a, b = (METHODS.index(key["texts"][t]["method"]) for t in unit["texts"])
        draw = rng.randrange(slips)
        if draw == 0:
            return "equal"
        return "A" if (a > b) == (draw > 1) else "B"

    return answer


def returned(done: Prepared, folder: Path) -> dict[str, Any]:
    key = read(done)
    answer = by_method(key) if key["kind"] == "likert" else prefer_later(key)
    for form in key["forms"]:
        fill(key, form, folder, answer, rater=f"rater of {form}")
    return key


def test_likert_ratings_of_a_known_order(tmp_path: Path) -> None:
    done = study(tmp_path, prompts=20, per_form=12)
    returned(done, tmp_path / "back")
    found = analyse([tmp_path / "back"], done.key)
    assert [a.axis for a in found.axes] == ["coherence", "quality"]
    axis = found.axes[0]
    assert isinstance(axis, RatingResult)
    assert [(m.method, m.ratings, m.texts) for m in axis.means] == [(m, 60, 20) for m in METHODS]
    assert all(abs(m.mean - BASE[m.method]) < 0.35 for m in axis.means)
    assert [a.level for a in axis.agreement] == ["nominal", "ordinal", "interval"]
    assert axis.agreement[2].alpha is not None and 0.3 < axis.agreement[2].alpha < 0.7
    assert axis.anova is not None and axis.anova.df_within == 177 and axis.anova.p < 1e-9
    assert axis.mixed is not None and axis.mixed.p < 1e-6
    assert {d.a for d in axis.mixed.differences} == set(METHODS[:2])
    assert all(d.difference < 0 and d.p_holm < 0.01 for d in axis.mixed.differences)
    assert axis.ranks["good"].tau_methods == 1 and axis.ranks["bad"].tau_methods == -1
    assert axis.ranks["good"].tau_texts > 0.4 and axis.ranks["good"].texts == 60
    assert not found.notes


def test_the_numbers_are_those_of_the_files(tmp_path: Path) -> None:
    """F from the CSV files alone, without the code that reads them."""
    done = study(tmp_path)
    key = returned(done, tmp_path / "back")
    units = {u["id"]: u for us in key["forms"].values() for u in us}
    groups: dict[str, list[float]] = {m: [] for m in METHODS}
    for file in (tmp_path / "back").iterdir():
        for line in file.read_text().splitlines()[1:]:
            _, _, _, _, unit, axis, value, _ = line.split(",")
            if axis == "quality" and "check" not in units[unit]:
                groups[key["texts"][units[unit]["texts"][0]]["method"]].append(float(value))
    (_, quality) = analyse([tmp_path / "back"], done.key).axes
    assert isinstance(quality, RatingResult) and quality.anova is not None
    assert quality.anova.f == pytest.approx(one_way_anova(groups).f)


def test_pairs_count_for_the_method_whichever_side_it_was_on(tmp_path: Path) -> None:
    done = study(tmp_path, kind="pairwise", prompts=30, per_form=30)
    returned(done, tmp_path / "back")
    (axis,) = analyse([tmp_path / "back"], done.key).axes
    assert isinstance(axis, ChoiceResult) and axis.choices == 270
    for s in axis.signs:
        assert s.losses > 2 * s.wins and s.ties > 5 and s.item_p_holm < 0.05
        assert s.wins + s.losses + s.ties == 90
    strengths = {s.method: s.strength for s in axis.strengths}
    assert sorted(METHODS, key=strengths.__getitem__) == list(METHODS)
    assert axis.ranks["good"].tau_methods == 1
    assert axis.agreement[0].alpha is not None


def test_one_side_always_is_no_preference(tmp_path: Path) -> None:
    """A rater who always says A: the sides are balanced, so no method gains."""
    done = study(tmp_path, kind="pairwise", prompts=24, per_form=24)
    key = read(done)
    for form in key["forms"]:
        fill(key, form, tmp_path / "back", lambda unit, axis: "A")
    (axis,) = analyse([tmp_path / "back"], done.key).axes
    assert isinstance(axis, ChoiceResult)
    assert all(abs(s.wins - s.losses) <= 1 and s.p > 0.2 for s in axis.signs)


@pytest.mark.parametrize(("allowed", "excluded"), [(0, 2), (1, 1), (2, 0)])
def test_failed_checks_exclude_by_the_rule_of_the_key(
    allowed: int, excluded: int, tmp_path: Path
) -> None:
    """form-01 fails both of its checks, form-02 one of them by an answer left open."""
    done = study(tmp_path, allowed=allowed)
    key = read(done)
    assert (
        f"{'more than ' + str(allowed) if allowed else 'one or more'} of its 2"
        in (key["rule"]["says"])
    )
    first = next(u["id"] for u in key["forms"]["form-02"] if "check" in u)
    for form in key["forms"]:
        fill(
            key,
            form,
            tmp_path / "back",
            by_method(key),
            check=lambda u, form=form: (
                str(int(u["check"]["answer"]) % 5 + 1)
                if form == "form-01"
                else "" if form == "form-02" and u["id"] == first else u["check"]["answer"]
            ),
        )  # fmt: skip
    found = analyse([tmp_path / "back"], done.key)
    assert [s.failed for s in found.sheets[:3]] == [2, 1, 0]
    assert sum(s.excluded for s in found.sheets) == excluded
    axis = found.axes[0]
    assert isinstance(axis, RatingResult)
    assert sum(m.ratings for m in axis.means) == 12 * (9 - excluded)
    said = " ".join(found.notes)
    assert ("Excluded for failed attention checks: form-01" in said) == (excluded > 0)
    assert f"{excluded} excluded" in summary(found)


def test_nothing_left(tmp_path: Path) -> None:
    done = study(tmp_path)
    key = read(done)
    fill(key, "form-01", tmp_path / "back", by_method(key), check=lambda u: "")
    with pytest.raises(UserError, match="nothing is left to analyse: of 1 forms 1 failed"):
        analyse([tmp_path / "back"], done.key)


def test_checks_alone_are_nothing_to_analyse(tmp_path: Path) -> None:
    done = study(tmp_path)
    fill(read(done), "form-01", tmp_path / "back", lambda unit, axis: "")
    with pytest.raises(UserError, match=r"of 1 forms 0 failed .* the others have no answer"):
        analyse([tmp_path / "back"], done.key)


def test_missing_forms_and_answers_are_said(tmp_path: Path) -> None:
    done = study(tmp_path)
    key = read(done)
    answer = by_method(key)
    fill(key, "form-01", tmp_path / "b", lambda u, a: "" if a == "quality" else answer(u, a),
         check=lambda u: u["check"]["answer"])  # fmt: skip
    found = analyse([tmp_path / "b"], done.key)
    assert [a.axis for a in found.axes] == ["coherence"]
    assert found.notes == (
        "1 of 9 forms came back.",
        "12 answers are missing in the forms that count.",
        "One rater alone: there is no agreement to measure.",
    )
    axis = found.axes[0]
    assert isinstance(axis, RatingResult) and axis.agreement == ()
    assert "cannot tell it apart: rater, prompt, text." in " ".join(axis.notes)


def test_a_rater_of_several_forms_counts_once_for_a_text(tmp_path: Path) -> None:
    done = study(tmp_path)
    key = read(done)
    for form in key["forms"]:
        fill(key, form, tmp_path / "back", by_method(key), rater="Ann")
    found = analyse([tmp_path / "back"], done.key)
    axis = found.axes[0]
    assert isinstance(axis, RatingResult)
    assert (axis.raters, sum(m.ratings for m in axis.means)) == (1, 36)
    assert "144 answers of a rater who had judged the same texts are left out." in found.notes


def test_lines_that_do_not_belong(tmp_path: Path) -> None:
    done = study(tmp_path)
    key = read(done)
    file = fill(key, "form-01", tmp_path / "back", by_method(key))
    good = file.read_text()
    first = good.splitlines()[1]
    unit = key["forms"]["form-01"][0]["id"]
    other = key["forms"]["form-02"][0]["id"]
    cases = [
        (good.replace(key["study"], "feed", 1), "is of study 'feed'"),
        (good.replace(unit, other, 1), f"no unit '{other}' in a form 'form-01'"),
        (good.replace("coherence", "charm", 1), "has no axis 'charm'"),
        (good.replace(first, re.sub(r",\d,4.5$", ",6,4.5", first)), "'6' is no answer"),
        (good.replace(first, first.replace("4.5", "long")), "'long' is no number of seconds"),
        (good.replace(first, first.replace("4.5", "inf")), "'inf' is no number of seconds"),
        (good.replace(first, f"{first}\n{first}"), f"answers unit '{unit}' a second time"),
        (good.replace("seconds", "time", 1), "is not an exported form: it lacks seconds"),
        (good.splitlines()[0] + "\n", "has no line below its header"),
    ]
    for text, message in cases:
        file.write_text(text)
        with pytest.raises(UserError) as e:
            analyse([file], done.key)
        assert message in str(e.value) and str(file) in str(e.value)
    file.write_text(good)
    with pytest.raises(UserError, match="there is no key"):
        analyse([file], tmp_path / "no.json")
    (tmp_path / "odd.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match="is not the key of a human study"):
        analyse([file], tmp_path / "odd.json")
    (tmp_path / "odd.json").write_text('{"format": 9}')
    with pytest.raises(UserError, match="has format 9"):
        analyse([file], tmp_path / "odd.json")
    (tmp_path / "nothing").mkdir()
    for path, message in ((tmp_path / "nothing", "holds no CSV file"), (tmp_path / "x", "no file")):
        with pytest.raises(UserError, match=message):
            analyse([path], done.key)


def test_a_file_counts_once_by_whatever_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = study(tmp_path)
    returned(done, tmp_path / "back")
    once = analyse([tmp_path / "back"], done.key)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked.csv").symlink_to(tmp_path / "back" / "form-02.csv")
    paths = ["back/form-01.csv", "back/../back/form-01.csv", str(tmp_path / "back"), "linked.csv"]
    for words in (paths, ["back", "back"]):
        found = analyse([Path(p) for p in words], done.key)
        assert as_json(found) == as_json(once)


def test_copies_and_second_versions_of_a_form_are_refused(tmp_path: Path) -> None:
    done = study(tmp_path)
    key = read(done)
    file = fill(key, "form-01", tmp_path / "back", by_method(key), rater="Ann")
    copy = file.with_name("form-01 (1).csv")
    # saved again by a spreadsheet: other line ends, and a byte order mark
    copy.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\r\n", b"\n"))
    with pytest.raises(UserError, match=r"form-01\.csv is a copy of .*form-01 \(1\)\.csv: remove"):
        analyse([tmp_path / "back"], done.key)
    copy.unlink()
    fill(key, "form-01", tmp_path / "back", by_method(key, seed=1), rater="Ann ", name="again")
    with pytest.raises(UserError, match=r"form-01 by 'Ann' is in .*again\.csv and in .*form-01"):
        analyse([tmp_path / "back"], done.key)


def test_the_page_and_the_json(tmp_path: Path) -> None:
    names = ("<b>one", "two & co")
    done = study(tmp_path, names, task=NASTY, axes={"<i>clear</i>": "Is it clear?"})
    key = read(done)
    for form in key["forms"]:
        fill(
            key,
            form,
            tmp_path / "back",
            lambda u, a: str(1 + len(u["id"]) % 2 + int(u["id"][1], 16) % 3),
        )
    found = analyse([tmp_path / "back"], done.key)
    text = page(found)
    assert "<script" not in text and "<b>" not in text and "<i>" not in text
    assert html.escape(NASTY) in text and "&lt;b&gt;one" in text
    assert "default-src 'none'" in text and not re.search(r"\b(src|href)=", text)
    for part in ("Krippendorff", "Tukey HSD", "mixed-effects model", "Kendall", found.rule):
        assert part in text
    back = json.loads(as_json(found))
    assert back["axes"][0]["anova"]["f"] == found.axes[0].anova.f  # type: ignore[union-attr]
    assert back["sheets"][0]["checks"] == 2
    assert as_json(analyse([tmp_path / "back"], done.key)) == as_json(found)  # seeded


def test_p_values() -> None:
    assert [p_value(p) for p in (None, 0.0004, 0.0123, 1.0)] == ["-", "< .001", ".012", "1.000"]


def test_no_torch(tmp_path: Path) -> None:
    done = study(tmp_path)
    returned(done, tmp_path / "back")
    code = (
        "import sys; from tether.cli.main import main; "
        f"code = main(['human-study', 'analyse', {str(tmp_path / 'back')!r}, '--key', "
        f"{str(done.key)!r}, '--json']); "
        "assert code == 0 and 'torch' not in sys.modules and 'vl_convert' not in sys.modules"
    )
    src = Path(__file__).resolve().parents[3] / "src"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(src), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["forms"] == 9
