"""Prompts of one split. The position in the data is a function of the update number: there is
nothing to save, and a resumed run draws what the uninterrupted one would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.distributed.seeds import generator
from tether.models.tokenizing import pad as padded
from tether.rewards.batch import Prompt
from tether.types import Sequences


@dataclass
class Task:
    """Rows as ids, and what they came from. Lists have one entry a row."""

    prompts: list[list[int]]
    """Ids of the prompts, special tokens and chat template included."""
    references: list[list[int]] | None = None
    """Ids of the human completions with the stop token at their end, or None."""
    columns: dict[str, list[Any]] = field(default_factory=dict)
    """Every column of the dataset."""
    raw_prompts: list[Prompt] = field(default_factory=list)
    """Text or chat messages: what rewards and samples show."""
    source: list[int] = field(default_factory=list)
    """Row number (from 1) in the file or split that the row was read from."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Counts of everything left out, cut or found twice; for a task also `sha256`, the hash of the
    split's prompts and references."""
    name: str = "train"

    def __post_init__(self) -> None:
        if not self.prompts:
            raise UserError(
                f"the {self.name} split has no rows left: {self.notes or 'it is empty'}"
            )
        self._order: dict[tuple[int, int], Tensor] = {}

    def __len__(self) -> int:
        return len(self.prompts)

    def draw(self, update: int, n: int, seed: int, rank: int = 0, world: int = 1) -> Tensor:
        """Rows of this rank in update number `update` (from 0): index [n / world].

        n prompts an update over all ranks. The data are passed in seeded permutations; a pass
        holds floor(size / n) updates, so no update holds a row twice and the ranks' rows differ
        (B28). With n > size the permutations follow each other without a gap.
        Raises UserError when n does not divide over the ranks.
        """
        if n < 1 or n % world:
            near = max(world, round(n / world) * world)
            raise UserError(f"batch.prompts {n} does not divide over {world} ranks; use {near}")
        size, each = len(self), n // world
        if n <= size:
            per_pass = size // n
            start = (update % per_pass) * n
            rows = self._permutation(seed, update // per_pass)[start : start + n]
        else:
            at = torch.arange(update * n, (update + 1) * n)
            passes = [
                self._permutation(seed, int(k))
                for k in range(int(at[0]) // size, int(at[-1]) // size + 1)
            ]
            rows = torch.cat(passes)[at - int(at[0]) // size * size]
        return rows[rank * each : (rank + 1) * each].clone()

    def _permutation(self, seed: int, number: int) -> Tensor:
        key = (seed, number)
        if key not in self._order:
            if len(self._order) > 8:
                self._order.clear()
            g = generator("task", self.name, seed, number)
            self._order[key] = torch.randperm(len(self), generator=g)
        return self._order[key]

    def batch(
        self,
        index: Tensor | Sequence[int],
        side: str,
        pad: int,
        references: bool = False,
        limit: int | None = None,
    ) -> Sequences:
        """Rows as padded sequences; completions are the references or have width 0.

        side: padding side of the prompts. limit: cuts references to this many tokens.
        Raises UserError when the task has no references.
        """
        rows = [int(i) for i in index]
        prompt, prompt_mask = padded([self.prompts[i] for i in rows], side, pad)
        if not references:
            empty = torch.zeros(len(rows), 0, dtype=torch.long)
            return Sequences(prompt, prompt_mask, empty, empty.bool())
        if self.references is None:
            raise UserError(
                f"the {self.name} split has no human completions: name their column in "
                "data.reference, or use data.text"
            )
        completion, mask = padded([self.references[i][:limit] for i in rows], "right", pad)
        return Sequences(prompt, prompt_mask, completion, mask)

    def column(self, name: str, index: Tensor | Sequence[int]) -> list[Any]:
        """Values of one column at some rows."""
        values = self.columns[name]
        return [values[int(i)] for i in index]
