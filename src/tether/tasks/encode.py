"""Raw rows of one split -> a task: prompts and references as ids that fit the model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tether.config.errors import UserError
from tether.config.run import DataSettings
from tether.models.tokenizing import decode, encode_answers, encode_prompt
from tether.rewards.batch import Prompt, text_of
from tether.tasks.prompts import Frame, bare_ids, cut, frame, shown, specials
from tether.tasks.reading import Table, utf8, utf8_text
from tether.tasks.task import Task


def take(table: Table, rows: Sequence[int]) -> Table:
    """Some rows of a table, by position."""
    return {k: [v[i] for i in rows] for k, v in table.items()}


def identity(prompt: Prompt) -> str:
    """What makes two prompts the same."""
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)


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
    notes: dict[str, Any] = {"rows": len(rows)}
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
    twice = sum(n - 1 for n in Counter(map(identity, raw)).values())
    if twice:
        notes["prompts_repeated"] = twice
    columns = take(table, keep)
    return Task(prompts, references, columns, raw, [rows[i] for i in keep], notes, name)


def check_texts(table: Table, rows: Sequence[int], settings: DataSettings) -> None:
    """What `make_task` asks of the values, without a tokenizer. Raises UserError naming the row."""
    if settings.text is not None:
        for value, row in zip(table[settings.text], rows, strict=True):
            _text(value, row, settings.text)
        return
    for value, row in zip(table[settings.prompt], rows, strict=True):
        _prompt(value, row, settings.prompt)
    if settings.reference is not None:
        for value, row in zip(table[settings.reference], rows, strict=True):
            _reference(value, row, settings.reference)


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
    return utf8_text(value, row, column)


def _from_text(
    table: Table,
    rows: list[int],
    settings: DataSettings,
    tokenizer: Any,
    notes: dict[str, Any],
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
    notes: dict[str, Any],
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
        return utf8_text(value, row, column)
    if isinstance(value, list) and value and all(isinstance(m, dict) for m in value):
        utf8(value, row, column)
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


def _reference(value: Any, row: int, column: str) -> str:
    """The human completion: text, the contents of messages, or the first of several references."""
    if isinstance(value, list) and value:
        value = text_of(value) if isinstance(value[0], dict) else value[0]
    if not isinstance(value, str) or not value:
        raise UserError(f"data: row {row}, column {column!r}: the human completion is missing")
    return utf8_text(value, row, column)
