"""Returned forms and their key -> numbers, a JSON file and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tether.analysis.human_study import (
    Choice,
    ChoiceResult,
    Rating,
    RatingResult,
    analyse_choices,
    analyse_ratings,
)
from tether.config.directions import less_is_better
from tether.config.errors import UserError
from tether.records import finite
from tether.reports.human_study import HumanStudy, SheetLine
from tether.studies.human.returned import Checked, Key, check, read_key, read_sheets

OUTCOMES = {"A": 1.0, "equal": 0.5, "B": 0.0}


def analyse(paths: Sequence[Path], key_file: Path, seed: int = 0) -> HumanStudy:
    """Read, apply the key's rule to the attention checks, and compute every axis.

    Args:
        seed: of the bootstrap intervals.
    Raises:
        UserError: as `read_key` and `read_sheets`, or nothing is left to analyse.
    """
    key = read_key(key_file)
    checked = [check(s, key) for s in read_sheets(paths, key)]
    used = [c for c in checked if not c.excluded]
    metrics = {t: text["scores"] for t, text in key.texts.items()}
    directions = {m: _less_is_better(m, key) for scores in metrics.values() for m in scores}
    axes: list[RatingResult | ChoiceResult] = []
    twice = 0
    for axis in key.axes:
        if key.kind == "likert":
            ratings, again = _ratings(used, key, axis)
            if ratings:
                axes.append(analyse_ratings(axis, ratings, key.methods, metrics, seed, directions))
        else:
            choices, again = _choices(used, key, axis)
            if choices:
                axes.append(analyse_choices(axis, choices, key.methods, metrics, seed, directions))
        twice += again
    if not axes:
        raise UserError(
            f"nothing is left to analyse: of {len(checked)} forms "
            f"{sum(c.excluded for c in checked)} failed their attention checks ({key.rule}), and "
            "the others have no answer"
        )
    return HumanStudy(
        task=key.task,
        study=key.study,
        rule=key.rule,
        sheets=tuple(_line(c) for c in checked),
        forms=len(key.forms),
        axes=tuple(axes),
        notes=_notes(checked, key, twice),
    )


def _less_is_better(metric: str, key: Key) -> bool | None:
    """None where it is not known. A reward's score is turned already where it needs to be."""
    if key.rewards is not None and metric in key.rewards:
        return False
    found = less_is_better(metric)
    return None if found and key.rewards is None else found


def as_json(study: HumanStudy) -> str:
    """The whole result; numbers that are not finite are null."""
    return json.dumps(finite(asdict(study)), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _line(c: Checked) -> SheetLine:
    s = c.sheet
    return SheetLine(s.form, s.rater, c.failed, c.checks, c.excluded, c.open, s.seconds)


def _answers(
    used: Sequence[Checked], key: Key, axis: str
) -> tuple[list[tuple[str, list[str], str]], int]:
    """(rater, texts of a unit, answer), and how often a rater met the same texts again: then the
    first answer counts."""
    found: dict[tuple[str, tuple[str, ...]], tuple[str, list[str], str]] = {}
    again = 0
    for c in used:
        for unit in key.forms[c.sheet.form]:
            answer = c.sheet.answers.get((unit["id"], axis))
            if "check" in unit or answer is None:
                continue
            seen = (c.sheet.rater, tuple(sorted(unit["texts"])))
            again += seen in found
            found.setdefault(seen, (c.sheet.rater, unit["texts"], answer))
    return list(found.values()), again


def _ratings(used: Sequence[Checked], key: Key, axis: str) -> tuple[list[Rating], int]:
    answers, again = _answers(used, key, axis)
    out = []
    for rater, (text,), answer in answers:
        about = key.texts[text]
        out.append(Rating(rater, text, str(about["item"]), about["method"], float(answer)))
    return out, again


def _choices(used: Sequence[Checked], key: Key, axis: str) -> tuple[list[Choice], int]:
    """Every pair in the order of the methods, whichever side it was shown on."""
    answers, again = _answers(used, key, axis)
    out = []
    for rater, shown, answer in answers:
        outcome, (a, b) = OUTCOMES[answer], shown
        place = key.methods.index
        if place(key.texts[a]["method"]) > place(key.texts[b]["method"]):
            a, b, outcome = b, a, 1 - outcome
        one, two = key.texts[a], key.texts[b]
        out.append(
            Choice(
                rater=rater,
                unit=f"{a} {b}",
                item=str(one["item"]),
                a=a,
                b=b,
                method_a=one["method"],
                method_b=two["method"],
                outcome=outcome,
            )
        )
    return out, again


def _notes(checked: Sequence[Checked], key: Key, twice: int) -> tuple[str, ...]:
    notes = []
    back = {c.sheet.form for c in checked}
    if len(back) < len(key.forms):
        notes.append(f"{len(back)} of {len(key.forms)} forms came back.")
    excluded = [c for c in checked if c.excluded]
    if excluded:
        names = ", ".join(f"{c.sheet.form} ({c.sheet.rater})" for c in excluded)
        notes.append(f"Excluded for failed attention checks: {names}.")
    missing = sum(c.open for c in checked if not c.excluded)
    if missing:
        notes.append(f"{missing} answers are missing in the forms that count.")
    if twice:
        notes.append(f"{twice} answers of a rater who had judged the same texts are left out.")
    if unsaid := _unsaid(key):
        notes.append(
            f"{key.path} is of an earlier version, which does not say whether {', '.join(unsaid)} "
            "is the metric's value (less is better) or a reward's score (more is better): where it "
            'is the value, add "rewards": [] to it.'
        )
    raters = {c.sheet.rater for c in checked if not c.excluded}
    if len(raters) < 2:
        notes.append("One rater alone: there is no agreement to measure.")
    return tuple(notes)


def _unsaid(key: Key) -> list[str]:
    """Metrics of which less is better, in a key that does not say which are rewards."""
    names = dict.fromkeys(m for text in key.texts.values() for m in text["scores"])
    return [m for m in names if key.rewards is None and less_is_better(m)]


def published() -> dict[str, Any]:
    """The paper's printed ratings re-checked: what `tether human-study published --json` prints."""
    from tether.analysis import published_ratings as paper

    return {
        "source": paper.SOURCE,
        "means": paper.MEANS,
        "ratings": paper.RATINGS,
        "claims": [asdict(c) for c in paper.claims()],
        "average_over_tasks": paper.average_over_tasks(["PPO", "NLPO"]),
        "table_10": {"pairs": paper.TABLE_10, "of_one_tukey_test": paper.tukey_in_order()},
        "smallest_p": [asdict(s) for s in paper.smallest()],
    }
