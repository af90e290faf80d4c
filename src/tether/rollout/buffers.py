"""What a recorded step reads and writes: its shape, and tensors at fixed addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from tether.rollout.static_attention import Spans


@dataclass(frozen=True)
class Shape:
    """What a program is made for: B rows of U different prompts, P prompt and T new tokens."""

    rows: int
    prompts: int
    width: int
    new: int
    seq2seq: bool = False

    @property
    def read(self) -> int:
        """Cache rows that the prompt takes in the model that writes: a decoder's start token, or
        the prompt."""
        return 1 if self.seq2seq else self.width

    @property
    def length(self) -> int:
        """Rows of the cache; never as many as an encoder's, which attention tells by its length."""
        n = self.read + self.new
        return n + 1 if self.seq2seq and n == self.width else n


@dataclass
class Inputs:
    """Fixed addresses that a step reads and writes."""

    prompt: Tensor
    """[U,P] ids, padded left."""
    prompt_mask: Tensor
    """[U,P] bool."""
    expand: Tensor
    """[B] which prompt a row continues."""
    token: Tensor
    """[B] newest token."""
    position: Tensor
    """[B] its position among the row's real tokens."""
    spans: Spans
    """Cache rows that attention reads: from the first prompt token to the newest token."""
    clock: Tensor
    """[2] both of the next, which move together."""
    done: Tensor
    """[B] bool, the row has ended."""
    seen: Tensor
    """[B,1,1,1] bool, a mask in form only."""
    encoder: Tensor
    """[B,1,1], encoder states in form only: their keys and values are kept."""

    @property
    def now(self) -> Tensor:
        """[1] cache row of the newest token."""
        return self.clock[:1]

    @property
    def step(self) -> Tensor:
        """[1] number of the next completion token, from 0."""
        return self.clock[1:]


@dataclass
class Written:
    """What the steps leave behind, [B,T,...]."""

    token: Tensor
    logprob: Tensor
    bits: Tensor | None
    empty: dict[tuple[int, str], Tensor] = field(default_factory=dict)


def saved(i: Inputs) -> list[Tensor]:
    return [t.clone() for t in _moving(i)]


def restore(i: Inputs, kept: list[Tensor]) -> None:
    for t, s in zip(_moving(i), kept, strict=True):
        t.copy_(s)


def _moving(i: Inputs) -> list[Tensor]:
    return [i.token, i.position, i.spans.tokens.end, i.clock, i.done]
