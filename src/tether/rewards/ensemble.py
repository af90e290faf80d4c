"""Several learned rewards as one, which costs where they disagree.

    score = mean_k s_k - coef * std_k s_k        std over the K members (divided by K)

What the policy finds by gaming one member, the others mostly do not share: their disagreement marks
completions on which no member was trained.

Source: Coste et al. 2023, arXiv 2310.02743 (there the variance is penalised, or the least member
counts); the standard deviation keeps the unit of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tether.config.errors import UserError
from tether.models.classifier_loading import folder_of
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward


def penalised(members: Sequence[Sequence[float]], coef: float) -> tuple[list[float], list[float]]:
    """[K][n] scores -> n penalised means, n standard deviations."""
    means, spreads = [], []
    for scores in zip(*members, strict=True):
        mean = math.fsum(scores) / len(scores)
        spread = math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / len(scores))
        means.append(mean - coef * spread)
        spreads.append(spread)
    return means, spreads


@dataclass
class EnsembleReward(Reward):
    """Mean of several learned rewards minus `coef` times their standard deviation."""

    paths: list[str] = field(default_factory=list)
    """Folders or hub ids of the members, e.g. of runs with several seeds."""
    coef: float = 0.5
    """Of the disagreement; 0 = the plain mean."""
    label: str | int | None = None
    """Positive label of classifiers, as for a single one; default: the last one."""
    output: Literal["auto", "probability", "logit"] = "auto"
    """As for a single classifier."""
    normalise: str | None = None
    """As for a single classifier, each member by its own numbers: raw scores of two reward models
    have no common zero and unit."""
    reads: Literal["completion", "prompt_and_completion"] = "prompt_and_completion"
    """What is scored."""
    batch_size: int = 64
    """Texts in one forward pass."""
    max_tokens: int | None = None
    """Longer texts keep their end. Default: each member's own limit."""
    device: str = "auto"
    """auto is the first accelerator, else cpu."""
    dtype: Literal["auto", "bfloat16", "float32", "float16"] = "auto"
    """Of the weights; auto is bfloat16 where the device has it, else float32."""

    def __post_init__(self) -> None:
        self._members = [
            ClassifierReward(
                path=path,
                label=self.label,
                output=self.output,
                normalise=self.normalise,
                reads=self.reads,
                batch_size=self.batch_size,
                max_tokens=self.max_tokens,
                device=self.device,
                dtype=self.dtype,
            )
            for path in self.paths
        ]

    @classmethod
    def of(cls, members: Sequence[ClassifierReward], **settings: Any) -> EnsembleReward:
        """Around members that are there already."""
        out = cls(paths=[m.path for m in members], **settings)
        out._members = list(members)
        return out

    @property
    def version(self) -> str:
        return ", ".join(m.version for m in self._members)

    @property
    def told(self) -> str:
        return "; ".join(t for t in (m.told for m in self._members) if t)

    def check(self) -> None:
        if len(self.paths) < 2:
            raise UserError(
                f"an ensemble reward needs two or more `paths`, not {len(self.paths)}; for one "
                "model use the reward classifier"
            )
        if len({Path(folder_of(p)).expanduser().resolve() for p in self.paths}) < len(self.paths):
            raise UserError("ensemble reward: a path stands twice; a member cannot disagree with "
                            "itself")  # fmt: skip
        if not math.isfinite(self.coef) or self.coef < 0:
            raise UserError(f"ensemble reward: coef is {self.coef}; use 0 or more")
        for member in self._members:
            member.check()

    def prepare(self) -> None:
        for member in self._members:
            member.prepare()
        kinds = {m.is_raw for m in self._members}
        if len(kinds) > 1:
            raise UserError(
                "ensemble reward: some members give probabilities and others raw scores; set "
                "output: logit"
            )

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        scores = [[float(x) for x in member(batch)] for member in self._members]
        values, spread = penalised(scores, self.coef)
        if spread:
            batch.log_metric("disagreement", math.fsum(spread) / len(spread))
            batch.log_extra("disagreement", list(spread))
        return values
