"""One decoding step: temperature, truncation, the AND of the constraints, the draw.

It stands in `generate` as a logits processor that leaves the drawn token as the only candidate, so
that transformers' own sampling and every default of a model's generation_config stay outside. All
of it stays on the device; faults are kept as flags and read once, after the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor

from tether.config.errors import UserError
from tether.config.run import SamplingSettings
from tether.core.logprobs import NEVER, log_softmax, pick
from tether.core.sampling import draw, legal_tokens, pack_bits, top_k_set, top_p_set
from tether.rollout.companion import Companion
from tether.types import Constraint


class Sampler(LogitsProcessor):
    """Draws one token a row from the distribution that scoring will see again.

    Order: constraints (EOS stays legal) and the minimum length, temperature, top-k, then top-p of
    what is left, then the draw (`core.sampling.draw`) from `rng`. Kept per step: [B] log-probs
    and, if anything narrows the vocabulary and is scored, [B, ceil(V/8)] bits (`keep_bits`: within
    the memory budget).
    """

    def __init__(
        self,
        sampling: SamplingSettings,
        stops: Tensor,
        rng: torch.Generator,
        constraints: Sequence[Constraint] = (),
        companions: Mapping[str, Companion] | None = None,
        keep_bits: bool = True,
    ) -> None:
        self.sampling, self.stops, self.rng = sampling, stops, rng
        self.constraints, self.companions = constraints, companions or {}
        self.keep_bits = keep_bits
        self.logprobs: list[Tensor] = []
        self.bits: list[Tensor] = []
        self.empty: dict[tuple[int, str], list[Tensor]] = {}
        self.step = 0

    @property
    def narrows(self) -> bool:
        return narrows(self.sampling, self.constraints)

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        s = self.sampling
        allowed = self._allowed(input_ids, scores) if self.narrows else None
        logp = log_softmax(scores, s.temperature, allowed)
        token = logp.argmax(-1) if s.greedy else draw(logp, self.rng)
        if s.scored == "full":
            logp = log_softmax(scores)
        elif allowed is not None and self.keep_bits:
            self.bits.append(pack_bits(allowed))
        self.logprobs.append(pick(logp, token))
        self.step += 1
        return scores.fill_(-1.0).scatter_(1, token[:, None], 1.0)

    def _allowed(self, input_ids: Tensor, logits: Tensor) -> Tensor:
        position = torch.full_like(input_ids[:, 0], self.step)
        views = {"policy": logits}
        views |= {k: c.logits(input_ids) for k, c in self.companions.items()}
        allowed, empty = narrow(self.sampling, self.constraints, views, position, self.stops)
        for key, nothing in empty.items():
            self.empty.setdefault(key, []).append(nothing)
        return allowed

    def check(
        self, mask: Tensor, row: Tensor, why: Callable[[int, int], str] | None = None
    ) -> None:
        """Raises UserError naming tether, prompt and step where a real token [B,T] had an empty
        set or no finite log-prob (B37). why(row, position): more about the latter."""
        flags = {key: torch.stack(x, 1) for key, x in self.empty.items()}
        check_rows(flags, torch.stack(self.logprobs, 1), mask, row, why)


def narrows(sampling: SamplingSettings, constraints: Sequence[Constraint]) -> bool:
    """True where the sampling distribution is not simply the whole vocabulary."""
    s = sampling
    return bool(constraints) or s.top_k > 0 or s.top_p < 1.0 or s.min_new_tokens > 0


def narrow(
    sampling: SamplingSettings,
    constraints: Sequence[Constraint],
    views: Mapping[str, Tensor],
    position: Tensor,
    stops: Tensor,
) -> tuple[Tensor, dict[tuple[int, str], Tensor]]:
    """The allowed set [B,V] of one step, and for whoever may leave nothing [B] True where it did.

    views: set name -> logits [B,V], `policy` among them. Tensor operations only.
    """
    s, logits = sampling, views["policy"]
    allowed, empty = legal_tokens(constraints, views, position, stops, s.min_new_tokens)
    nothing = {
        (number, type(c).__name__): flag
        for number, (c, flag) in enumerate(zip(constraints, empty, strict=True))
    }
    if s.top_k > 0 or s.top_p < 1.0:
        x = logits.masked_fill(~allowed, NEVER) / s.temperature
        if s.top_k > 0:
            allowed = allowed & top_k_set(x, s.top_k)
            x = x.masked_fill(~allowed, NEVER)
        allowed = allowed & top_p_set(x, s.top_p)
    if len(constraints) > 1 or s.min_new_tokens > 0:
        nothing[-1, "all constraints and min_new_tokens together"] = ~allowed.any(-1)
    return allowed, nothing


def check_rows(
    empty: Mapping[tuple[int, str], Tensor],
    logprobs: Tensor,
    mask: Tensor,
    row: Tensor,
    why: Callable[[int, int], str] | None = None,
) -> None:
    """Raises UserError naming tether, prompt and step where a real token [B,T] had an empty set or
    no finite log-prob (B37). why(row, position): more about the latter."""
    for (_, name), flags in empty.items():
        at = (flags & mask).nonzero()
        if len(at):
            b, t = at[0].tolist()
            raise UserError(
                f"{name} allowed no token at all for prompt row {int(row[b])} at completion "
                f"position {t}: a constraint must leave at least one"
            )
    at = (~torch.isfinite(logprobs) & mask).nonzero()
    if len(at):
        b, t = at[0].tolist()
        raise UserError(
            f"the policy's logits are NaN or infinite for prompt row {int(row[b])} at "
            f"completion position {t}: weights have diverged or the dtype overflows "
            f"(lower algorithm.lr, or model.dtype: float32){why(b, t) if why else ''}"
        )
