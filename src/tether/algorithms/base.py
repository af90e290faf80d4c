"""An algorithm pulls the policy towards reward: what the numbers on the tokens are, and how the
policy follows them.

The house (`tether.train`) calls the seams in this order: `writer` writes `group_size` completions
per prompt, `advantages` turns the experience into targets, `update` runs epochs and minibatches;
for each optimizer step `prepare` sees the whole step and `loss` its microbatches. Every statistic
goes through `total` (a sum over ranks), and losses arrive weighted, so that pieces add.

Fields are settings and are assigned once; any other attribute is memory and is in the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from tether.config.errors import UserError
from tether.types import (
    Experience,
    Learner,
    LossOutput,
    Minibatch,
    Remembers,
    Scores,
    Targets,
    Total,
)


@dataclass
class Algorithm(Remembers):
    """Base of all algorithms. Source: the seams of tether itself."""

    lr: float = 1e-5
    """Learning rate of the policy, set anew from the algorithm at every update."""
    epochs: int = 1
    """Passes over the experience of one update."""
    minibatches: int = 1
    """Optimizer steps in one epoch (a count: it does not change with the batch)."""
    group_size: int = 1
    """Completions of each prompt in one update."""
    average: Literal["tokens", "sequences"] = "tokens"
    """How per-token losses become one number: mean over the tokens of the optimizer step, or mean
    over its sequences of their means."""
    writer: str = "policy"
    """Who writes the completions: `policy`, a set of weights that a tether keeps, or `data`."""
    greedy: bool = False
    """The writer takes the likeliest token instead of sampling."""

    needs_values: ClassVar[bool] = False
    """A critic is built and trained; `Scores.values` and `Scores.last_value` are computed."""
    needs_entropy: ClassVar[bool] = False
    """`Scores.entropy` is computed."""
    uses_rewards: ClassVar[bool] = True
    """False: rewards, and tethers that only add to them, would have no effect and are refused."""
    one_step: ClassVar[bool] = False
    """Takes one step an update, on the whole batch: `epochs` and `minibatches` are 1."""
    samples: ClassVar[bool] = True
    """False: nothing is sampled in training, so tethers that only narrow sampling are refused."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work. A subclass that overrides it calls it first."""
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"algorithm.{f.name} must be a finite number, not {value}")
        if self.lr < 0:
            raise UserError(f"algorithm.lr must be >= 0, not {self.lr:g}")
        for name in ("epochs", "minibatches", "group_size"):
            if getattr(self, name) < 1:
                raise UserError(f"algorithm.{name} must be at least 1, not {getattr(self, name)}")
        self._one_of("average", "tokens", "sequences")

    def _in_unit(self, *names: str) -> None:
        """Refuses settings outside [0, 1]."""
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"algorithm.{name} must be in [0, 1], not {getattr(self, name):g}")

    def _above_zero(self, *names: str) -> None:
        """Refuses settings that are not > 0; None means off."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value <= 0:
                off = " or null (off)" if _optional(type(self), name) else ""
                raise UserError(f"algorithm.{name} must be > 0{off}, not {value:g}")

    def _not_negative(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 0:
                raise UserError(f"algorithm.{name} must be >= 0, not {getattr(self, name):g}")

    def _one_of(self, name: str, *words: str) -> None:
        if getattr(self, name) not in words:
            listed = f"{', '.join(words[:-1])} or {words[-1]}"
            raise UserError(f"algorithm.{name} is {listed}, not '{getattr(self, name)}'")

    def _needs_siblings(self) -> None:
        """Refuses groups in which no completion differs from another."""
        if self.group_size < 2:
            raise UserError(
                "algorithm.group_size is 1: each completion is compared with the others of its"
                " prompt, so there would be nothing to learn; use 2 or more"
            )
        if self.greedy:
            raise UserError(
                "algorithm.greedy: the completions of a prompt would all be the same and their"
                " comparison empty; leave it false"
            )

    def at(self, update: int) -> Algorithm:
        """Which algorithm runs this update (counted from 0); phases override it."""
        return self

    def advantages(self, experience: Experience, total: Total) -> Targets:
        """Targets of every token. `Targets.mask` may be narrower than `Experience.mask`."""
        raise NotImplementedError

    def prepare(self, minibatch: Minibatch, total: Total) -> Minibatch:
        """Sees a whole optimizer step before it is cut into microbatches: normalise here."""
        return minibatch

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        """Weighted loss of one microbatch: sum of `minibatch.weights` times the per-token loss.

        Metrics are weighted sums as well, so that microbatches and ranks add.
        """
        raise NotImplementedError

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """After the gradient of an optimizer step, before it is taken: end the update here?

        Args:
            metrics: of `loss`, whole step, all ranks.
        """
        return False

    def update(self, learner: Learner, experience: Experience, targets: Targets) -> None:
        """Epochs of minibatches. An early stop takes no half step: its gradient is discarded, and
        the epoch that it breaks does not tick."""
        for epoch in range(self.epochs):
            for minibatch in learner.minibatches(self.minibatches, experience, targets, epoch):
                if self.stop(learner.accumulate(minibatch)):
                    learner.discard()
                    return
                learner.step()
            learner.epoch_done()


def _optional(cls: type, name: str) -> bool:
    return any(f.name == name and "None" in str(f.type) for f in fields(cls))
