"""Who prefers what: simulated raters with noise, or people by a form that reads back.

A simulated rater is a reward with a name: it prefers a to b with probability
sigmoid((r(a) - r(b)) / noise). Its draws depend on its name and seed and on nothing else.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tether.config.errors import UserError
from tether.config.nearest import nearest
from tether.config.parts import build, reward_part
from tether.config.text_values import parse_yaml
from tether.core.preferences import preference_probability
from tether.distributed.seeds import generator
from tether.rewards.base import Reward
from tether.rewards.batch import Prompt, RewardBatch, text_of
from tether.rewards.combine import RewardSet
from tether.studies.delimited import read_lines
from tether.tasks.reading import read_file, size

FORM = ("pair", "prompt", "left", "right", "choice", "rater")
"""Columns of a form; people fill in the last two."""
CHOICES = ("left", "right", "tie")


@dataclass(frozen=True)
class Candidate:
    """Two completions of a prompt, not judged yet."""

    pair: str
    prompt: Prompt
    completions: tuple[str, str]
    sources: tuple[str, str]
    columns: dict[str, Any]
    """Other columns of the prompt's row."""


@dataclass(frozen=True)
class Rater:
    """A simulated rater."""

    name: str
    reward: Reward
    noise: float
    seed: int

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "reward": self.reward.source, "noise": self.noise,
                "seed": self.seed}  # fmt: skip


def rater(text: str, noise: float, seed: int) -> Rater:
    """`NAME=REWARD` -> a rater. REWARD is what `--reward` takes, or a mapping `{kind: ..., ...}`
    which may also say `noise` and `seed`. Raises UserError."""
    name, equals, spec = text.partition("=")
    if not equals or not name.strip() or not spec.strip():
        raise UserError(f"--rater '{text}' must be NAME=REWARD, e.g. praise=rewards.py:praise")
    part = read_reward(spec, f"--rater {name}")
    own = {k: part.pop(k) for k in ("noise", "seed") if k in part}
    noise, seed = own.get("noise", noise), own.get("seed", seed)
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0 <= noise < 1e9:
        raise UserError(f"--rater {name}: noise is {noise!r}, must be a number of at least 0")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"--rater {name}: seed is {seed!r}, must be a whole number")
    return Rater(name.strip(), build("reward", part, f"--rater {name}"), float(noise), seed)


def read_reward(text: str, where: str) -> dict[str, Any]:
    """A reward on the command line: a word as for `--reward`, or a YAML mapping."""
    if not text.lstrip().startswith("{"):
        return reward_part(text, where)
    found = parse_yaml(text, where)
    if not isinstance(found, dict):
        raise UserError(f"{where}: '{text}' is no mapping {{kind: ..., ...}}")
    return found


def scores(reward: Reward, candidates: Sequence[Candidate], tokenizer: Any) -> list[list[float]]:
    """[n][2] values of both completions. Raises UserError where one has none."""
    rewards = RewardSet({"reward": reward})
    names = list(dict.fromkeys(k for c in candidates for k in c.columns))
    rewards.check(["prompt", *names])
    rewards.prepare()
    out = []
    for side in (0, 1):
        texts = [c.completions[side] for c in candidates]
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        result = rewards.score(
            RewardBatch(
                prompts=[c.prompt for c in candidates],
                completions=texts,
                completion_ids=[list(x) for x in ids],
                columns={k: [c.columns.get(k) for c in candidates] for k in names},
            )
        )
        if None in result.score:
            raise UserError(f"{reward.source} gave no number for a completion; a rater must")
        out.append([float(x) for x in result.score if x is not None])
    return [list(pair) for pair in zip(*out, strict=True)]


def judged(
    candidates: Sequence[Candidate], raters: Sequence[Rater], tokenizer: Any
) -> list[dict[str, Any]]:
    """One row a pair and rater, with `chosen` and `rejected`."""
    rows: list[dict[str, Any]] = []
    for r in raters:
        draws = torch.rand(
            len(candidates), generator=generator("rater", r.name, r.seed), dtype=torch.float64
        )
        values = scores(r.reward, candidates, tokenizer)
        for c, (a, b), u in zip(candidates, values, draws.tolist(), strict=True):
            first = u < preference_probability(a, b, r.noise)
            rows.append(preference(c, 0 if first else 1, r.name))
    return rows


def preference(c: Candidate, winner: int, name: str) -> dict[str, Any]:
    """A row of a file of pairs: what `tether reward-model train` reads."""
    taken = ("pair", "prompt", "chosen", "rejected", "chosen_from", "rejected_from", "rater")
    return {
        "pair": c.pair,
        "prompt": c.prompt,
        "chosen": c.completions[winner],
        "rejected": c.completions[1 - winner],
        "chosen_from": c.sources[winner],
        "rejected_from": c.sources[1 - winner],
        "rater": name,
        **{k: v for k, v in c.columns.items() if k not in taken},
    }


def key_of(form: Path) -> Path:
    """The file beside a form that says which side came from where; raters do not get it."""
    return form.with_name(form.name + ".key.json")


def check_form(form: Path) -> None:
    """Raises UserError for a form of another kind."""
    if form.suffix not in (".csv", ".jsonl"):
        raise UserError(f"--form {form}: write .csv or .jsonl")


def form_texts(candidates: Sequence[Candidate], form: Path, seed: int) -> dict[Path, str]:
    """The form (.csv or .jsonl) and its key. Sides are drawn by coin, so that neither source can
    be told by its place."""
    flips = torch.rand(len(candidates), generator=generator("form", seed)).tolist()
    rows, key = [], {}
    for c, flip in zip(candidates, flips, strict=True):
        left = int(flip < 0.5)
        sides = (c.completions[left], c.completions[1 - left])
        rows.append(dict(zip(FORM, (c.pair, text_of(c.prompt), *sides, "", ""), strict=True)))
        key[c.pair] = {
            "left": left,
            "prompt": c.prompt,
            "completions": c.completions,
            "sources": c.sources,
            "columns": c.columns,
        }
    if form.suffix == ".csv":
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, FORM)
        writer.writeheader()
        writer.writerows(rows)
        text = out.getvalue()
    else:
        text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    return {form: text, key_of(form): json.dumps(key, ensure_ascii=False, indent=1) + "\n"}


def read_form(form: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """What people chose -> rows of pairs, and counts of ties and of pairs that nobody answered,
    those included whose row is gone. Raters are told apart but for case and white space.

    Texts are taken from the key; those that the form has must be the same but for white space.
    Raises UserError, naming the row, for an unknown pair or choice, for the texts of another form,
    and for a pair that one rater answers twice.
    """
    key = _read_key(form)
    rows: list[dict[str, Any]] = []
    answered: dict[tuple[str, str], str] = {}
    raters: dict[str, str] = {}
    ties = 0
    for where, row in _form_rows(form):
        pair, name = row["pair"], " ".join((row["rater"] or "people").split())
        name = raters.setdefault(name.casefold(), name)
        if pair not in key:
            raise UserError(
                f"{where}: there is no pair '{pair}' in {key_of(form).name}; a spreadsheet may "
                "have changed it: read the column pair as text"
            )
        word = row["choice"].lower()
        if not word:
            continue
        if word not in CHOICES:
            close = nearest(word, CHOICES)
            hint = f"did you mean '{close}'?" if close else "write left, right or tie"
            raise UserError(f"{where}: choice is '{row['choice']}'; {hint}")
        _same_texts(where, row, *key[pair], form)
        before = answered.setdefault((pair, name), where)
        if before != where:
            raise UserError(
                f"{where} answers pair '{pair}' a second time (by '{name}', first in {before}): "
                "remove one, or tell the raters apart in the column rater"
            )
        if word == "tie":
            ties += 1
            continue
        c, left = key[pair]
        rows.append(preference(c, left if word == "left" else 1 - left, name))
    open_pairs = key.keys() - {pair for pair, _ in answered}
    return rows, {"ties": ties, "unanswered": len(open_pairs)}


def _same_texts(where: str, row: dict[str, str], c: Candidate, left: int, form: Path) -> None:
    """Raises UserError where the row has other texts than the key: names of pairs return in every
    round of one seed, so the key may be that of another form. A column that is gone is not
    asked."""
    sides = (text_of(c.prompt), c.completions[left], c.completions[1 - left])
    for column, text in zip(("prompt", "left", "right"), sides, strict=True):
        if column in row and _words(row[column]) != _words(text):
            raise UserError(
                f"{where}: the column {column} of pair '{c.pair}' holds another text than "
                f"{key_of(form).name}: put the key beside it that was written with this form; "
                "where a spreadsheet changed the text, copy it back from the key"
            )


def _words(text: str) -> str:
    """What a spreadsheet keeps: white space is one blank, control characters are gone."""
    kept = (x for x in text if x.isspace() or unicodedata.category(x) != "Cc")
    return " ".join("".join(kept).split())


def _read_key(form: Path) -> dict[str, tuple[Candidate, int]]:
    """pair -> what was compared, and which of the two stands left. Raises UserError."""
    place = key_of(form)
    if not place.is_file():
        raise UserError(f"{form} has no key {place.name} beside it: keep the two together")
    try:
        key = json.loads(place.read_text(encoding="utf-8"))
        out = {}
        for pair, e in key.items():
            a, b = e["completions"]
            one, two = e["sources"]
            if e["left"] not in (0, 1):
                raise ValueError(f"left of pair {pair} is {e['left']!r}, must be 0 or 1")
            if not all(isinstance(x, str) for x in (a, b, text_of(e["prompt"]))):
                raise TypeError(f"pair {pair} has something that is no text")
            c = Candidate(pair, e["prompt"], (a, b), (one, two), dict(e["columns"]))
            out[pair] = (c, int(e["left"]))
        return out
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise UserError(f"{place} is damaged: {e!r}; take the one that was written with it") from e


def _form_rows(form: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(file and row, cells) of a form: pair, choice and rater, and the texts that it has."""
    if form.name.lower().endswith((".jsonl", ".json")):
        table = read_file(form)
        header, n = list(table), size(table)
        rows = [(f"{form}, row {i + 1}", {k: table[k][i] for k in header}) for i in range(n)]
    else:
        header, lines = read_lines(form)
        rows = [(f"{form}, line {line}", dict(row)) for line, row in lines]
    missing = next((k for k in ("pair", "choice") if k not in header), None)
    if missing:
        raise UserError(f"{form} has no column '{missing}'; it has {header}")
    for where, row in rows:
        values = ((k, row.get(k)) for k in ("pair", "choice", "rater"))
        answer = {k: "" if v is None else str(v).strip() for k, v in values}
        texts = ((k, row.get(k)) for k in ("prompt", "left", "right"))
        yield where, answer | {k: str(v) for k, v in texts if v is not None}
