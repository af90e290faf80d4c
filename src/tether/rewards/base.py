"""The seam of a reward: a batch of completions in, one number or list of numbers a sample out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from tether.rewards.batch import RewardBatch


@dataclass
class Reward:
    """Base of every reward. A subclass is a dataclass (fields = settings) with `__call__`.

    `__call__` returns n values for n samples: a number, None (this reward does not apply to the
    sample), or one number for each token of `completion_ids`. Called from several threads.
    """

    _: KW_ONLY
    weight: float = 1.0
    """Factor in the sum of all rewards; logged scores are unweighted. 0 = only logged."""
    missing: Literal["error", "drop"] = "error"
    """A sample for which no reward gives a finite number: stop with a message, or leave the sample
    out of the update (masked and counted, never scored 0)."""

    wraps: ClassVar[bool] = False
    """True where user code runs, whose exceptions are reported with the sample."""

    @property
    def source(self) -> str:
        """What an error message calls this reward's code."""
        return type(self).__name__

    @property
    def version(self) -> str:
        """What decides its numbers beside its settings, such as the hash of a model's weights.
        Empty where nothing does. May load what it names."""
        return ""

    @property
    def told(self) -> str:
        """What a run says of it when it starts, once it is prepared; empty where nothing is."""
        return ""

    @property
    def needs_prompts(self) -> bool:
        """Whether it reads the prompts, as it is set; a run always has them, a metric may not."""
        return getattr(self, "reads", None) != "completion"

    @property
    def is_async(self) -> bool:
        """True where `__call__` returns an awaitable."""
        return False

    def needs(self) -> tuple[str, ...]:
        """Dataset columns that must exist; checked before any model is loaded."""
        return ()

    def lacks(self, row: Mapping[str, Any]) -> str:
        """What is wrong with a row's columns (those of `needs`), said of the row; empty = nothing.
        Asked of every row of the data before any model is loaded."""
        return ""

    def check(self) -> None:
        """Raise UserError for what can be known to fail before anything expensive starts."""

    def prepare(self) -> None:
        """Load what `__call__` needs; called once before the first batch."""

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __call__")
