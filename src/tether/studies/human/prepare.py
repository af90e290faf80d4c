"""From completions to blinded, balanced rating forms, and the key that says what they hold.

Everything is a function of the completions, the settings and the seed: equal studies are equal
files.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from tether.config.directions import less_is_better
from tether.config.errors import UserError
from tether.config.whole_file import write_whole
from tether.reports.rating_form import form_page
from tether.studies.human.balance import sides, spread
from tether.studies.human.completions import Completion, Pool, shared_prompts

FORMAT = 1
KEY, FORMS = "key.json", "forms"
QUESTIONS = {
    "likert": {
        "coherence": "How coherent is the text, read after its prompt?",
        "quality": "How well does the text do what the prompt asks for?",
    },
    "pairwise": {"preference": "Which text is the better answer to the prompt?"},
}
"""Axes where none are given: name -> question."""


@dataclass(frozen=True)
class Design:
    """Settings of a study."""

    task: str
    """Shown above every form."""
    kind: Literal["likert", "pairwise"] = "likert"
    axes: dict[str, str] = field(default_factory=dict)
    """name -> question; empty = `QUESTIONS`."""
    points: int = 5
    """Of a Likert scale, 1 to `points`."""
    ends: tuple[str, str] = ("very poor", "very good")
    """Words for the ends of a Likert scale."""
    equal: bool = True
    """Pairwise: may a rater say that both are equally good?"""
    items: int = 100
    """Prompts, or as many as all methods share."""
    raters: int = 3
    """People who rate each text or pair."""
    per_form: int = 50
    """Texts or pairs of one form, at most."""
    checks: int = 2
    """Attention checks of one form."""
    allowed: int = 0
    """A form with more failed checks than this is excluded from the analysis."""
    instructions: str = ""
    """Shown at the top of every form; empty = a sentence."""
    seed: int = 0


@dataclass(frozen=True)
class Prepared:
    """What was written, and what a user should know."""

    forms: list[Path]
    key: Path
    items: int
    units: int
    """Texts or pairs, each rated by `raters` people."""
    per_form: tuple[int, int]
    """Fewest and most of one form, without checks."""
    notes: list[str]


def prepare(pool: Pool, design: Design, folder: Path) -> Prepared:
    """Write `folder/forms/form-01.html`... and `folder/key.json`, each whole, the key last: a study
    without a key was not written to its end.

    Raises:
        UserError: nothing shared by the methods, settings out of range, fewer texts in a form than
            attention checks, or a folder in use.
    """
    check(design, folder)
    rewards = _rewards(pool)
    rng = random.Random(f"tether human study {design.seed}")
    shared = shared_prompts(pool)
    chosen = sorted(rng.sample(range(len(shared)), min(design.items, len(shared))))
    prompts = [shared[i] for i in chosen]
    texts = _texts(pool, prompts, rng)
    kinds, units, same = _units(texts, list(pool), len(prompts), design)
    if not units:
        raise UserError("all texts of a prompt are equal, for every prompt: nothing to compare")
    items = 1 + max(i for i, _ in units)
    forms = math.ceil(items * kinds / design.per_form)
    _enough(items * kinds // forms, design)
    sheets = _sheets(items, kinds, forms, units, design, rng)
    _enough(min(map(len, sheets)), design)
    key = _key(texts, list(pool), sheets, design, rng)
    key["rewards"] = rewards
    key["study"] = study_id(key)
    pages = {name: form_page(_form(key, name)) for name in key["forms"]}
    for name, text in pages.items():
        write_whole(folder / FORMS / f"{name}.html", text)
    write_whole(folder / KEY, _json(key))
    sizes = [len(s) for s in sheets]
    return Prepared(
        forms=[folder / FORMS / f"{name}.html" for name in pages],
        key=folder / KEY,
        items=len(prompts),
        units=len(units),
        per_form=(min(sizes), max(sizes)),
        notes=_notes(pool, shared, prompts, texts, same),
    )


def study_id(key: Mapping[str, Any]) -> str:
    """Of all that the key says but the id itself; forms and answers carry it."""
    said = {k: v for k, v in key.items() if k != "study"}
    return hashlib.sha256(_json(said).encode()).hexdigest()[:12]


def check(design: Design, folder: Path) -> None:
    """What can be known before a completion is read. Raises UserError."""
    for name, least in (("items", 1), ("raters", 1), ("per_form", 1), ("checks", 0), ("points", 2)):
        if getattr(design, name) < least:
            raise UserError(f"{name} must be at least {least}, not {getattr(design, name)}")
    if not 0 <= design.allowed <= design.checks:
        raise UserError(
            f"allowed failures must be 0 to the number of checks ({design.checks}), "
            f"not {design.allowed}"
        )
    _enough(design.per_form, design)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a new folder")
    if (folder / KEY).exists():
        raise UserError(f"{folder} already holds a study; give a new folder")
    if any((folder / FORMS).glob("*.html")):
        raise UserError(
            f"{folder} holds forms but no {KEY}: the study was not written to its end, or its key "
            "lies elsewhere; give a new folder"
        )


def _rewards(pool: Pool) -> list[str]:
    """Metrics that are scores of runs' rewards, where more is better.

    Raises UserError where one is a metric's own value in other sources, and less of that is better.
    """
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for of_prompt in pool.values():
        for completions in of_prompt.values():
            for one in completions:
                found[one.of_run] |= one.scores.keys()
    for name in sorted(found[True] & found[False]):
        if less_is_better(name):
            raise UserError(
                f"'{name}' is a reward's score in the samples of runs (more is better) and a "
                "metric's value in other sources (less is better): call it otherwise in the "
                "'scores' of their rows"
            )
    return sorted(found[True])


def _enough(texts: int, design: Design) -> None:
    """Raises UserError where a form of so many texts has no place for its attention checks."""
    if texts < design.checks:
        what = "text" if design.kind == "likert" else "pair"
        raise UserError(
            f"a form of {texts} {what}{'s' if texts != 1 else ''} has no place for {design.checks} "
            "attention checks, which stand apart and never first; lower --checks, or raise "
            "--per-form or the number of prompts"
        )


def _texts(pool: Pool, prompts: Sequence[str], rng: random.Random) -> list[dict[str, Any]]:
    """One text for each prompt and method, prompt by prompt; of several completions one drawn."""
    ids = _names("t", len(prompts) * len(pool), rng)
    out: list[dict[str, Any]] = []
    for i, prompt in enumerate(prompts):
        for method, of_prompt in pool.items():
            one: Completion = rng.choice(of_prompt[prompt])
            out.append(
                {
                    "id": ids[len(out)],
                    "method": method,
                    "item": i,
                    "prompt": prompt,
                    "text": one.text,
                    "scores": one.scores,
                }
            )
    return out


def _units(
    texts: Sequence[dict[str, Any]], methods: Sequence[str], items: int, design: Design
) -> tuple[int, dict[tuple[int, int], tuple[str, ...]], int]:
    """Kinds of an item; (item, kind) -> its one or two texts; pairs left out as identical."""
    m = len(methods)
    if design.kind == "likert":
        return m, {(i, j): (texts[i * m + j]["id"],) for i in range(items) for j in range(m)}, 0
    pairs = list(combinations(range(m), 2))
    units: dict[tuple[int, int], tuple[str, ...]] = {}
    same = 0
    for i in range(items):
        for k, (a, b) in enumerate(pairs):
            left, right = texts[i * m + a], texts[i * m + b]
            if left["text"].strip() == right["text"].strip():
                same += 1
            else:
                units[i, k] = (left["id"], right["id"])
    return len(pairs), units, same


def _sheets(
    items: int,
    kinds: int,
    forms: int,
    units: dict[tuple[int, int], tuple[str, ...]],
    design: Design,
    rng: random.Random,
) -> list[list[tuple[str, ...]]]:
    """Texts or pairs of every form, in the order in which they are shown; `forms` a round.

    Each of `raters` rounds deals all units to forms of its own, so nobody rates a text twice.
    """
    dealt: list[list[tuple[int, int]]] = []
    for _ in range(design.raters):
        of_round: list[list[tuple[int, int]]] = [[] for _ in range(forms)]
        for i, row in enumerate(spread(items, kinds, forms, rng)):
            for k, form in enumerate(row):
                if (i, k) in units:
                    of_round[form].append((i, k))
        dealt += [mine for mine in of_round if mine]
    sheets: list[list[tuple[str, ...]]] = []
    turned = sides([[k for _, k in mine] for mine in dealt], rng)
    for mine, turns in zip(dealt, turned, strict=True):
        shown = [units[u][::-1] if turn else units[u] for u, turn in zip(mine, turns, strict=True)]
        rng.shuffle(shown)
        sheets.append(shown)
    return sheets


def _key(
    texts: Sequence[dict[str, Any]],
    methods: Sequence[str],
    sheets: Sequence[Sequence[tuple[str, ...]]],
    design: Design,
    rng: random.Random,
) -> dict[str, Any]:
    """Everything that the forms must not say."""
    axes = design.axes or QUESTIONS[design.kind]
    width = max(2, len(str(len(sheets))))
    ids = iter(_names("u", sum(len(s) + design.checks for s in sheets), rng))
    forms: dict[str, Any] = {}
    prompts = list(dict.fromkeys(t["prompt"] for t in texts))
    for number, shown in enumerate(sheets, 1):
        units: list[dict[str, Any]] = [{"id": next(ids), "texts": list(u)} for u in shown]
        for place in _places(len(units), design.checks, rng):
            units.insert(place, {"id": next(ids), "check": _check_unit(prompts, design, rng)})
        forms[f"form-{number:0{width}d}"] = units
    return {
        "format": FORMAT,
        "task": design.task,
        "kind": design.kind,
        "axes": axes,
        "points": design.points,
        "ends": list(design.ends),
        "equal": design.equal,
        "seed": design.seed,
        "items": len(prompts),
        "raters": design.raters,
        "per_form": design.per_form,
        "checks": design.checks,
        "instructions": design.instructions,
        "rule": {"allowed": design.allowed, "says": _rule(design)},
        "methods": list(methods),
        "texts": {t["id"]: {k: v for k, v in t.items() if k != "id"} for t in texts},
        "forms": forms,
    }


def _rule(design: Design) -> str:
    if not design.checks:
        return "No attention checks: every form counts."
    some = f"more than {design.allowed}" if design.allowed else "one or more"
    return (
        f"A form in which {some} of its {design.checks} attention checks are failed is excluded "
        "whole. A check is failed where any of its answers is another than the one asked for, or "
        "is missing."
    )


def _places(units: int, checks: int, rng: random.Random) -> list[int]:
    """Where checks are put in, from the end: one in each of `checks` equal stretches, never the
    first thing that a rater sees. At most as many checks as units."""
    out = []
    for c in range(checks):
        first, last = units * c // checks, units * (c + 1) // checks
        out.append(rng.randint(first + 1, last))
    return sorted(out, reverse=True)


def _check_unit(prompts: Sequence[str], design: Design, rng: random.Random) -> dict[str, Any]:
    prompt = rng.choice(prompts)
    if design.kind == "likert":
        answer = str(rng.randint(1, design.points))
        texts = [f"This text checks that texts are read. Please answer {answer} to every question."]
    else:
        answer = rng.choice("AB")
        says = f"This text checks that texts are read. Please choose {answer} in every question."
        texts = [says, says]
    return {"prompt": prompt, "texts": texts, "answer": answer}


def _form(key: dict[str, Any], name: str) -> dict[str, Any]:
    """What a rater may see: no method, no score, no mark on the checks."""
    units = []
    for unit in key["forms"][name]:
        if "check" in unit:
            prompt, shown = unit["check"]["prompt"], unit["check"]["texts"]
        else:
            mine = [key["texts"][t] for t in unit["texts"]]
            prompt, shown = mine[0]["prompt"], [t["text"] for t in mine]
        units.append({"id": unit["id"], "prompt": prompt, "texts": shown})
    options = (
        [str(v) for v in range(1, key["points"] + 1)]
        if key["kind"] == "likert"
        else ["A", "equal", "B"] if key["equal"] else ["A", "B"]
    )  # fmt: skip
    return {
        "study": key["study"],
        "form": name,
        "task": key["task"],
        "instructions": key["instructions"],
        "axes": [{"name": n, "question": q} for n, q in key["axes"].items()],
        "options": options,
        "ends": key["ends"] if key["kind"] == "likert" else [],
        "units": units,
    }


def _names(prefix: str, count: int, rng: random.Random) -> list[str]:
    """Distinct names without any order in them."""
    found: dict[str, None] = {}
    while len(found) < count:
        found.setdefault(f"{prefix}{rng.getrandbits(40):010x}")
    return list(found)


def _notes(
    pool: Pool,
    shared: Sequence[str],
    prompts: Sequence[str],
    texts: Sequence[dict[str, Any]],
    same: int,
) -> list[str]:
    notes = []
    most = max(len(p) for p in pool.values())
    if most > len(shared):
        notes.append(f"{len(shared)} prompts are shared by all methods, of up to {most}.")
    if len(prompts) < 50:
        notes.append(f"{len(prompts)} prompts: intervals will be wide.")
    if same:
        notes.append(f"{same} pairs of identical texts are not shown.")
    named = {m for m in pool for t in texts if len(m) > 2 and m.lower() in t["text"].lower()}
    if named:
        notes.append(
            f"Some texts contain the name of a method themselves: {', '.join(sorted(named))}."
        )
    unmasked = [m for m, of in pool.items() if any(c.unmasked for cs in of.values() for c in cs)]
    if unmasked:
        notes.append(
            f"A masked policy is shown as exported, without its mask: {', '.join(unmasked)}."
        )
    return notes


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
