"""Data settings -> tasks: columns checked, rows held out, prompts encoded and fitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tether.config.errors import UserError
from tether.config.nearest import nearest
from tether.config.run import DataSettings, SamplingSettings
from tether.distributed.seeds import generator
from tether.models.tokenizing import decode, encode_answers, encode_prompt
from tether.rewards.batch import ARGUMENTS, Prompt, text_of
from tether.tasks.prompts import Frame, bare_ids, cut, frame, shown, specials
from tether.tasks.reading import Table, read, size
from tether.tasks.task import Task


def check_columns(settings: DataSettings, extra: Iterable[str] = ()) -> list[str]:
    """Columns of the training split, after checking that every named one is there (B34).

    Needs no tokenizer and no model: call it before anything is loaded. `extra`: columns that
    rewards need. Raises UserError with the nearest name.
    """
    table = read(settings, settings.split)
    if not size(table):
        raise UserError(f"data.path {settings.path} (split {settings.split!r}) has no rows")
    _check(table, settings, settings.split, extra)
    return list(table)


def _check(
    table: Table,
    settings: DataSettings,
    split: str,
    extra: Iterable[str] = (),
    columns: Mapping[str, str | None] | None = None,
) -> None:
    wanted: list[tuple[str, str | None]] = [("data.text", settings.text)]
    if not settings.text:
        wanted = [("data.prompt", settings.prompt), ("data.reference", settings.reference)]
    wanted.append(("data.label", settings.label))
    if columns is not None:
        wanted = list(columns.items())
    named = [(k, v) for k, v in wanted if v is not None]
    for key, column in [*named, *(("a reward", x) for x in extra)]:
        if column not in table:
            close = nearest(column, list(table))
            hint = f"did you mean {close!r}?" if close else f"there are {list(table)}"
            raise UserError(
                f"no column {column!r} in the split {split!r} of {settings.path}, which {key} "
                f"names; {hint}"
            )
    for column in table if columns is None else ():
        if column in ARGUMENTS:
            raise UserError(
                f"the column {column!r} of {settings.path} has the name of a reward function's "
                "own argument; rename it"
            )


def _take(table: Table, rows: Sequence[int]) -> Table:
    return {k: [v[i] for i in rows] for k, v in table.items()}


def splits(
    settings: DataSettings,
    caps: Mapping[str, int | None] | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> dict[str, tuple[Table, list[int]]]:
    """`train`, `validation`, `test` -> rows and their numbers (from 1) in their source.

    Each source is shuffled by `settings.seed`; from the training source test rows, then validation
    rows are held out where no split of their own is named; `settings.limit` then cuts the training
    rows, `caps` any split. No row is in two splits. columns: setting -> column that must be there,
    instead of those that `settings` names. Raises UserError.
    """
    table = read(settings, settings.split)
    n = size(table)
    if not n:
        raise UserError(f"data.path {settings.path} (split {settings.split!r}) has no rows")
    _check(table, settings, settings.split, columns=columns)
    order = torch.randperm(n, generator=generator("split", settings.seed)).tolist()
    held = {
        "test": settings.test_rows if settings.test is None else 0,
        "validation": settings.validation_rows if settings.validation is None else 0,
    }
    if sum(held.values()) >= n:
        raise UserError(
            f"data: {sum(held.values())} rows are to be held out but {settings.path} has {n}; "
            "lower data.validation_rows or data.test_rows, or name splits"
        )
    found: dict[str, tuple[Table, list[int]]] = {}
    for name, count in held.items():
        rows, order = order[:count], order[count:]
        own = getattr(settings, name)
        if count:
            found[name] = (table, rows)
        elif own is not None:
            other = read(settings, own)
            if not size(other):
                raise UserError(f"data.{name}: {own!r} has no rows")
            _check(other, settings, own, columns=columns)
            g = generator("split", settings.seed)
            found[name] = (other, torch.randperm(size(other), generator=g).tolist())
    found["train"] = (table, order[: settings.limit])
    out = {}
    for name, (source, rows) in found.items():
        rows = rows[: (caps or {}).get(name)]
        out[name] = (_take(source, rows), [i + 1 for i in rows])
    return out


def load_task(
    settings: DataSettings,
    tokenizer: Any,
    sampling: SamplingSettings,
    seed: int | None = None,
    *,
    max_positions: int | None = None,
    seq2seq: bool = False,
    encoder_positions: int | None = None,
    caps: Mapping[str, int | None] | None = None,
) -> dict[str, Task | None]:
    """`train`, `validation` and `test` tasks (the last two None where there are no rows for them).

    seed: of the shuffle, default `settings.seed` (the same for every run of a study).
    max_positions: of the model; prompt + new tokens must fit (B32). seq2seq: the prompt has
    `encoder_positions` of its own, and the completion the rest of the decoder's `max_positions`.
    caps: split -> most rows.
    Raises UserError.
    """
    if seed is not None:
        settings = replace(settings, seed=seed)
    limit = _limit(settings, sampling, max_positions, seq2seq, encoder_positions)
    out: dict[str, Task | None] = {"train": None, "validation": None, "test": None}
    for name, (table, rows) in splits(settings, caps).items():
        out[name] = make_task(table, rows, name, settings, tokenizer, limit, max_positions, seq2seq)
    seen = {_key(p) for p in out["train"].raw_prompts} if out["train"] else set()
    for name in ("validation", "test"):
        task = out[name]
        if task is not None:
            keys = [_key(p) for p in task.raw_prompts]
            task.notes["prompts_also_in_train"] = sum(k in seen for k in keys)
            if name == "test" and out["validation"] is not None:
                other = {_key(p) for p in out["validation"].raw_prompts}
                task.notes["prompts_also_in_validation"] = sum(k in other for k in keys)
    return out


def _key(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)


def _limit(
    settings: DataSettings,
    sampling: SamplingSettings,
    max_positions: int | None,
    seq2seq: bool = False,
    encoder_positions: int | None = None,
) -> int | None:
    """Most tokens of a prompt. Raises UserError where nothing or too little is left for it."""
    left = None if max_positions is None else max_positions - sampling.max_new_tokens
    if left is not None and left < 1:
        if seq2seq:
            raise UserError(
                f"sampling.max_new_tokens {sampling.max_new_tokens} does not fit the decoder's "
                f"{max_positions} positions, the first of which is its start; use at most "
                f"{(max_positions or 1) - 1}"
            )
        raise UserError(
            f"sampling.max_new_tokens {sampling.max_new_tokens} leaves no room for a prompt in the "
            f"model's {max_positions} positions; use at most {(max_positions or 1) - 1}"
        )
    if seq2seq:
        left = encoder_positions
    wanted = settings.prompt_tokens if settings.text else settings.max_prompt_tokens
    key = "data.prompt_tokens" if settings.text else "data.max_prompt_tokens"
    if wanted is not None and wanted < 1:
        raise UserError(f"{key} is {wanted}; it must be at least 1")
    if left is not None and wanted is not None and wanted > left:
        if seq2seq:
            raise UserError(f"{key} {wanted} is more than the encoder's {left} positions")
        raise UserError(
            f"{key} {wanted} + sampling.max_new_tokens {sampling.max_new_tokens} is more than the "
            f"model's {max_positions} positions; use at most {left}"
        )
    return wanted if wanted is not None else left


def make_task(
    table: Table,
    rows: list[int],
    name: str,
    settings: DataSettings,
    tokenizer: Any,
    limit: int | None,
    max_positions: int | None = None,
    seq2seq: bool = False,
) -> Task:
    """One split as a task. `rows`: numbers of the rows in their source, for messages."""
    notes: dict[str, int] = {"rows": len(rows)}
    if settings.text is not None:
        made = _from_text(table, rows, settings, tokenizer, notes, seq2seq)
    else:
        made = _from_prompts(table, rows, settings, tokenizer, limit, notes, seq2seq)
    keep, prompts, raw, references = made
    if references is not None and max_positions is not None:
        for i, (p, r) in enumerate(zip(prompts, references, strict=True)):
            room = max_positions - (1 if seq2seq else len(p))
            if len(r) > room:
                references[i] = r[:room]
                notes["references_cut"] = notes.get("references_cut", 0) + 1
    twice = sum(n - 1 for n in Counter(map(_key, raw)).values())
    if twice:
        notes["prompts_repeated"] = twice
    columns = _take(table, keep)
    return Task(prompts, references, columns, raw, [rows[i] for i in keep], notes, name)


Made = tuple[list[int], list[list[int]], list[Prompt], list[list[int]] | None]
"""kept rows, prompt ids, raw prompts, reference ids"""


def _end(tokenizer: Any) -> list[int]:
    if tokenizer.eos_token_id is None:
        raise UserError(
            "the tokenizer has no EOS token, which ends human completions; set one in it"
        )
    return [int(tokenizer.eos_token_id)]


def _text(value: Any, row: int, column: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"data: row {row}, column {column!r} holds {value!r}, expected text")
    return _utf8(value, row, column)


def _from_text(
    table: Table,
    rows: list[int],
    settings: DataSettings,
    tokenizer: Any,
    notes: dict[str, int],
    seq2seq: bool = False,
) -> Made:
    """The first `prompt_tokens` tokens of a text are the prompt, what follows is the reference."""
    column = settings.text or ""
    texts = [_text(x, r, column) for x, r in zip(table[column], rows, strict=True)]
    head, tail = specials(tokenizer)
    first = head if seq2seq else []  # the decoder's text has a beginning of its own
    n, end = settings.prompt_tokens, _end(tokenizer)
    keep, prompts, raw, references = [], [], [], []
    for i, ids in enumerate(bare_ids(tokenizer, texts)):
        if len(ids) <= n:
            notes["dropped_short"] = notes.get("dropped_short", 0) + 1
            continue
        keep.append(i)
        prompts.append(head + ids[:n] + tail)
        raw.append(decode(tokenizer, ids[:n]))
        references.append(first + ids[n:] + end)
    return keep, prompts, list(raw), references


def _from_prompts(
    table: Table,
    rows: list[int],
    settings: DataSettings,
    tokenizer: Any,
    limit: int | None,
    notes: dict[str, int],
    seq2seq: bool = False,
) -> Made:
    keep: list[int] = []
    prompts: list[list[int]] = []
    raw: list[Prompt] = []
    ends: tuple[list[int], list[int]] | None = None
    for i, (value, row) in enumerate(zip(table[settings.prompt], rows, strict=True)):
        prompt = _prompt(value, row, settings.prompt)
        ids = encode_prompt(tokenizer, prompt)
        if limit is not None and len(ids) > limit:
            if settings.too_long == "error":
                raise UserError(
                    f"data: the prompt of row {row} has {len(ids)} tokens, the limit is {limit}; "
                    "set data.too_long to drop, truncate_left or truncate_right"
                )
            if settings.too_long == "drop":
                notes["dropped_too_long"] = notes.get("dropped_too_long", 0) + 1
                continue
            ends = ends or specials(tokenizer)
            ids = _fit(
                tokenizer, prompt, ids, limit, frame(tokenizer, prompt, ids, ends), settings, row
            )
            prompt = shown(tokenizer, prompt, ids)
            notes["cut_too_long"] = notes.get("cut_too_long", 0) + 1
        keep.append(i)
        prompts.append(ids)
        raw.append(prompt)
    references = None
    if settings.reference is not None:
        values = table[settings.reference]
        texts = [_reference(values[i], rows[i], settings.reference) for i in keep]
        end = _end(tokenizer)
        if seq2seq:
            references = encode_answers(tokenizer, texts)
        else:
            references = [ids + end for ids in bare_ids(tokenizer, texts)]
    return keep, prompts, raw, references


def _fit(
    tokenizer: Any, prompt: Prompt, ids: list[int], limit: int, kept: Frame,
    settings: DataSettings, row: int,
) -> list[int]:  # fmt: skip
    out = cut(ids, limit, kept, settings.too_long)
    if out is None:
        raise UserError(
            f"data: row {row}: the chat template alone has {kept.head + kept.tail} tokens, the "
            f"limit is {limit}; raise data.max_prompt_tokens or drop long prompts"
        )
    return out


def _prompt(value: Any, row: int, column: str) -> Prompt:
    """Text or messages as they are. Raises UserError naming the row."""
    if isinstance(value, str):
        return _utf8(value, row, column)
    if isinstance(value, list) and value and all(isinstance(m, dict) for m in value):
        if all("role" in m and "content" in m for m in value):
            # parquet fills fields that only some messages have with None
            return [{k: v for k, v in m.items() if v is not None} for m in value]
        raise UserError(
            f"data: row {row}, column {column!r}: a chat message needs 'role' and 'content'"
        )
    raise UserError(
        f"data: row {row}, column {column!r} holds {repr(value)[:60]}, expected text or a list of "
        "chat messages"
    )


def _utf8(text: str, row: int, column: str) -> str:
    """Raises UserError for half of a surrogate pair, which no tokenizer can read."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise UserError(
            f"data: row {row}, column {column!r}: character {e.start + 1} is half of a surrogate "
            "pair (text cut in the middle of a character?); mend the file"
        ) from e
    return text


def _reference(value: Any, row: int, column: str) -> str:
    """The human completion: text, the contents of messages, or the first of several references."""
    if isinstance(value, list) and value:
        value = text_of(value) if isinstance(value[0], dict) else value[0]
    if not isinstance(value, str) or not value:
        raise UserError(f"data: row {row}, column {column!r}: the human completion is missing")
    return _utf8(value, row, column)
