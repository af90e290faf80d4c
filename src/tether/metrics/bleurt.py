"""BLEURT: a regression head on an encoder that reads reference and text together.

Source: Sellam et al. 2020, "BLEURT: Learning Robust Metrics for Text Generation". No checkpoint
comes with this library: `model` names one in transformers' format, such as the conversions of
BLEURT-base and BLEURT-large that the hub has (Elron/bleurt-base-512). Several references: the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored
from tether.metrics.sentence_pairs import PairModel, load_pair_model

_EXAMPLE = "a BLEURT checkpoint in transformers' format (Elron/bleurt-base-512), one output"


@dataclass
class Bleurt(Metric):
    """BLEURT by a checkpoint in transformers' format; an empty text is scored by it like any."""

    model: str = ""
    """Folder or hub id of the checkpoint."""
    batch_size: int = 64
    """Pairs in one forward pass."""
    device: str = "auto"
    """auto is the first accelerator, else cpu."""

    name: ClassVar[str] = "bleurt"
    package: ClassVar[str] = "transformers"
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    seconds_per_1000: ClassVar[float] = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._model: PairModel | None = None

    @property
    def version(self) -> str:
        self.prepare()
        assert self._model is not None
        return str(self._model.version)

    def check(self) -> None:
        if not self.model:
            raise UserError(f"bleurt needs `model`: the folder or hub id of {_EXAMPLE}")

    def prepare(self) -> None:
        if self._model is None:
            model = load_pair_model(self.name, self.model, self.device, _EXAMPLE)
            if len(model.labels) != 1:
                raise UserError(f"bleurt: {self.model} has {len(model.labels)} outputs, not one")
            self._model = model

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        self.prepare()
        assert self._model is not None
        pairs = [(reference, r.text) for r in rows for reference in r.references]
        values = iter(self._model.logits(pairs, self.batch_size)[:, 0].tolist())
        return [(max(next(values) for _ in r.references),) for r in rows]
