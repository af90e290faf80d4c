"""Preference pairs -> texts: prompt and completion joined as a reward reads them in a run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tether.config.errors import UserError
from tether.config.run import DataSettings, PairSettings
from tether.rewards.batch import text_of
from tether.tasks.loading import splits
from tether.tasks.reading import Table, utf8_text


@dataclass(frozen=True)
class Pair:
    """One preference."""

    prompt: str
    """As text, with the line break that follows chat messages."""
    chosen: str
    rejected: str
    """Completions."""
    margin: float = 0.0
    row: int = 0
    """Number in its source, from 1."""

    @property
    def texts(self) -> tuple[str, str]:
        """Whole texts of the chosen and of the rejected one."""
        return self.prompt + self.chosen, self.prompt + self.rejected


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split, and what was left out of it."""

    pairs: list[Pair]
    notes: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pairs)


def load_pairs(data: DataSettings, columns: PairSettings) -> dict[str, Pairs]:
    """`train`, `validation`, `test` (the last two where there are rows for them).

    A prompt is in one split only: of the training source whole prompts are held out, in the order
    of the seeded shuffle, until there are `test_rows` and `validation_rows` pairs or a few more;
    training pairs whose prompt is in a named split are dropped and counted. So are pairs whose
    completions are equal: they prefer nothing.
    Raises UserError for a missing column (nearest name) and for a value that cannot be read.
    """
    named = {
        "pairs.prompt": columns.prompt,
        "pairs.chosen": columns.chosen,
        "pairs.rejected": columns.rejected,
        "pairs.margin": columns.margin,
    }
    whole = replace(data, validation_rows=0, test_rows=0, limit=None)
    read = {
        name: _read(table, rows, columns)
        for name, (table, rows) in splits(whole, columns=named).items()
    }
    out: dict[str, Pairs] = {}
    for name in ("test", "validation"):
        own = getattr(data, name) is not None
        wanted = 0 if own else getattr(data, f"{name}_rows")
        if own:
            pairs, notes = read[name], {"rows": len(read[name])}
        elif wanted:
            pairs, read["train"] = _held_out(read["train"], wanted)
            notes = {"rows": len(pairs)}
        else:
            continue
        out[name] = _split(name, pairs, notes, out, data)
    train = read["train"][: data.limit]
    out["train"] = _split("train", train, {"rows": len(train)}, out, data)
    return out


def _held_out(pairs: list[Pair], wanted: int) -> tuple[list[Pair], list[Pair]]:
    """At least `wanted` pairs, all those of their prompts; and the rest."""
    sizes = Counter(p.prompt for p in pairs)
    prompts: set[str] = set()
    count = 0
    for p in pairs:
        if count >= wanted:
            break
        if p.prompt not in prompts:
            prompts.add(p.prompt)
            count += sizes[p.prompt]
    return [p for p in pairs if p.prompt in prompts], [p for p in pairs if p.prompt not in prompts]


def _split(
    name: str, pairs: list[Pair], notes: dict[str, int], others: dict[str, Pairs],
    data: DataSettings,
) -> Pairs:  # fmt: skip
    """What is left of a split beside those that are made already."""
    taken = {p.prompt for other in others.values() for p in other.pairs}
    kept = [p for p in pairs if p.chosen != p.rejected]
    free = [p for p in kept if p.prompt not in taken]
    notes = {
        **notes,
        "dropped_equal": len(pairs) - len(kept),
        "dropped_prompt_held_out": len(kept) - len(free),
    }
    if not free:
        raise UserError(
            f"data: no pair of {data.path} is left for {name} ({_told(notes)}); hold out fewer "
            "rows, or give more pairs"
        )
    return Pairs(free, {k: n for k, n in notes.items() if n or k == "rows"})


def _told(notes: dict[str, int]) -> str:
    return ", ".join(f"{k} {n}" for k, n in notes.items())


def _read(table: Table, rows: Sequence[int], columns: PairSettings) -> list[Pair]:
    return [_pair({k: v[i] for k, v in table.items()}, row, columns) for i, row in enumerate(rows)]


def _pair(values: dict[str, Any], row: int, columns: PairSettings) -> Pair:
    chosen = text_in(values[columns.chosen], row, columns.chosen)
    rejected = text_in(values[columns.rejected], row, columns.rejected)
    if columns.prompt is None:
        prompt = _beginning(chosen, rejected)
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    else:
        given = values[columns.prompt]
        prompt = text_in(given, row, columns.prompt) + ("" if isinstance(given, str) else "\n")
    margin = 0.0 if columns.margin is None else _number(values[columns.margin], row, columns.margin)
    return Pair(prompt, chosen, rejected, margin, row)


def _beginning(a: str, b: str) -> str:
    """What both texts begin with, to the end of a word."""
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    same = a[:n]
    if len(same) < max(len(a), len(b)) and not same[-1:].isspace():
        same = same[: max(same.rfind(" "), same.rfind("\n")) + 1]
    return same


def text_in(value: Any, row: int, column: str) -> str:
    """Text, or chat messages as text. Raises UserError naming row and column."""
    messages = isinstance(value, list) and value and all(isinstance(m, dict) for m in value)
    if not isinstance(value, str) and not messages:
        shown = json.dumps(value, default=str, ensure_ascii=False)[:60]
        raise UserError(
            f"data: row {row}, column {column!r} holds {shown}, expected text or a list of chat "
            "messages"
        )
    return utf8_text(text_of(value), row, column)


def _number(value: Any, row: int, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"data: row {row}, column {column!r} holds {value!r}, expected a number")
    return float(value)
