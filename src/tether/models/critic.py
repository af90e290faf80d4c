"""The value model: a trunk and a linear head that starts at exactly zero, or both from a reward
model (B13)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from tether.models.language_model import LanguageModel
from tether.types import Sequences

if TYPE_CHECKING:
    from tether.models.critic_start import Start

Kind = Literal["separate", "shared", "detached", "frozen"]


class Critic(nn.Module):
    """V(state) from the last hidden state of a trunk.

    separate: a trunk of its own, started from the policy (with LoRA: an adapter of its own).
    shared: a head on the policy's trunk; a reset of the policy moves these features too.
    detached: the same, value gradients stop at the trunk.
    frozen: a head on the initial trunk; `WeightSets` hands that trunk over.
    The head is fp32 and its first values are 0, so a random critic never moves the policy; or the
    trunk and head of `start`, for a separate critic.
    """

    def __init__(
        self, lm: LanguageModel, kind: Kind = "separate", start: Start | None = None
    ) -> None:
        super().__init__()
        self.kind: Kind = kind
        self._lm: list[LanguageModel] = []  # a list keeps other modules out of the parameter tree
        if start is not None:
            if kind != "separate":
                raise ValueError(f"a {kind} critic has no trunk of its own to start")
            self.trunk = start.trunk.module
            self._lm.append(start.trunk)
        elif kind == "separate":
            twin = lm.twin(trainable=True)
            twin.core.set_output_embeddings(nn.Identity())  # it reads states, never logits
            self.trunk = twin.module
            self._lm.append(twin)
        self.head = nn.Linear(lm.hidden_size, 1, dtype=torch.float32, device=lm.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if start is not None and start.weight is not None:
            with torch.no_grad():
                self.head.weight.copy_(start.weight[None])
                self.head.bias.fill_(start.bias)

    @property
    def reads_policy(self) -> bool:
        """True where `values` needs the policy's hidden states."""
        return self.kind in ("shared", "detached")

    @contextmanager
    def updating(self) -> Iterator[None]:
        """The mode of the update for a trunk of its own; nothing to do for the other kinds."""
        if self.kind == "separate":
            with self._lm[0].updating():
                yield
        else:
            yield

    def recording(self) -> AbstractContextManager[None]:
        """`LanguageModel.recording` of a trunk of its own."""
        return self._lm[0].recording() if self.kind == "separate" else nullcontext()

    def stand_on(self, trunk: LanguageModel) -> None:
        """Hand over the trunk of a frozen critic."""
        self._lm = [trunk]

    def values(self, s: Sequences, hidden: Tensor | None = None) -> Tensor:
        """[B,T+1]: V before each token and after the last one.

        hidden: the policy's [B,T+1,H], for the kinds that read it.
        """
        if self.reads_policy:
            if hidden is None:
                raise ValueError(f"a {self.kind} critic needs the policy's hidden states")
            states = hidden.detach() if self.kind == "detached" else hidden
        elif not self._lm:
            raise ValueError(
                "a frozen critic has no trunk yet: WeightSets(lm, critic) gives it one"
            )
        elif self.kind == "frozen":
            with torch.no_grad():
                states = self._lm[0].hidden(s)
        else:
            states = self._lm[0].hidden(s)
        out: Tensor = self.head(states.float()).squeeze(-1)
        return out

    def forward(self, s: Sequences, hidden: Tensor | None = None) -> Tensor:
        return self.values(s, hidden)
