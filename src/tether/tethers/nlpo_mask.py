"""NLPO's mask: only tokens that a mask policy finds likely may be sampled.

    allowed(s) = R(psi(. | s))  |  the `floor` likeliest tokens of psi but stops  |  {EOS}
    pi'(a | s) = pi(a | s) 1[a allowed] / sum over allowed b of pi(b | s)

R is top-p (and top-k, min-p, a function of yours: a token must pass every rule that is on), psi the
mask policy: the initial weights, a copy of the policy that is refreshed every mu updates, another
set of weights, or the policy itself. Sampling, scoring, ratio and entropy use the one distribution
pi'; KL and drift use pi. The policy can drift inside the mask only, but what is exported is pi:
evaluations are made of both, named `constrained` and `exported`. Human text outside the mask has
probability 0 under pi', so its perplexity is that of pi. Truncated sampling alone raises most
scores; the control is the same algorithm with `sampling.top_p`, evaluated plainly
(`evaluation.sampling: {}`).

A refresh happens between updates only: sampling and update see one mask. Where a reset falls on the
same tick, the mask takes in the policy as it was before the reset.

Source: Ramamurthy et al., arXiv 2210.01241, algorithm 1 and table 8 (p .9, mu 20; mu 5 in the
configuration of IMDB). allenai/RL4LMs@97df0bd rebinds an attribute and never refreshes its mask
(`mask: initial`), keeps 100 tokens at least (`floor: 100`) and samples the 50 likeliest of them
(`sampling.top_k`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from tether.config.catalog import load_object
from tether.config.errors import UserError
from tether.core.sampling import min_p_set, set_sizes, top_k_set, top_p_set
from tether.tethers.base import Place, Tether
from tether.tethers.triggers import Every, Trigger
from tether.types import (
    Clock,
    Depth,
    Experience,
    Measured,
    Move,
    Remembers,
    Total,
    Unit,
    WeightEvent,
)

MU = 20
ONE = 1 - 2**-25
"""From here on a number is 1 in fp32, which probabilities are compared in."""
LEAST = 2.0**-150
"""Below it a probability is 0 in fp32."""
COPY = "mask"
"""Name of the set that is kept where `mask` is `copy`."""


@dataclass
class NLPOMask(Tether):
    """Sampling inside the likely tokens of a mask policy. Source: arXiv 2210.01241."""

    mask: str = "copy"
    """Whose likely tokens: `copy` (a copy of the policy, as published), `initial` (as the released
    RL4LMs behaves), `policy` (the policy's own as it samples: the set is kept in scoring, for any
    algorithm with truncated sampling), or a set that another tether keeps (`ema`)."""
    refresh: Trigger | None = field(default_factory=lambda: Every(MU, "update"))
    """With `copy`: when the copy takes the policy in, after an update (mu; .637 at 20, .594 at 1,
    .603 at 50 in table 8 of the paper, one task). Another mask has none: leave it out or null."""
    top_p: float = 0.9
    """The smallest set of tokens with at least this probability (table 8: .9 of .1 to .9); 1 =
    off. Of the mask policy at temperature 1, whatever the sampling temperature."""
    top_k: int = 0
    """The k likeliest tokens; 0 = off."""
    min_p: float = 0.0
    """Tokens at least this many times as likely as the likeliest; 0 = off (arXiv 2407.01082)."""
    function: str | None = None
    """A rule of your own, `file.py:function`: logits [N,V] of the mask policy -> bool [N,V]. Tensor
    operations only."""
    floor: int = 1
    """Likeliest tokens, stop tokens not counted, that are allowed whatever the rules say
    (RL4LMs@97df0bd 100). So there is something to write where the rules leave EOS alone and a
    minimum length forbids it. EOS comes on top."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"sampling"})

    def __post_init__(self) -> None:
        if not 0 < self.top_p <= 1:
            raise UserError(f"nlpo_mask.top_p must be in (0, 1], not {self.top_p:g}")
        if self.top_k < 0:
            raise UserError(f"nlpo_mask.top_k must be >= 0 (0 = off), not {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"nlpo_mask.min_p must be in [0, 1] (0 = off), not {self.min_p:g}")
        if self.floor < 1:
            raise UserError(f"nlpo_mask.floor must be at least 1 token, not {self.floor}")
        if ONE <= self.top_p < 1:
            raise UserError(
                f"nlpo_mask.top_p {self.top_p!r} is 1 in fp32 and would allow every token: lower"
                " it, or set it to 1 to have no such rule"
            )
        if 0 < self.min_p < LEAST:
            raise UserError(
                f"nlpo_mask.min_p {self.min_p!r} is 0 in fp32 and would allow"
                " every token: raise it, or set it to 0 to have no such rule"
            )
        if 0 < self.top_k < self.floor:
            raise UserError(
                f"nlpo_mask.top_k {self.top_k} has no effect: the {self.floor} likeliest tokens are"
                " allowed whatever the rules say (floor); raise top_k or lower floor"
            )
        if self.top_p == 1 and not self.top_k and not self.min_p and self.function is None:
            raise UserError(
                "nlpo_mask: every rule is off, so it would allow every token; set top_p, top_k,"
                " min_p or function"
            )
        if self.mask == "copy" and self.refresh is None:
            raise UserError(
                "nlpo_mask.refresh is null, so the copy would stay the initial policy: set"
                " nlpo_mask.mask initial"
            )
        if self.mask != "copy" and self.refresh not in (None, Every(MU, "update")):
            raise UserError(
                f"nlpo_mask.refresh has no effect with mask '{self.mask}': only `copy` is"
                " refreshed; set it to null"
            )
        if self.mask == "data":
            raise UserError("nlpo_mask.mask is a set of weights; 'data' is none")
        if self.function is not None:
            _function(self.function)
        self.age = 0
        """Updates since the copy took the policy in."""
        self.stops: list[int] = []
        """Stop tokens of the model."""

    def meet(self, stops: tuple[int, ...]) -> None:
        self.stops = list(stops)

    @property
    def home(self) -> str:
        """Name of the set of weights that is the mask policy."""
        return COPY if self.mask == "copy" else self.mask

    def _parts(self) -> dict[str, Remembers]:
        """Only a copy has a clock: else the run would miss the firings of an idle one."""
        return super()._parts() if self.mask == "copy" else {}

    def check_vocabulary(self, size: int) -> None:
        words = size - len(self.stops)  # which the floor does not count
        if self.floor >= words:
            raise UserError(
                f"nlpo_mask.floor {self.floor} would allow every token: the vocabulary has {words}"
                " beside the stop tokens; lower it"
            )
        if self.top_k >= size:
            raise UserError(
                f"nlpo_mask.top_k {self.top_k} would allow every token: the vocabulary has {size};"
                " lower it, or set it to 0 to have no such rule"
            )

    def keeps(self) -> tuple[str, ...]:
        return (COPY,) if self.mask == "copy" else ()

    def reads(self) -> Mapping[str, Depth]:
        return {self.home: "sampling"}

    def recomputable(self) -> bool:
        """Copy and initial weights stand still while an update lasts; another tether's set may be
        an average that moves with every step."""
        return self.mask in ("copy", "initial")

    def allow(self, logits: Mapping[str, Tensor], position: Tensor) -> Tensor:
        x = logits[self.home]
        legal = top_p_set(x, self.top_p)
        if self.top_k:
            legal = legal & top_k_set(x, self.top_k)
        if self.min_p:
            legal = legal & min_p_set(x, self.min_p)
        if self.function is not None:
            mine = _function(self.function)(x)
            tensor = isinstance(mine, Tensor)
            if not tensor or mine.dtype != torch.bool or mine.shape != x.shape:
                found = f"{mine.dtype} {list(mine.shape)}" if tensor else type(mine).__name__
                raise UserError(
                    f"nlpo_mask.function {self.function} must return bool {list(x.shape)}, not"
                    f" {found.removeprefix('torch.')}"
                )
            legal = legal & mine
        token = torch.arange(x.shape[-1], device=x.device)
        stop = torch.zeros_like(token, dtype=torch.bool)
        for i in self.stops:
            stop = stop | (token == i)
        return legal | top_k_set(x.masked_fill(stop, -math.inf), self.floor)

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        if unit != "update" or self.mask != "copy" or self.refresh is None:
            return ()
        self.age += 1
        if self.refresh.fires(clock, measured) is None:
            return ()
        self.age = 0
        return (Move(COPY, toward="policy"),)

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        """refreshes; mask_age in updates; allowed_tokens: mean size of the allowed set (all tethers
        and truncation together). Where the sets were found again: tokens_added, how often a
        sampled token had to be put back in this update (all passes), of tokens_found_again."""
        out: dict[str, float] = {}
        if self.mask == "copy" and self.refresh is not None:
            out |= {"refreshes": float(self.refresh.fired), "mask_age": float(self.age)}
        allowed = experience.rollout.allowed
        if allowed is None:
            return out
        if isinstance(allowed, Tensor):
            sizes = set_sizes(allowed)
            mask = experience.mask
            n, size = total(torch.stack([mask.sum(), torch.where(mask, sizes, 0).sum()])).tolist()
        else:
            n, size, added = total(allowed.counts()).tolist()
            out |= {"tokens_added": added, "tokens_found_again": n}
        return out | {"allowed_tokens": size / max(1, n)}


@cache
def _function(address: str) -> Callable[[Tensor], Tensor]:
    found: Callable[[Tensor], Tensor] = load_object(address, "nlpo_mask.function")
    if not callable(found):
        raise UserError(f"nlpo_mask.function {address} is not a function of logits")
    return found
