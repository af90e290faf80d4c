"""What travels between the layers.

Shape letters: B sequences, T completion positions, P prompt positions, V vocabulary.
Everything here is torch only; nothing here knows a model, an engine or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor

from tether.rows import Rows

Unit = Literal["minibatch", "epoch", "update"]
"""What a clock counts. `minibatch` = optimizer steps that moved the policy."""
Depth = Literal["tokens", "distribution", "sampling"]
"""How closely a weight set is read: log-probs of the sampled tokens; whole distributions (exact
KL); or at every sampled token (`Tether.allow`). The last two need a resident module."""
Keep = Literal["keep", "clear"]
Total = Callable[[Tensor], Tensor]
"""Sum over ranks. Every statistic of a method goes through it; identity in a single process."""


@dataclass(frozen=True)
class Clock:
    """Completed counts: 0 before the first tick, 1 after it."""

    minibatch: int = 0
    epoch: int = 0
    update: int = 0

    def tick(self, unit: Unit) -> Clock:
        return replace(self, **{unit: getattr(self, unit) + 1})


@dataclass(frozen=True)
class Sequences(Rows):
    """Prompts and completions as ids, never edited after sampling (B04)."""

    prompt: Tensor
    """[B,P] ids; padded left (decoder-only) or right (encoder-decoder)."""
    prompt_mask: Tensor
    """[B,P] bool, True = a real token."""
    completion: Tensor
    """[B,T] ids, padded right."""
    completion_mask: Tensor
    """[B,T] bool, True = a real token (up to and including the first stop token). What trains is
    `Targets.mask`."""
    count: Tensor | None = None
    """[B] int64 in CPU memory whatever the device: real completion tokens, where they were counted.
    With them a reader of masked places need not wait for the device to learn their number. Of
    this very `completion_mask`: whoever replaces the mask drops them (`count=None`)."""

    def counted(self) -> Self:
        """Waits for the device, once, so that nobody waits later."""
        return replace(self, count=self.completion_mask.sum(1).cpu())

    def to(self, device: torch.device | str) -> Self:
        """The same on another device, but for the counts."""
        return replace(super().to(device), count=self.count)


@dataclass(frozen=True, repr=False)
class Scores(Rows):
    """One policy's view of B x T tokens, fp32. Reading a field that nobody asked for raises, so a
    reader always gets a tensor; writers give None for what was not computed."""

    logprobs: Tensor
    """[B,T] of the distribution that sampled (temperature, allowed set): ratios read this."""
    free_logprobs: Tensor
    """[B,T] temperature 1, whole vocabulary: KL, drift and export read this."""
    entropy: Tensor = None  # type: ignore[assignment]
    """[B,T] nats, of the sampling distribution."""
    values: Tensor = None  # type: ignore[assignment]
    """[B,T] V(state before token t)."""
    last_value: Tensor = None  # type: ignore[assignment]
    """[B] V(state after the last real token): the bootstrap of a truncated sequence (B14)."""
    exact_kl: dict[str, Tensor] = field(default_factory=dict)
    """set name -> [B,T] KL(policy || set) over the vocabulary at temperature 1, nats per token."""
    set_logprobs: dict[str, Tensor] = field(default_factory=dict)
    """set name -> [B,T] that set's free log-probs of the same tokens, from the same pass as its
    `exact_kl`."""

    _OPTIONAL: ClassVar[dict[str, str]] = {
        "entropy": "needs_entropy",
        "values": "needs_values",
        "last_value": "needs_values",
    }

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if value is None and name in Scores._OPTIONAL:
            raise AttributeError(
                f"Scores.{name} was not computed: set {Scores._OPTIONAL[name]} = True on the algorithm"
            )
        return value


class AllowedSets(Protocol):
    """Finds the allowed sets of sampled tokens again, in place of stored bits."""

    def sets(self, s: Sequences, logits: Tensor) -> Tensor:
        """[B,T,V] logits of the model that is scored -> [B,T,V] bool, each sampled token in it."""
        ...

    def counts(self) -> Tensor:
        """[3] since the last rollout began, summed over passes: tokens whose set was found again;
        tokens in these sets; sampled tokens that had to be added to theirs."""
        ...


@dataclass(frozen=True)
class Rollout(Rows):
    """Completions and who wrote them."""

    sequences: Sequences
    sampled: Tensor
    """[B,T] bool, True = the writer sampled this token; False = added context (environments)."""
    row: Tensor
    """[B] row of the dataset."""
    group: Tensor
    """[B] prompt number within this update: equal numbers share a prompt, on one rank."""
    finished: Tensor
    """[B] bool; False = truncated at the length limit."""
    logprobs: Tensor | None = None
    """[B,T] as the engine sampled; None where nobody sampled (demonstrations)."""
    allowed: Tensor | AllowedSets | None = None
    """[B,T,ceil(V/8)] uint8, the allowed sets as bits; or, beyond a memory budget, who finds them
    again; None = whole vocabulary."""
    policy_version: int = 0
    writer: str = "policy"
    """`policy`, the name of a weight set, or `data`."""


@dataclass(frozen=True)
class Experience(Rows):
    """A scored rollout: what an algorithm turns into targets."""

    rollout: Rollout
    score: Tensor
    """[B] raw reward of the task, weighted sum over the reward functions."""
    rewards: Tensor
    """[B,T] shaped: score on the last sampled token + token rewards + every `Tether.reward`."""
    old: Scores
    """The policy at the start of the update."""
    references: dict[str, Scores] = field(default_factory=dict)
    """set name -> its scores on the same tokens."""

    @property
    def mask(self) -> Tensor:
        """[B,T] bool: real tokens that the writer sampled, the ones an algorithm may train."""
        return self.rollout.sequences.completion_mask & self.rollout.sampled


@dataclass(frozen=True)
class Targets(Rows):
    """What the algorithm says about each token."""

    advantages: Tensor
    """[B,T]"""
    returns: Tensor | None
    """[B,T] regression targets of the critic, or None."""
    mask: Tensor
    """[B,T] bool: what trains, a subset of `Experience.mask`."""


@dataclass(frozen=True)
class Minibatch(Rows):
    """Rows of one optimizer step (or of one microbatch of it)."""

    experience: Experience
    targets: Targets
    weights: Tensor
    """[B,T], sums to 1 over the whole optimizer step: all microbatches, all ranks (B17)."""


@dataclass(frozen=True)
class OwnText(Rows):
    """Rows of a tether's own that the house scores beside an optimizer step. Prompts may be padded
    on either side, with any id."""

    sequences: Sequences
    allowed: Tensor | None = None
    """[B,T,ceil(V/8)] uint8: the allowed sets under which the completions were sampled, for
    `Scores.logprobs`; None = whole vocabulary. The temperature is that of the run's sampling."""
    mask: Tensor | None = None
    """[B,T] bool, what trains, a subset of the completion; None = all of it."""
    extra: dict[str, Tensor] = field(default_factory=dict)
    """name -> tensor with rows first: what `own_loss` needs beside the text (old log-probs...)."""


Draw = Callable[[int], Sequences]
"""position (a counter) -> rows of a tether's own data. A function of the counter alone, so nothing
is saved and a resumed run draws what the uninterrupted one would."""


@dataclass(frozen=True)
class LossOutput:
    """Already weighted, so that microbatches, ranks, algorithm and tethers simply add."""

    loss: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """name -> weighted sum."""


@dataclass(frozen=True)
class Until:
    """A `Move.by` that the house finds: the largest share in [0, 1] whose measured `metric` is
    within `limit`, by bisection on the probe prompts."""

    metric: str
    limit: float


@dataclass(frozen=True)
class Move:
    """`what <- what + by * (toward - what)`, elementwise, fp32, on local shards.

    Names of weight sets, never tensors: the house executes moves.
    """

    what: str
    toward: str
    by: float | Until = 1.0
    where: Callable[[str], bool] | None = None
    """parameter name -> touched or not; None = all."""


@dataclass(frozen=True)
class WeightEvent:
    """Moves of the policy that must be seen: evaluated on both sides, marked in the record."""

    moves: tuple[Move, ...]
    reason: str
    optimizer: Keep = "keep"
    critic: Keep = "keep"
    controllers: Keep = "keep"


class Measured(dict[str, tuple[float, int]]):
    """name -> (value, policy_version it was measured at), already summed over ranks.

    The memory of a method may depend on nothing else but this and the clock.
    """

    def newer(self, name: str, than: int) -> tuple[float, int] | None:
        """The measurement if it is of a later version than `than`, else None."""
        value = self.get(name)
        return value if value is not None and value[1] > than else None


class Remembers:
    """Mixin for dataclasses: fields are settings, every other attribute is memory.

    Memory is in the checkpoint, nested parts included; an author writes no `state_dict`. Assigning
    a setting twice raises, so that nothing that changes is lost at resume.
    """

    def _parts(self) -> dict[str, Remembers]:
        out: dict[str, Remembers] = {}
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            for i, x in enumerate(value if isinstance(value, tuple | list) else (value,)):
                if isinstance(x, Remembers):
                    out[f"{f.name}.{i}"] = x
        return out

    def __setattr__(self, name: str, value: Any) -> None:
        settings = {f.name for f in fields(self)}  # type: ignore[arg-type]
        if name in settings and name in vars(self):
            raise AttributeError(
                f"{type(self).__name__}.{name} is a setting; what changes needs an attribute of its own"
            )
        super().__setattr__(name, value)

    def restart(self) -> None:
        """What an event with `controllers = clear` does: nothing, unless a part says otherwise."""
        for part in self._parts().values():
            part.restart()

    def state_dict(self) -> dict[str, Any]:
        settings = {f.name for f in fields(self)}  # type: ignore[arg-type]
        memory = {k: v for k, v in vars(self).items() if k not in settings}
        return memory | {k: p.state_dict() for k, p in self._parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the names differ from this object's."""
        parts = self._parts()
        mine = set(self.state_dict())
        if set(state) != mine:
            raise ValueError(
                f"{type(self).__name__}: the checkpoint holds {sorted(state)}, this version needs {sorted(mine)}"
            )
        for k, v in state.items():
            if k in parts:
                parts[k].load_state_dict(v)
            else:
                setattr(self, k, v)


class Constraint(Protocol):
    """Whoever narrows the sampling distribution (`Tether.allow`)."""

    def allow(self, logits: Mapping[str, Tensor], position: Tensor) -> Tensor:
        """[N,V] logits by set name, [N] completion positions -> [N,V] bool, True = legal."""
        ...


class Learner(Protocol):
    """All that an algorithm may touch of the trainer. Vectors are lists of local tensors."""

    @property
    def parameters(self) -> list[Tensor]: ...

    @property
    def log(self) -> dict[str, float]: ...

    def minibatches(
        self, count: int, experience: Experience, targets: Targets, epoch: int
    ) -> Iterator[Minibatch]:
        """`count` minibatches of whole sequences, shuffled by (seed, agent, update, epoch)."""
        ...

    def whole(self, experience: Experience, targets: Targets) -> Minibatch: ...

    def accumulate(
        self,
        minibatch: Minibatch,
        loss: Callable[[Minibatch, Scores], LossOutput] | None = None,
        *,
        tethers: bool = True,
        gradient: bool = True,
    ) -> Mapping[str, float]:
        """Forward (and backward) over the microbatches; metrics summed over ranks. Reading one
        waits for the device."""
        ...

    def step(self, *, policy: bool = True) -> None:
        """Optimizer step and its tick; `policy=False` moves the critic alone and ticks nothing."""
        ...

    def discard(self) -> None:
        """Zero the gradients without a step (early stop), counted in the log (B09)."""
        ...

    def stepped(self) -> None:
        """Publish and tick after an algorithm moved `parameters` itself."""
        ...

    def epoch_done(self) -> None: ...

    def note(self, metrics: Mapping[str, float]) -> None:
        """Mean over the calls of an update, logged as update/NAME."""
        ...

    def gradient(self) -> list[Tensor]:
        """The policy's gradient, summed over ranks; none is left behind."""
        ...

    def weights(self) -> list[Tensor]:
        """A copy of `parameters`."""
        ...

    def restore(self, weights: list[Tensor]) -> None:
        """`parameters` bit for bit as they were copied."""
        ...

    def shift(self, direction: list[Tensor], by: float) -> None: ...

    def dot(self, a: Iterable[Tensor], b: Iterable[Tensor]) -> float: ...

    def kl_from(self, old: list[Tensor], minibatch: Minibatch) -> float:
        """Exact KL(policy with the weights `old` || policy), weighted mean over the tokens, of the
        distribution that sampled."""
        ...

    def fisher(self, minibatch: Minibatch, vector: list[Tensor]) -> list[Tensor]:
        """Fisher-vector product at `parameters`, on `minibatch`."""
        ...
