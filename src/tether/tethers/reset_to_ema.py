"""Reset to the average only: the policy falls back to its running average, which stays.

    ema <- d ema + (1 - d) policy      whenever `average` fires
    policy <- ema                      whenever `reset` fires, between two updates

Elastic Reset without its second half: the average is never sent back to the initial weights, so
drift adds up over the resets. It keeps its own `ema`.

Source: ablation of Noukhovitch et al. 2023, arXiv 2312.07551 (`reset_ema: False` in
mnoukhov/RL4LMs, branch `paper`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tether.tethers.elastic_reset import ElasticReset
from tether.types import Move


@dataclass
class ResetToEMA(ElasticReset):
    """Policy to its average, which stays. Source: ablation of arXiv 2312.07551."""

    kind: ClassVar[str] = "reset_to_ema"

    def moves(self) -> tuple[Move, ...]:
        """What a reset does: all but the average's way home."""
        return super().moves()[:-1]
