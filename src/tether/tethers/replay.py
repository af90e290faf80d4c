"""Replay: the best completions of earlier updates train again, across resets too.

After each rollout the best-scored `share` of it is kept, for at most `age` updates and `capacity`
sequences. Beside every optimizer step `rows` of what earlier updates wrote are drawn by its number:

    importance   loss <- loss - coef * sum_t u_t w_t A log pi(a_t | s_t)
                 w_t = min(c, pi(a_t | s_t) / mu(a_t | s_t)), no gradient through it
    supervised   loss <- loss - coef * sum_t u_t log p(a_t | s_t)

u is 1 / (number of drawn tokens), mu the distribution that sampled (temperature, allowed set), p
the free one, and A the score above the mean of the update that wrote it, in standard deviations of
that update (all its samples, kept or not). What it costs: truncation bounds the variance and biases
towards mu; a share below 1 leaves mostly positive A, which is imitation of the best; a weight a
token, as in V-trace's policy gradient, forgets that another policy wrote the tokens before it.

The rollout of the update itself is never drawn. A weight event (reset) leaves the memory alone
unless `at_event` says otherwise. The memory is this process's, so one process is all it runs in.

Source: truncated weights as in IMPALA's V-trace, Espeholt et al. 2018, arXiv 1802.01561; imitation
of one's own best as in Oh et al. 2018, arXiv 1806.05635, and RAFT, arXiv 2304.06767. Off-policy
use beside resets is left open by Elastic Reset, arXiv 2312.07551.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.core.masking import WHITEN_EPSILON, weighted_sum
from tether.tethers.base import Place, Tether
from tether.types import (
    Clock,
    Draw,
    Experience,
    Keep,
    LossOutput,
    Measured,
    Move,
    OwnText,
    Scores,
    Sequences,
    Total,
    Unit,
    WeightEvent,
)

_LEFT = ("prompt", "prompt_mask")
"""Kept with their real tokens at the right end; everything else of two dimensions at the left."""


@dataclass
class Replay(Tether):
    """Earlier completions train again. Source: V-trace's weights, arXiv 1802.01561."""

    mode: Literal["importance", "supervised"] = "importance"
    """importance: policy gradient with truncated weights. supervised: maximum likelihood."""
    share: float = 0.25
    """Best-scored share of each rollout that is kept, rounded up (tether's choice; RAFT trains on
    the best of 8 to 32 a prompt)."""
    age: int = 17
    """Updates after which a completion is forgotten (tether's choice: the IMDB period of Elastic
    Reset, so that memory reaches across one reset)."""
    capacity: int = 256
    """Most sequences in memory; beyond it the lowest scores go first, of equal ones the oldest. A
    sequence takes some bytes a token, and vocabulary / 8 a token where sampling is narrowed."""
    rows: int = 16
    """Sequences beside one optimizer step; fewer while the memory holds fewer (tether's choice)."""
    coef: float = 0.1
    """Weight of the loss (tether's choice: own samples lead)."""
    truncate: float = 1.0
    """c, the largest weight of `importance` (V-trace's and IMPALA's 1)."""
    weights: Literal["token", "sequence"] = "token"
    """One weight a token (V-trace), or the product over the completion for all of its tokens."""
    at_event: Keep = "keep"
    """What a weight event (a reset of any tether) does with the memory."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"text"})
    remembers_texts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.mode not in ("importance", "supervised"):
            raise UserError(f"replay.mode is importance or supervised, not '{self.mode}'")
        if self.weights not in ("token", "sequence"):
            raise UserError(f"replay.weights is token or sequence, not '{self.weights}'")
        if self.at_event not in ("keep", "clear"):
            raise UserError(f"replay.at_event is keep or clear, not '{self.at_event}'")
        if not 0 < self.share <= 1:
            raise UserError(f"replay.share must be in (0, 1], not {self.share:g}")
        for name in ("age", "capacity", "rows"):
            if getattr(self, name) < 1:
                raise UserError(f"replay.{name} must be at least 1, not {getattr(self, name)}")
        for name in ("coef", "truncate"):
            if getattr(self, name) <= 0:
                raise UserError(f"replay.{name} must be > 0, not {getattr(self, name):g}")
        if self.mode == "supervised" and (self.truncate, self.weights) != (1.0, "token"):
            raise UserError("replay.truncate and replay.weights act on mode importance only")
        self.kept: dict[str, Tensor] = {}
        """name -> tensor with a row a sequence, on the host; {} while nothing is kept."""
        self.update = 0
        """The update that is under way, from 0."""
        self.events = 0
        """Weight events so far."""
        self.tokens = 0
        """Off-policy tokens that trained in this update."""

    # ---- what is kept
    def seen(self, experience: Experience) -> None:
        rollout = experience.rollout
        events = rollout.policy_version - self.update  # both count updates, the version also events
        if events != self.events and self.at_event == "clear":
            self.kept = {}
        self.events = events
        if rollout.writer == "data":
            return  # nobody sampled it
        mask, score = experience.mask, experience.score.float()
        real = mask.any(1).nonzero().squeeze(1)  # a dropped sample was never drawn
        if not len(real):
            return
        mean = score[real].mean()
        spread = (score[real].var(correction=0) + WHITEN_EPSILON).sqrt()
        best = score[real].argsort(descending=True, stable=True)
        best = real[best[: math.ceil(self.share * len(real) - 1e-9)]]
        behaviour = experience.old.logprobs
        if rollout.writer != "policy" and rollout.logprobs is not None:
            behaviour = rollout.logprobs
        s = rollout.sequences.rows(best)
        new = {
            "prompt": torch.where(s.prompt_mask, s.prompt, 0),
            "prompt_mask": s.prompt_mask,
            "completion": torch.where(s.completion_mask, s.completion, 0),
            "completion_mask": s.completion_mask,
            "mask": mask[best],
            "logprobs": torch.where(mask, behaviour, 0.0)[best],
            "advantage": ((score - mean) / spread)[best],
            "score": score[best],
            "written": torch.full_like(best, self.update),
        }
        if self.mode == "importance" and rollout.allowed is not None:
            if not isinstance(rollout.allowed, Tensor):
                raise UserError(
                    "replay.mode importance needs the allowed sets as bits, and these are beyond"
                    " sampling.allowed_bytes: raise it, or take replay.mode supervised"
                )
            new["allowed"] = rollout.allowed[best]
        self._keep(_canonical({k: v.detach().cpu() for k, v in new.items()}))

    def _keep(self, new: dict[str, Tensor]) -> None:
        kept = _joined(self.kept, new) if self.kept else new
        newest_first = kept["score"].flip(0).argsort(descending=True, stable=True)
        best = len(newest_first) - 1 - newest_first  # of equal scores the younger stay
        stays = best[: self.capacity].sort().values  # in the order of writing
        self.kept = {k: v[stays] for k, v in kept.items()}

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        if unit == "minibatch":
            taken = self._drawn(clock.minibatch - 1)
            self.tokens += int(self.kept["mask"][taken].sum()) if len(taken) else 0
        elif unit == "update":
            self.update, self.tokens = clock.update, 0
            if self.kept:
                young = (self.update - self.kept["written"] <= self.age).nonzero().squeeze(1)
                self.kept = {k: v[young] for k, v in self.kept.items()} if len(young) else {}
        return ()

    # ---- what trains
    def _drawn(self, step: int) -> Tensor:
        """Rows of memory beside optimizer step number `step`: a function of it and the memory."""
        if not self.kept:
            return torch.zeros(0, dtype=torch.long)
        earlier = (self.kept["written"] < self.update).nonzero().squeeze(1)
        order = torch.randperm(len(earlier), generator=torch.Generator().manual_seed(step))
        return earlier[order[: self.rows]]

    def own_text(self, clock: Clock, draw: Draw | None) -> OwnText | None:
        index = self._drawn(clock.minibatch)
        if not len(index):
            return None
        row = {k: v[index] for k, v in self.kept.items()}
        prompt = row["prompt_mask"].any(0)  # columns that these rows use
        completion = row["completion_mask"].any(0)
        sequences = Sequences(
            row["prompt"][:, prompt],
            row["prompt_mask"][:, prompt],
            row["completion"][:, completion],
            row["completion_mask"][:, completion],
        )
        return OwnText(
            sequences,
            allowed=row["allowed"][:, completion] if "allowed" in row else None,
            mask=row["mask"][:, completion],
            extra={"logprobs": row["logprobs"][:, completion], "advantage": row["advantage"]},
        )

    def own_loss(self, text: OwnText, weights: Tensor, fresh: Scores) -> LossOutput:
        """Sums of one optimizer step; `summary` makes the record's numbers of them."""
        trains = weights != 0
        if self.mode == "supervised":
            nll = -weighted_sum(weights, fresh.free_logprobs)
            return LossOutput(self.coef * nll, {"nll": nll.detach()})
        with torch.no_grad():
            ratio = torch.where(trains, fresh.logprobs - text.extra["logprobs"], 0.0)
            if self.weights == "sequence":
                ratio = ratio.sum(1, keepdim=True).expand_as(ratio)
            # The truncation stands before the exponent, which so cannot overflow.
            weight = ratio.clamp(max=math.log(self.truncate)).exp()
        credit = weight * text.extra["advantage"][:, None]
        loss = -weighted_sum(weights, credit * fresh.logprobs)
        units = trains if self.weights == "token" else trains.any(1)
        w = weight if self.weights == "token" else weight[:, 0]
        cut = (ratio if self.weights == "token" else ratio[:, 0]) > math.log(self.truncate)
        metrics = {
            "loss": loss.detach(),
            "count": units.float().sum(),
            "sum": torch.where(units, w, 0.0).sum(),
            "squares": torch.where(units, w.square(), 0.0).sum(),
            "cut": (units & cut).float().sum(),
        }
        return LossOutput(self.coef * loss, metrics)

    # ---- what is recorded
    def summary(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        """Of one optimizer step (the record has the mean over an update's steps). supervised: nll.
        importance: loss; weight.mean; truncated_share; effective_tokens (or effective_sequences,
        with one weight a sequence), the effective sample size (sum w)^2 / sum w^2 of the weights
        in force; effective_share, the same over their number."""
        if self.mode == "supervised":
            return sums
        n = max(sums["count"], 1.0)
        size = sums["sum"] ** 2 / sums["squares"] if sums["squares"] > 0 else 0.0
        return {
            "loss": sums["loss"],
            "weight.mean": sums["sum"] / n,
            "truncated_share": sums["cut"] / n,
            f"effective_{self.weights}s": size,
            "effective_share": size / n,
        }

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        """off_policy_tokens: trained in this update, all its steps. sequences: of earlier updates,
        in memory. age_updates.mean: how old these are."""
        out = {"off_policy_tokens": float(self.tokens), "sequences": 0.0}
        age = self.update - self.kept["written"] if self.kept else torch.zeros(0)
        age = age[age > 0].float()
        if len(age):
            out |= {"sequences": float(len(age)), "age_updates.mean": float(age.mean())}
        return out


def _canonical(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Real prompt tokens at the right end, whichever side the model pads."""
    order = rows["prompt_mask"].int().argsort(dim=1, stable=True)
    return rows | {k: rows[k].gather(1, order) for k in _LEFT}


def _joined(old: dict[str, Tensor], new: dict[str, Tensor]) -> dict[str, Tensor]:
    """Both sets of rows, padded to a common width."""
    old, new = _with_allowed(old, new), _with_allowed(new, old)
    out = {}
    for k in new:
        pieces = [old[k], new[k]]
        if new[k].dim() > 1:
            width = max(p.shape[1] for p in pieces)
            pieces = [_widened(p, width, left=k in _LEFT) for p in pieces]
        out[k] = torch.cat(pieces)
    return out


def _with_allowed(rows: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, Tensor]:
    """The whole vocabulary as bits, where only the other rows have some."""
    if "allowed" in rows or "allowed" not in other:
        return rows
    b, t = rows["mask"].shape
    return rows | {"allowed": torch.full((b, t, other["allowed"].shape[2]), 255).to(torch.uint8)}


def _widened(x: Tensor, width: int, left: bool) -> Tensor:
    room = x.new_zeros((x.shape[0], width - x.shape[1], *x.shape[2:]))
    return torch.cat([room, x] if left else [x, room], 1)
