"""Rehearsal: human texts beside every optimizer step, so that what they teach is not forgotten.

    loss <- loss + coef * nll,   nll = - mean over tokens of log p(text_t | prompt, text_<t)

The rows are drawn by the number of the optimizer step and are none of the rollout's. Log-probs are
the free ones (temperature 1, whole vocabulary): a model of text is trained here, not a sampler.
With an encoder-decoder model the prompt goes to the encoder.

What trains is in `data`: with `reference` the completions of the prompts; with `text` all of a text
but its first `prompt_tokens` tokens, so `prompt_tokens: 1` trains all that has a context. Rows that
the run holds out of the same data are held out here too.

Source: S2P, supervised learning beside self-play, as in Lu et al. 2020, arXiv 2003.12694
(JACKHAHA363/SILTranslationGame: s2p_co 1, 1024 tokens a batch); with pretraining text it is PPO-ptx
of Ouyang et al. 2022, arXiv 2203.02155, whose gamma is `coef`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from tether.config.errors import UserError
from tether.config.run import DataSettings
from tether.core.masking import weighted_sum
from tether.tethers.base import OwnData, Place, Tether
from tether.types import Clock, Draw, LossOutput, OwnText, Scores


@dataclass
class Rehearsal(Tether):
    """Supervised loss on human texts beside the algorithm's. Source: S2P, arXiv 2003.12694."""

    data: DataSettings = field(default_factory=DataSettings)
    """Where the texts are: `path`, and `reference` or `text` for the column that trains."""
    rows: int = 16
    """Texts beside one optimizer step, all ranks together (with 64 tokens S2P's 1024)."""
    tokens: int = 64
    """Longest completion in tokens; longer ones are cut."""
    coef: float = 1.0
    """Weight of the loss, per nat and token (S2P's s2p_co 1; PPO-ptx has 27.8 on its own scale)."""
    every: int = 1
    """Optimizer steps from one batch to the next (S2P and PPO-ptx 1)."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"text"})

    def __post_init__(self) -> None:
        for name in ("rows", "tokens", "every"):
            if getattr(self, name) < 1:
                raise UserError(f"rehearsal.{name} must be at least 1, not {getattr(self, name)}")
        if self.coef <= 0:
            raise UserError(
                f"rehearsal.coef must be > 0, not {self.coef:g}; to rehearse nothing drop it"
            )

    def own_data(self) -> OwnData:
        return OwnData(self.data, self.rows, self.tokens)

    def own_text(self, clock: Clock, draw: Draw | None) -> OwnText | None:
        if draw is None or clock.minibatch % self.every:
            return None
        return OwnText(draw(clock.minibatch // self.every))

    def own_loss(self, text: OwnText, weights: Tensor, fresh: Scores) -> LossOutput:
        """Metric: nll, nats per token."""
        nll = -weighted_sum(weights, fresh.free_logprobs)
        return LossOutput(self.coef * nll, {"nll": nll.detach()})
