"""Completions of several methods on the same prompts, from runs or JSONL files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.records import read_lines
from tether.rewards.batch import text_of

Pool = dict[str, dict[str, list["Completion"]]]
"""method -> prompt -> its completions: several where there are several seeds or samples."""


@dataclass(frozen=True)
class Completion:
    """One text of one method, with what metrics said of it."""

    prompt: str
    text: str
    scores: dict[str, float] = field(default_factory=dict)
    of_run: bool = False
    """From a run's samples: its scores are of rewards and judges, where more is better whatever the
    direction of the metric behind them."""
    unmasked: bool = False
    """From a masked policy as exported, without its mask; its run has texts under the mask too."""


def read_completions(words: Sequence[str]) -> Pool:
    """Read sources written `[METHOD=]PATH[@UPDATE]`.

    PATH is a run folder or its `samples.jsonl` (validation samples of one update, default the last;
    0 = the initial model; of a masked policy as exported), or a JSONL file with `prompt` and
    `completion`, and where wanted `method` and `scores` (metric -> number). Without METHOD it is
    the rows' `method`, the run's method, or the file's name. Sources of one method are put
    together.

    Raises:
        UserError: a file that is not there or not of this form, with the line; samples of several
            agents.
    """
    pool: Pool = {}
    for word in words:
        name, path, update = _parse(word)
        for method, completion in _read(path, name, update):
            prompts = pool.setdefault(method, {})
            prompts.setdefault(completion.prompt, []).append(completion)
    return pool


def shared_prompts(pool: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Prompts that every method has, in the order of the first method.

    Raises:
        UserError: fewer than 2 methods, or no such prompt.
    """
    if len(pool) < 2:
        raise UserError(
            f"a study compares at least 2 methods, not {', '.join(pool) or 'none'}: give "
            "METHOD=PATH for each"
        )
    first, *others = pool.values()
    found = [p for p in first if all(p in other for other in others)]
    if not found:
        counts = ", ".join(f"{m} has {len(p)}" for m, p in pool.items())
        raise UserError(f"no prompt is shared by all methods ({counts}): texts must be equal")
    return found


def _parse(word: str) -> tuple[str | None, Path, int | None]:
    name: str | None
    name, separator, text = word.partition("=")
    if not separator or "/" in name:
        name, text = None, word
    if name == "" or not text:
        raise UserError(f"'{word}' is not METHOD=PATH")
    update = None
    found = re.fullmatch(r"(.+)@(\d+)", text)
    if found and not Path(text).exists():
        text, update = found.group(1), int(found.group(2))
    path = Path(text)
    if path.is_dir():
        path = path / "samples.jsonl"
    if not path.is_file():
        raise UserError(f"there is no file '{path}' of completions")
    return name, path, update


def _read(path: Path, name: str | None, update: int | None) -> Iterator[tuple[str, Completion]]:
    rows = list(_rows(path))
    if not rows:
        raise UserError(f"{path} holds no completion")
    if _is_sample(rows[0][1]):
        yield from _samples(path, name or _method_of_run(path), update, rows)
        return
    if update is not None:
        raise UserError(f"{path} is not the samples of a run: it has no update {update}")
    for number, row in rows:
        yield str(name or row.get("method") or path.stem), _completion(row, f"{path}:{number}")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and rows. A run that still writes, or was killed, may end within a line."""
    before: dict[str, Any] = {}
    with open(path, "rb") as f:
        for number, raw in enumerate(f, 1):
            if not raw.strip():
                continue
            try:
                row = json.loads(raw.decode("utf-8"))
            except ValueError as e:
                if not raw.endswith(b"\n") and _is_sample(before):
                    return
                raise UserError(f"{path}:{number} is no JSON in UTF-8: {e}") from e
            if not isinstance(row, dict):
                raise UserError(f"{path}:{number} is not an object with prompt and completion")
            yield number, (before := row)


def _is_sample(row: Mapping[str, Any]) -> bool:
    """Of a run's `samples.jsonl`?"""
    return "update" in row and "row" in row


def _samples(
    path: Path, method: str, update: int | None, rows: Sequence[tuple[int, dict[str, Any]]]
) -> Iterator[tuple[str, Completion]]:
    """Validation samples of one update, as exported; after a weight event, the side after it."""
    mine = [
        (number, r)
        for number, r in rows
        if r.get("split", "validation") == "validation" and r.get("side") != "before"
    ]
    agents = sorted({str(r.get("agent", "")) for _, r in mine})
    if len(agents) > 1:
        raise UserError(
            f"{path} holds samples of {len(agents)} agents ({', '.join(agents)}), whose texts are "
            "not of one method: write the lines of one agent to a file and give METHOD=FILE"
        )
    # a masked policy is two policies, and what is reported of it is the exported one
    exported = [(n, r) for n, r in mine if r.get("policy", "exported") == "exported"]
    masked = len(exported) < len(mine)
    updates = sorted({int(r["update"]) for _, r in exported})
    if not updates:
        raise UserError(f"{path} has no validation samples of the policy as exported")
    if update is None:
        update = updates[-1]
    if update not in updates:
        have = ", ".join(map(str, updates))
        raise UserError(f"{path} has no validation samples of update {update}; it has: {have}")
    for number, row in exported:
        if int(row["update"]) == update:
            one = _completion(row, f"{path}:{number}")
            yield method, replace(one, of_run=True, unmasked=masked)


def _method_of_run(path: Path) -> str:
    record = path.parent / "record.jsonl"
    if record.is_file():
        start = next((x for x in read_lines(record) if x.get("kind") == "start"), {})
        if start.get("method"):
            return str(start["method"])
    return path.parent.resolve().name


def _completion(row: Mapping[str, Any], where: str) -> Completion:
    missing = next((k for k in ("prompt", "completion") if k not in row), None)
    if missing is not None:
        raise UserError(f"{where} has no '{missing}'; it has: {', '.join(row)}")
    scores: dict[str, float] = {}
    if _is_number(row.get("score")):
        scores["score"] = float(row["score"])
    for family in ("scores", "judges"):
        values = row.get(family) or {}
        if not isinstance(values, dict):
            raise UserError(f"{where}: '{family}' is not a mapping from metric to number")
        for name, value in values.items():
            if _is_number(value):
                # a judge may be called like a reward
                scores[f"{family}.{name}" if name in scores else str(name)] = float(value)
    prompt, text = (_shown(row[k], f"{where}: '{k}'") for k in ("prompt", "completion"))
    return Completion(prompt, text, scores)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any, where: str) -> str:
    """Text, or a chat as `role: content` lines; half a surrogate pair cannot be written to a
    file."""
    if isinstance(value, list) and all(map(_is_message, value)):
        value = "\n".join(f"{m.get('role', '')}: {text_of([m])}" for m in value)
    if not isinstance(value, str):
        raise UserError(
            f"{where} is {json.dumps(value)[:60]}, which raters cannot be shown: give text or a "
            "list of chat messages"
        )
    return value.encode("utf-8", "replace").decode()


def _is_message(value: object) -> bool:
    """A call of a tool has no content."""
    if not isinstance(value, dict):
        return False
    content = value.get("content")
    return (
        content is None
        or isinstance(content, str)
        or (isinstance(content, list) and all(isinstance(part, dict) for part in content))
    )
