"""Texts that tethers bring along (`Tether.own_data`): checked before a model is loaded, encoded
once, drawn by counter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tether.config.errors import UserError
from tether.config.run import SamplingSettings
from tether.distributed.total import rank, world_size
from tether.models.language_model import LanguageModel
from tether.tasks.loading import check_columns, load_task
from tether.tethers.base import OwnData, Tether
from tether.types import Draw, Sequences


def check_own_texts(tethers: Mapping[str, Tether]) -> None:
    """Raises UserError for data that are not there, or that have no human completions."""
    for name, t in tethers.items():
        if (own := t.own_data()) is None:
            continue
        where = f"tethers.{name}: "
        if not own.data.path:
            raise UserError(f"{where}data.path is empty: give a hub id, a folder or a file")
        if own.data.text is None and own.data.reference is None:
            raise UserError(
                f"{where}the text that trains is missing: name its column in data.text (whole"
                " texts) or data.reference (completions of data.prompt)"
            )
        try:
            check_columns(own.data)
        except UserError as e:
            raise UserError(f"{where}{e}") from e


def load_own_texts(lm: LanguageModel, tethers: Mapping[str, Tether], seed: int) -> dict[str, Draw]:
    """Tether -> its draw. Raises UserError."""
    return {
        name: _draw(lm, own, seed, name)
        for name, t in tethers.items()
        if (own := t.own_data()) is not None
    }


def _draw(lm: LanguageModel, own: OwnData, seed: int, name: str) -> Draw:
    if own.rows % world_size():
        raise UserError(
            f"tethers.{name}: {own.rows} rows do not divide over {world_size()} processes"
        )
    # every row trains: nothing of these data is held out for an evaluation
    data = replace(own.data, validation_rows=0, test_rows=0, validation=None, test=None)
    sampling = SamplingSettings(max_new_tokens=own.tokens)
    try:
        task = load_task(data, lm.tokenizer, sampling, max_positions=lm.max_positions)["train"]
    except UserError as e:
        raise UserError(f"tethers.{name}: {e}") from e
    if task is None:
        raise UserError(f"tethers.{name}: its data have no rows left")
    task.name = f"own text of {name}"  # an order of its own, unlike the prompts'

    def draw(position: int) -> Sequences:
        index = task.draw(position, own.rows, seed, rank(), world_size())
        return task.batch(
            index, side=lm.padding_side, pad=lm.pad, references=True, limit=own.tokens
        )

    return draw
