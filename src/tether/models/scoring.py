"""The one function that turns (weights, tokens) into numbers: policy, old, references, initial and
critic alike. Log-probabilities are fp32 (B08); temperature and allowed sets are those of sampling
(B06)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from tether.config.run import SamplingSettings
from tether.core.kl import kl_exact
from tether.core.logprobs import entropy as entropy_of
from tether.core.logprobs import log_softmax, pick
from tether.core.sampling import unpack_bits
from tether.models.critic import Critic
from tether.models.head import output_embedding
from tether.models.language_model import LanguageModel
from tether.models.token_scores import Other, logits_of, token_scores
from tether.types import AllowedSets, OwnText, Rollout, Scores, Sequences

Allowed = Tensor | AllowedSets | None
"""Bits [B,T,ceil(V/8)], who finds the sets again, or None for the whole vocabulary."""


def scored_as(sampling: SamplingSettings, rollout: Rollout | OwnText) -> dict[str, Any]:
    """Keywords of `score` for a rollout: the distribution that sampled it, or (`scored: full`)
    temperature 1 over the whole vocabulary. Write `score(lm, s, **scored_as(...))`."""
    if sampling.scored == "full":
        return {"temperature": 1.0, "allowed": None}
    return {"temperature": sampling.temperature, "allowed": rollout.allowed}


def log_distribution(
    lm: LanguageModel, s: Sequences, temperature: float = 1.0, allowed: Allowed = None
) -> Tensor:
    """[B,T,V] fp32 log-probabilities."""
    logits, _ = lm.forward(s)
    return _log_softmax(s, logits, temperature, allowed)


def _log_softmax(s: Sequences, logits: Tensor, temperature: float, allowed: Allowed) -> Tensor:
    if allowed is None:
        return log_softmax(logits, temperature)
    if isinstance(allowed, Tensor):
        return log_softmax(logits, temperature, unpack_bits(allowed, logits.shape[-1]))
    return log_softmax(logits, temperature, allowed.sets(s, logits.detach()))


def score(
    lm: LanguageModel,
    s: Sequences,
    *,
    temperature: float = 1.0,
    allowed: Allowed = None,
    critic: Critic | None = None,
    entropy: bool = False,
    against: Mapping[str, LanguageModel] | None = None,
) -> Scores:
    """Scores of the completion tokens, 0 outside the mask. Capable of gradients in the mode the
    module stands in.

    temperature, allowed: of the sampling distribution; `free_logprobs` ignore both.
    critic: adds `values` and `last_value`. entropy: adds the sampling distribution's.
    against: set name -> resident model; adds the exact KL(policy || set) of the free
    distributions and the set's log-probs of the tokens, no gradient through the set.
    """
    others = dict(against or {})
    if temperature == 1.0 and allowed is None and all(map(in_pieces, (lm, *others.values()))):
        return _score_in_pieces(lm, s, critic, entropy, others)
    hidden = critic is not None and critic.reads_policy
    logits, states = lm.forward(s, hidden=hidden)
    mask = s.completion_mask
    free = log_softmax(logits)
    plain = temperature == 1.0 and allowed is None
    used = free if plain else _log_softmax(s, logits, temperature, allowed)
    asked: dict[str, Tensor] = {}
    if critic is not None:
        asked["values"], asked["last_value"] = _values(critic.values(s, states), mask)
    if entropy:
        asked["entropy"] = torch.where(mask, entropy_of(used), 0.0)
    exact, theirs = {}, {}
    for name, other in others.items():
        with torch.no_grad():
            q = log_softmax(other.forward(s)[0])
        exact[name] = torch.where(mask, kl_exact(free, q), 0.0)
        theirs[name] = torch.where(mask, pick(q, s.completion), 0.0)
    free_picked = torch.where(mask, pick(free, s.completion), 0.0)
    return Scores(
        logprobs=free_picked if plain else torch.where(mask, pick(used, s.completion), 0.0),
        free_logprobs=free_picked,
        exact_kl=exact,
        set_logprobs=theirs,
        **asked,
    )


SHAPED = ("final_logit_softcapping", "logit_scale", "logits_scaling", "output_multiplier_scale")
"""Settings of models that do something to their logits (Gemma 2, Cohere, Granite...)."""


def in_pieces(lm: LanguageModel) -> bool:
    """Whether the logits of this model need not be kept: it is on a GPU, and they are its last
    hidden states times its output embedding, which is tried once (some models scale, cap or shift
    them)."""
    known: bool | None = lm.scratch.get("in pieces")
    if known is None:
        known = lm.scratch["in pieces"] = lm.device.type == "cuda" and plain_head(lm)
    return known


@torch.no_grad()
def plain_head(lm: LanguageModel) -> bool:
    """Whether logits = last hidden states x output embedding, for one short text."""
    head = output_embedding(lm.core)
    if head is None or hasattr(head.weight, "to_local"):
        return False
    config = lm.config.get_text_config(decoder=True)
    if any(getattr(config, name, None) not in (None, 1, 1.0) for name in SHAPED):
        return False  # a cap is seen in no text whose logits are small
    ids = torch.full((1, 2), lm.stops[0], device=lm.device)
    real = torch.ones_like(ids, dtype=torch.bool)
    one = Sequences(ids, real, ids, real)
    with lm.quiet():
        logits, states = lm.forward(one, hidden=True)
    assert states is not None
    mine = logits_of(states[0, :2], head.weight)
    return torch.allclose(mine, logits[0].float(), rtol=1e-2, atol=1e-2 * float(mine.abs().max()))


def _score_in_pieces(
    lm: LanguageModel,
    s: Sequences,
    critic: Critic | None,
    entropy: bool,
    others: Mapping[str, LanguageModel],
) -> Scores:
    """`score` at temperature 1 over the whole vocabulary: real completion tokens only, and never
    [B,T,V] of anything."""
    mask = s.completion_mask
    real = _places(s)
    ids = s.completion.flatten()[real]

    def tokens(x: Tensor) -> Tensor:
        return x[:, : mask.shape[1]].flatten(0, 1)[real]

    def back(x: Tensor) -> Tensor:
        return x.new_zeros(mask.numel()).scatter(0, real, x).view(mask.shape)

    states = lm.hidden(s)
    asked: dict[str, Tensor] = {}
    if critic is not None:
        every = critic.values(s, states if critic.reads_policy else None)
        asked["values"], asked["last_value"] = _values(every, mask)
    with torch.no_grad():
        fixed = [
            Other(tokens(o.hidden(s)), output_embedding(o.core).weight) for o in others.values()
        ]
    out = token_scores(tokens(states), output_embedding(lm.core).weight, ids, fixed)
    if entropy:
        asked["entropy"] = back(out.entropy)
    logprobs = back(out.logprobs)
    return Scores(
        logprobs=logprobs,
        free_logprobs=logprobs,
        exact_kl={n: back(x) for n, x in zip(others, out.kl, strict=True)},
        set_logprobs={n: back(x) for n, x in zip(others, out.theirs, strict=True)},
        **asked,
    )


def _places(s: Sequences) -> Tensor:
    """Indices of the real tokens in the flattened completions, in order."""
    flat = s.completion_mask.flatten()
    if s.count is None:
        return flat.nonzero().squeeze(1)
    # their number is known here, so nobody waits for the device to count them
    order = torch.sort(flat.byte(), descending=True, stable=True).indices
    return order[: int(s.count.sum())]


def score_all(
    lm: LanguageModel,
    s: Sequences,
    *,
    temperature: float = 1.0,
    allowed: Allowed = None,
    critic: Critic | None = None,
    entropy: bool = False,
    against: Mapping[str, LanguageModel] | None = None,
    microbatch: int = 64,
    heed: Callable[[], None] | None = None,
) -> Scores:
    """`score` without gradients, in eval mode, in pieces of `microbatch` rows put together again.

    Use the microbatch of the update: the same layout gives the same bits (B08).
    heed: called after each piece; may raise to leave.
    """
    parts = []
    with lm.quiet():
        for i in _split(s, microbatch):
            parts.append(
                score(
                    lm,
                    s.rows(i),
                    temperature=temperature,
                    allowed=allowed[i] if isinstance(allowed, Tensor) else allowed,
                    critic=critic,
                    entropy=entropy,
                    against=against,
                )
            )
            if heed is not None:
                heed()
    return join(parts)


def values_of(
    critic: Critic, lm: LanguageModel, s: Sequences, microbatch: int
) -> tuple[Tensor, Tensor]:
    """`values` [B,T] and `last_value` [B] of `score_all`, for a critic on a trunk of its own."""
    with lm.quiet():
        every = torch.cat([critic.values(s.rows(i)) for i in _split(s, microbatch)])
    return _values(every, s.completion_mask)


def _values(every: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    last = every.gather(1, mask.sum(1, keepdim=True)).squeeze(1)
    return torch.where(mask, every[:, :-1], 0.0), last


def _split(s: Sequences, microbatch: int) -> tuple[Tensor, ...]:
    return torch.arange(len(s.prompt)).split(microbatch)


def join(parts: list[Scores]) -> Scores:
    """Scores of consecutive rows as one."""
    out: dict[str, Any] = {}
    for f in fields(Scores):
        first = object.__getattribute__(parts[0], f.name)
        if isinstance(first, dict):
            out[f.name] = {k: torch.cat([getattr(p, f.name)[k] for p in parts]) for k in first}
        elif first is not None:
            out[f.name] = torch.cat([getattr(p, f.name) for p in parts])
    return Scores(**out)
