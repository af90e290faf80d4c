"""An algorithm pulls the policy towards reward: what the numbers on the tokens are, and how the
policy follows them.

The house (`tether.train`) calls the seams in this order: `writer` writes `group_size` completions
per prompt, `advantages` turns the experience into targets, `update` runs epochs and minibatches;
for each optimizer step `prepare` sees the whole step and `loss` its microbatches. Every statistic
goes through `total` (a sum over ranks), and losses arrive weighted, so that pieces add.

Fields are settings and are assigned once; any other attribute is memory and is in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    samples: ClassVar[bool] = True
    """False: nothing is sampled in training, so tethers that only narrow sampling are refused."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work. A subclass that overrides it calls it first."""
        if self.lr < 0:
            raise UserError(f"algorithm.lr must be >= 0, not {self.lr:g}")
        for name in ("epochs", "minibatches", "group_size"):
            if getattr(self, name) < 1:
                raise UserError(f"algorithm.{name} must be at least 1, not {getattr(self, name)}")
        if self.average not in ("tokens", "sequences"):
            raise UserError(f"algorithm.average is tokens or sequences, not '{self.average}'")

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

    def stop(self, metrics: dict[str, float]) -> bool:
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
