"""A tether holds the policy near home, by adding. Each contribution has a law of composition:

| seam | adds | composes by |
|---|---|---|
| `keeps`, `reads`, `sources` | weight sets it owns / looks at / where they start from | union |
| `reward` | numbers on the tokens | + |
| `allow` | what may be sampled | and; the house puts stop tokens back (see `decides_stops`) |
| `loss`, `own_data` + `own_text` + `own_loss` + `summary` | terms of the loss | + |
| `after` | moves between named weight sets | quiet moves first, then events, in order |
| `seen`, `report`, `meet` | memory of texts; numbers for the record; the model's stop tokens | - |

So any number of tethers compose. A tether sees tensors, counters and measurements; never the
trainer, and never a weight: it returns `Move`s and the house executes them, which is why one file
serves full weights, LoRA, bf16 with fp32 masters, and shards.

Rules: `keeps`, `reads`, `sources`, `reward`, `allow`, `recomputable`, `loss`, `own_data`,
`own_text`, `own_loss`, `summary`, `report` are pure. Memory (every attribute that is no field)
changes in `after` and `seen` only; what `after` decides depends on nothing but `clock` and
`measured`, so it is equal on all ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from tether.config.run import DataSettings, Source
from tether.tethers.triggers import Every
from tether.types import (
    Clock,
    Depth,
    Draw,
    Experience,
    LossOutput,
    Measured,
    Minibatch,
    Move,
    OwnText,
    Remembers,
    Scores,
    Total,
    Unit,
    WeightEvent,
)


@dataclass(frozen=True)
class OwnData:
    """Human texts of a tether's own."""

    data: DataSettings
    """Where they are; `reference` or `text` says what trains."""
    rows: int
    """Rows of one draw, all ranks together."""
    tokens: int
    """Longest completion; longer ones are cut."""


Place = Literal["reward", "sampling", "loss", "weights", "text"]
"""Where a tether acts."""


@dataclass
class Tether(Remembers):
    """Base of all tethers: does nothing. Source: the seams of tether itself."""

    acts_on: ClassVar[frozenset[Place]] = frozenset()
    """Where this tether acts. One that only acts where the algorithm does not listen (a KL reward
    with supervised training) would do nothing and is refused at start."""
    decides_stops: ClassVar[bool] = False
    """False: after `allow` the house makes the stop tokens legal again. True: what this tether says
    about stop tokens stands (minimum length)."""
    remembers_texts: ClassVar[bool] = False
    """True: `seen` keeps completions that this process wrote. Refused with an algorithm that
    samples nothing, and with several processes: a checkpoint holds the memory of one."""

    def keeps(self) -> tuple[str, ...]:
        """Weight sets that this tether owns and moves; nobody else may. They start as `initial`."""
        return ()

    def sources(self) -> Mapping[str, Source]:
        """Kept set -> model that it starts from instead of `initial`: folder or hub id, or a
        mapping with its `path` (`config.run.OF_REFERENCE`).

        Its vocabulary must be the policy's. A model of the policy's shape is a set like any other;
        one of another architecture can be read but not moved.
        """
        return {}

    def reads(self) -> Mapping[str, Depth]:
        """Weight sets that this tether looks at, and how closely."""
        return {}

    def meet(self, stops: tuple[int, ...]) -> None:
        """Called once before the run with the model's stop tokens, EOS first."""

    def check_names(self, names: Collection[str]) -> None:
        """Called once before the run with the names of the parameters that train. Raises UserError
        where a setting names one that is not there."""

    def check_vocabulary(self, size: int) -> None:
        """Called once before the run with the number of the model's logits. Raises UserError where
        a setting could not have an effect on so few."""

    def needs_samples(self) -> bool:
        """True: what this tether computes is right along sampled completions only, so that it is
        refused with an algorithm that trains on demonstrations."""
        return False

    def reward(self, experience: Experience) -> Tensor | None:
        """[B,T] reward to add, 0 outside `experience.mask`; `experience.rewards` holds the score
        only."""
        return None

    def allow(self, logits: Mapping[str, Tensor], position: Tensor) -> Tensor:
        """What may be sampled next. Called for tethers that read a set as `sampling`.

        Tensor operations only: nothing may look at a value on the host (captured graphs).
        Args:
            logits: set name -> [N,V].
            position: [N] completion position of the token to come, from 0.
        Returns:
            [N,V] bool, True = legal.
        """
        raise NotImplementedError

    def recomputable(self) -> bool:
        """True: `allow` gives the same sets again while an update lasts, since it reads no value of
        the policy and no set that moves within an update. Then the house need not store them."""
        return False

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput | None:
        """A further term on the algorithm's own microbatch, weighted by `minibatch.weights`.
        Metrics are recorded as `tether/<name>/<key>`."""
        return None

    def own_data(self) -> OwnData | None:
        """Texts that the house loads and encodes for `own_text`; asked once, before the run."""
        return None

    def own_text(self, clock: Clock, draw: Draw | None) -> OwnText | None:
        """Rows of this tether's own that the house scores beside each optimizer step.

        Args:
            clock: completed counts; `clock.minibatch` is the number of the step to come, from 0.
            draw: position -> rows of `own_data`; None where that is None.
        """
        return None

    def own_loss(self, text: OwnText, weights: Tensor, fresh: Scores) -> LossOutput:
        """The loss on (a microbatch of) `own_text`; weights [B,T] sum to 1 over its microbatches
        and ranks, and are 0 outside what trains. Metrics are recorded as `tether/<name>/<key>`."""
        raise NotImplementedError

    def summary(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        """What the record keeps of the metrics of `loss` and `own_loss`, once they are summed over
        the microbatches and ranks of an optimizer step: for numbers that do not add up. A function
        of `sums` and the settings alone: it may be called as late as the update ends."""
        return sums

    def seen(self, experience: Experience) -> None:
        """Called once for each scored rollout, for memory of what was written (replay)."""

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        """Numbers for the update's record line, as `tether/<name>/<key>`. Called on every rank."""
        return {}

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        """Called after each tick of each unit. Events may be returned for `update` only.

        Args:
            unit: what just ended.
            clock: completed counts, this tick included.
            measured: name -> (value, policy version), already over all ranks.
        """
        return ()

    def clocked(self) -> dict[str, Every]:
        """Every clock in this tether by the path of its setting, nested ones too, so that the house
        can refuse what a run is too short for and check at the end that each happened."""
        return dict(_clocks(self, ""))


def _clocks(part: Remembers, path: str) -> Iterator[tuple[str, Every]]:
    for name, inner in part._parts().items():
        here = f"{path}{path_of(part, name)}"
        if isinstance(inner, Every):
            yield here, inner
        yield from _clocks(inner, f"{here}.")


def path_of(part: Remembers, name: str) -> str:
    """A part's name as a setting: with its number only where the field holds several."""
    field = name.rsplit(".", 1)[0]
    return name if isinstance(getattr(part, field), tuple | list) else field


def triggers(part: Remembers, path: str = "") -> Iterator[tuple[str, Remembers]]:
    """Every trigger inside `part`, with its path in the configuration."""
    for name, inner in part._parts().items():
        here = f"{path}{path_of(part, name)}"
        if hasattr(inner, "fired"):
            yield here, inner
        yield from triggers(inner, f"{here}.")
