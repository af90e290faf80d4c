"""Data settings -> tasks: columns checked, rows held out, prompts encoded and fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from tether.config.errors import UserError
from tether.config.run import DataSettings, SamplingSettings
from tether.distributed.seeds import generator
from tether.rewards.batch import Prompt
from tether.tasks.encode import check_texts, identity, make_task
from tether.tasks.reading import Table
from tether.tasks.source import Rows, Source, source_of
from tether.tasks.task import Task


def check_columns(settings: DataSettings, extra: Iterable[str] = ()) -> list[str]:
    """Columns of the training split, after checking that every named one is there (B34).

    Needs no tokenizer and no model: call it before anything is loaded. `extra`: columns that
    rewards need. Raises UserError with the nearest name.
    """
    return source_of(settings).columns(extra)


def splits(
    settings: DataSettings,
    caps: Mapping[str, int | None] | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> dict[str, tuple[Table, list[int]]]:
    """`train`, `validation`, `test` -> rows and their numbers (from 1) in their source.

    Each source is shuffled by `settings.seed`; from the training source test rows, then validation
    rows are held out where no split of their own is named; then a task leaves out training rows
    that it does not train on, `settings.limit` cuts the training rows, and `caps` any split. No row
    is in two splits. columns: setting -> column that must be there, instead of those that
    `settings` names. Raises UserError.
    """
    found = _divided(source_of(settings, columns), caps)
    return {name: (rows.table, rows.numbers) for name, rows in found.items()}


def noted(settings: DataSettings, caps: Mapping[str, int | None] | None = None) -> dict[str, Rows]:
    """As `splits`, with what a run's record notes of each: counts, and for a task `sha256`, the
    hash of the split's prompts and references before it is cut. Raises UserError."""
    return _divided(source_of(settings), caps)


def check_rows(
    settings: DataSettings,
    further: Callable[[str, Table, list[int]], None] = lambda split, table, rows: None,
) -> None:
    """That every row of every split can be read, before a tokenizer or a model is there.

    further: (split, rows, their numbers in the source) -> what else is asked of them. Rows beyond
    `data.limit` are not asked for anything. Raises UserError naming the row, and the split or file
    where it is none of the training source.
    """
    source = source_of(settings)
    for name, rows in _divided(source, None).items():
        try:
            check_texts(rows.table, rows.numbers, source.settings)
            further(name, rows.table, rows.numbers)
        except UserError as e:
            if name == "train" or (own := source.own(name)) is None:
                raise
            raise UserError(f"{e} (data.{name}: {own})") from e


def _divided(source: Source, caps: Mapping[str, int | None] | None) -> dict[str, Rows]:
    settings = source.settings
    rows = source.read("train")
    n = len(rows)
    order = torch.randperm(n, generator=generator("split", settings.seed)).tolist()
    own = {name: source.own(name) for name in ("test", "validation")}
    held = {
        "test": settings.test_rows if own["test"] is None else 0,
        "validation": settings.validation_rows if own["validation"] is None else 0,
    }
    if sum(held.values()) >= n:
        raise UserError(
            f"data: {sum(held.values())} rows are to be held out but {settings.path} has {n}; "
            "lower data.validation_rows or data.test_rows, or name splits"
        )
    found: dict[str, Rows] = {}
    for name, count in held.items():
        first, order = order[:count], order[count:]
        if count:
            found[name] = rows.take(first)
        elif own[name] is not None:
            other = source.read(name)
            g = generator("split", settings.seed)
            found[name] = other.take(torch.randperm(len(other), generator=g).tolist())
    found["train"] = source.used(rows.take(order))
    if rows.keys is not None:
        found = _apart(found)
    found["train"] = source.trained(found["train"]).cut(settings.limit)
    return {name: r.cut((caps or {}).get(name)) for name, r in found.items()}


def _apart(found: dict[str, Rows]) -> dict[str, Rows]:
    """Splits of which no two have a key in common: the test split stays whole, validation loses
    what is in it, training what is in either. Each is noted, with the hash of what is left."""
    keys = {name: set(r.keys or ()) for name, r in found.items()}
    all_rows = sum(map(len, found.values()))
    differ = len(set().union(*keys.values()))
    out = dict(found)
    for name, others in (("validation", ("test",)), ("train", ("test", "validation"))):
        for other in others:
            if name in out and other in out:
                out[name] = out[name].without(keys[other], f"removed_also_in_{other}")
    for name, r in out.items():
        if not len(r):
            raise UserError(
                f"data: no row of the {name} split is left: its {len(found[name])} rows are in "
                f"another split too. {_equal(all_rows, differ)}, case and white space aside; give "
                "rows that differ, or hold out fewer (data.validation_rows, data.test_rows)"
            )
        out[name] = replace(r, notes={**r.notes, "sha256": r.digest()})
    return out


def _equal(rows: int, differ: int) -> str:
    return f"All {rows} rows are equal" if differ == 1 else f"Of {rows} rows {differ} differ"


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
    source = source_of(settings)
    settings = source.settings
    limit = _limit(settings, sampling, max_positions, seq2seq, encoder_positions)
    out: dict[str, Task | None] = {"train": None, "validation": None, "test": None}
    for name, rows in _divided(source, caps).items():
        made = make_task(
            rows.table, rows.numbers, name, settings, tokenizer, limit, max_positions, seq2seq
        )
        made.notes |= rows.notes
        out[name] = made
    seen = {identity(p) for p in out["train"].raw_prompts} if out["train"] else set()
    for name in ("validation", "test"):
        task = out[name]
        if task is not None:
            keys = [identity(p) for p in task.raw_prompts]
            task.notes["prompts_also_in_train"] = sum(k in seen for k in keys)
            if name == "test" and out["validation"] is not None:
                other = {identity(p) for p in out["validation"].raw_prompts}
                task.notes["prompts_also_in_validation"] = sum(k in other for k in keys)
    return out


def prompts_given(
    settings: DataSettings, tokenizer: Any, table: Table, numbers: list[int]
) -> list[Prompt]:
    """Prompts of rows of `splits` as a model is given them: cut where `max_prompt_tokens` says so.
    Where that is open they are whole, since only a model knows what its positions leave.

    Raises UserError.
    """
    own = replace(source_of(settings).settings, reference=None)
    return make_task(table, numbers, "rows", own, tokenizer, own.max_prompt_tokens).raw_prompts


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
