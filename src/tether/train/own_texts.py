"""Texts that tethers bring along (`Tether.own_data`): checked before a model is loaded, encoded
once, drawn by counter. And what every own text needs before it is scored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tether.config.errors import UserError
from tether.config.run import DataSettings, SamplingSettings
from tether.distributed.total import rank, world_size
from tether.models.language_model import LanguageModel
from tether.tasks.loading import check_columns, check_rows, load_task
from tether.tasks.task import Task
from tether.tethers.base import OwnData, Tether
from tether.types import OwnText, Sequences

_UNUSED = ("validation", "test", "validation_rows", "test_rows", "label")
"""Settings of data that say nothing about texts which only train."""


def check_own_texts(tethers: Mapping[str, Tether], run: DataSettings) -> None:
    """Raises UserError for data that are not there, that have no human completions or that the run
    holds out; and for a memory of texts that several processes would not share."""
    for name, t in tethers.items():
        processes = max(world_size(), int(os.environ.get("WORLD_SIZE", "1")))
        if t.remembers_texts and processes > 1:
            raise UserError(
                f"tethers.{name} remembers completions, and {processes} processes would remember"
                " different ones: run it in one process"
            )
        if (own := t.own_data()) is None:
            continue
        try:
            _check(own.data, run)
            check_columns(own.data)
            check_rows(rows_that_train(own.data, run))
        except UserError as e:
            raise UserError(f"tethers.{name}: {e}") from e


def _check(data: DataSettings, run: DataSettings) -> None:
    if not data.path:
        raise UserError("data.path is empty: give a hub id, a folder or a file")
    if data.text is None and data.reference is None and data.task is None:
        raise UserError(
            "the text that trains is missing: name its column in data.text (whole"
            " texts) or data.reference (completions of data.prompt)"
        )
    for key in _UNUSED:
        if getattr(data, key) != getattr(DataSettings(), key):
            raise UserError(f"data.{key} has no effect here, where all rows train: drop it")
    same = _source(data)[:3] == _source(run)[:3]
    for key in ("validation", "test"):
        held = getattr(run, key)
        if held and (_place(held) == _place(data.path) or (same and held == data.split)):
            raise UserError(f"its rows are those of the run's data.{key}, which must not train")


def _place(path: str) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else path


def _source(data: DataSettings) -> tuple[str | None, ...]:
    return _place(data.path), data.name, data.revision, data.split


def rows_that_train(data: DataSettings, run: DataSettings) -> DataSettings:
    """All rows, but for those that the run holds out of the same split of the same data: drift on
    human text would be measured on what was rehearsed."""
    if _source(data) != _source(run):
        return replace(data, validation_rows=0, test_rows=0)
    return replace(
        data,
        seed=run.seed,
        validation_rows=0 if run.validation else run.validation_rows,
        test_rows=0 if run.test else run.test_rows,
    )


@dataclass(frozen=True)
class OwnTexts:
    """The texts of one tether: a `Draw`."""

    lm: LanguageModel
    task: Task
    rows: int
    """Texts of one draw, all ranks together."""
    tokens: int
    seed: int

    def __call__(self, position: int) -> Sequences:
        index = self.task.draw(position, self.rows, self.seed, rank(), world_size())
        return self.task.batch(
            index, side=self.lm.padding_side, pad=self.lm.pad, references=True, limit=self.tokens
        )

    @property
    def repeats(self) -> bool:
        """One draw holds some text more than once, since there are too few."""
        return self.rows > len(self.task)

    def notes(self) -> dict[str, Any]:
        """For the record: what was read and left out, what trains, and how much of it at once."""
        return {**self.task.notes, "texts": len(self.task), "texts_a_draw": self.rows}


def load_own_texts(
    lm: LanguageModel, tethers: Mapping[str, Tether], run: DataSettings, seed: int
) -> dict[str, OwnTexts]:
    """Tether -> its draw. `run`: the data of the run itself. Raises UserError."""
    return {
        name: _draw(lm, own, run, seed, name)
        for name, t in tethers.items()
        if (own := t.own_data()) is not None
    }


def _draw(lm: LanguageModel, own: OwnData, run: DataSettings, seed: int, name: str) -> OwnTexts:
    if own.rows % world_size():
        raise UserError(
            f"tethers.{name}: {own.rows} rows do not divide over {world_size()} processes"
        )
    room = lm.max_positions
    if room is not None and own.tokens >= room:
        raise UserError(
            f"tethers.{name}.tokens {own.tokens} leaves no room for a prompt in the model's {room}"
            f" positions; use at most {room - 1}"
        )
    sampling = SamplingSettings(max_new_tokens=own.tokens)
    data = rows_that_train(own.data, run)
    try:
        task = load_task(
            data,
            lm.tokenizer,
            sampling,
            max_positions=lm.max_positions,
            seq2seq=lm.seq2seq,
            encoder_positions=lm.encoder_positions,
        )["train"]
    except UserError as e:
        raise UserError(f"tethers.{name}: {e}") from e
    if task is None:
        raise UserError(f"tethers.{name}: its data have no rows left")
    task.name = f"own text of {name}"  # an order of its own, unlike the prompts'
    return OwnTexts(lm, task, own.rows, own.tokens, seed)


def fitted(lm: LanguageModel, text: OwnText) -> OwnText:
    """On the model's device, padded as the model pads, however the tether kept it."""
    text = text.to(lm.device)
    s, right = text.sequences, lm.padding_side == "right"
    order = s.prompt_mask.int().argsort(dim=1, descending=right, stable=True)
    mask = s.prompt_mask.gather(1, order)
    fit = replace(
        s,
        prompt=torch.where(mask, s.prompt.gather(1, order), lm.pad),
        prompt_mask=mask,
        completion=torch.where(s.completion_mask, s.completion, lm.pad),
    )
    return replace(text, sequences=fit)
