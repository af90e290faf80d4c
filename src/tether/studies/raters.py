"""Who prefers what: simulated raters with noise, or people by a form that reads back.

A simulated rater is a reward with a name: it prefers a to b with probability
sigmoid((r(a) - r(b)) / noise). Its draws depend on its name and seed and on nothing else.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
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
from tether.tasks.reading import read_file

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
        return reward_part(text)
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
    elif form.suffix == ".jsonl":
        text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    else:
        raise UserError(f"--form {form}: write .csv or .jsonl")
    return {form: text, key_of(form): json.dumps(key, ensure_ascii=False, indent=1) + "\n"}


def read_form(form: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """What people chose -> rows of pairs, and counts of ties and of rows without an answer.

    Texts are taken from the key, not from the form, which a spreadsheet may have changed.
    Raises UserError, naming the row, for an unknown pair or choice.
    """
    place = key_of(form)
    if not place.is_file():
        raise UserError(f"{form} has no key {place.name} beside it: keep the two together")
    try:
        key = json.loads(place.read_text(encoding="utf-8"))
    except ValueError as e:
        raise UserError(f"{place} is damaged: {e}") from e
    table = read_file(form)
    missing = next((k for k in ("pair", "choice") if k not in table), None)
    if missing:
        raise UserError(f"{form} has no column '{missing}'; it has {list(table)}")
    raters = table.get("rater", [None] * len(table["pair"]))
    rows: list[dict[str, Any]] = []
    counts = {"ties": 0, "unanswered": 0}
    for number, (pair, choice, name) in enumerate(
        zip(table["pair"], table["choice"], raters, strict=True), 1
    ):
        entry = key.get(str(pair))
        if entry is None:
            raise UserError(f"{form}, row {number}: there is no pair '{pair}' in {place.name}")
        word = "" if choice is None else str(choice).strip().lower()
        if not word or word == "tie":
            counts["ties" if word else "unanswered"] += 1
            continue
        if word not in CHOICES:
            close = nearest(word, CHOICES)
            hint = f"did you mean '{close}'?" if close else "write left, right or tie"
            raise UserError(f"{form}, row {number}: choice is '{choice}'; {hint}")
        left = int(entry["left"])
        a, b = entry["completions"]
        c = Candidate(str(pair), entry["prompt"], (a, b), tuple(entry["sources"]), entry["columns"])
        rows.append(preference(c, left if word == "left" else 1 - left, str(name or "people")))
    return rows, counts
