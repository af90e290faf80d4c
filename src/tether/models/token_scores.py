"""Log-probs, entropy and exact KL of tokens from last hidden states, without ever keeping
[tokens, vocabulary] numbers: a piece of the tokens at a time, computed again for the gradient.

Per token with logits z = h W^T (fp32), p = softmax z, q a fixed distribution:

    logp(a) = z_a - lse z            d logp / dz = 1_a - p
    H       = lse z - sum p z        d H / dz    = - p (log p + H)
    KL      = sum p (log p - log q)  d KL / dz   = p (log p - log q - KL)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tether.models import token_kernels
from tether.models.fused import padded

PIECE = 1 << 28
"""Logits of a piece, at most: 1 GiB in fp32."""


class Other(NamedTuple):
    """Another model's last hidden states [N,H'] at the same tokens, and its output weights."""

    states: Tensor
    weight: Tensor


class TokenScores(NamedTuple):
    """All [N] fp32, nats; kl and theirs one entry an other model."""

    logprobs: Tensor
    entropy: Tensor
    kl: tuple[Tensor, ...]
    theirs: tuple[Tensor, ...]
    """Log-probs of the tokens under the other models; no gradient."""


def token_scores(
    states: Tensor, weight: Tensor, ids: Tensor, others: Sequence[Other] = ()
) -> TokenScores:
    """Scores of tokens ids [N] after states [N,H], with output weights [V,H].

    Gradients flow to `states` and `weight`; the other models are fixed.
    """
    flat = [t for o in others for t in o]
    out = _TokenScores.apply(states, weight, ids, *flat)
    n = len(others)
    return TokenScores(out[0], out[1], tuple(out[2 : 2 + n]), tuple(out[2 + n :]))


def logits_of(states: Tensor, weight: Tensor) -> Tensor:
    """[n,V] fp32: accumulated and returned in fp32 whatever the inputs are."""
    wide = padded(weight)
    return _product(states, weight if wide is None else wide)[:, : len(weight)]


def _product(states: Tensor, weight: Tensor) -> Tensor:
    if states.is_cuda and states.dtype != torch.float32:
        return torch.mm(states, weight.t(), out_dtype=torch.float32)
    return torch.mm(states, weight.t()).float()


def _forward(z: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[n,V] -> log-probs of ids, entropy, log-sum-exp."""
    lse = z.logsumexp(-1)
    expected = ((z - lse[:, None]).exp() * z).sum(-1)
    return z.gather(1, ids[:, None]).squeeze(1) - lse, lse - expected, lse


def _divergence(z: Tensor, lse: Tensor, y: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p || q) of logits z and y, and q's log-probs of ids."""
    logq_lse = y.logsumexp(-1)
    logp = z - lse[:, None]
    kl = (logp.exp() * (logp - y + logq_lse[:, None])).sum(-1)
    return kl, y.gather(1, ids[:, None]).squeeze(1) - logq_lse


def _gradient(
    z: Tensor, ids: Tensor, lse: Tensor, entropy: Tensor, g_logp: Tensor, g_entropy: Tensor
) -> Tensor:
    """d loss / dz [n,V] fp32 of log-prob and entropy."""
    logp = z - lse[:, None]
    p = logp.exp()
    dz = -p * (g_logp[:, None] + g_entropy[:, None] * (logp + entropy[:, None]))
    word = torch.arange(z.shape[1], device=z.device) == ids[:, None]
    return dz + torch.where(word, g_logp[:, None], 0.0)  # one pass, where a scatter makes two


def _gradient_kl(dz: Tensor, z: Tensor, lse: Tensor, y: Tensor, kl: Tensor, g: Tensor) -> Tensor:
    logp = z - lse[:, None]
    return dz + g[:, None] * logp.exp() * (logp - y.log_softmax(-1) - kl[:, None])


_compiled: dict[Any, Any] = {}


def _on(device: torch.device, f: Any) -> Any:
    """Compiled where a pass over the piece costs more than its arithmetic."""
    if device.type != "cuda":
        return f
    if f not in _compiled:
        _compiled[f] = torch.compile(f, dynamic=True)
    return _compiled[f]


class _TokenScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, ids: Tensor, *flat: Tensor) -> Any:
        others = [Other(*flat[i : i + 2]) for i in range(0, len(flat), 2)]
        n, kw = len(ids), {"dtype": torch.float32, "device": states.device}
        logp, entropy, lse = (torch.empty(n, **kw) for _ in range(3))  # type: ignore[call-overload]
        kl = [torch.empty(n, **kw) for _ in others]  # type: ignore[call-overload]
        theirs = [torch.empty(n, **kw) for _ in others]  # type: ignore[call-overload]
        for i in _pieces(n, weight):
            z = logits_of(states[i], weight)
            if token_kernels.usable(z):
                token_kernels.read(z, ids[i], logp[i], entropy[i], lse[i])
            else:
                logp[i], entropy[i], lse[i] = _on(z.device, _forward)(z, ids[i])
            for k, o in enumerate(others):
                y = logits_of(o.states[i], o.weight)
                kl[k][i], theirs[k][i] = _on(z.device, _divergence)(z, lse[i], y, ids[i])
        ctx.save_for_backward(states, weight, ids, lse, entropy, *kl, *flat)
        ctx.others = len(others)
        ctx.mark_non_differentiable(*theirs)
        return (logp, entropy, *kl, *theirs)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> Any:
        states, weight, ids, lse, entropy, *rest = ctx.saved_tensors
        k = ctx.others
        kl, flat = rest[:k], rest[k:]
        others = [Other(*flat[i : i + 2]) for i in range(0, len(flat), 2)]
        grads = tuple(g.contiguous() for g in grads)  # that of a sum is one number, repeated
        wide = padded(weight)
        wide = weight if wide is None else wide
        want_states, want_weight = ctx.needs_input_grad[:2]
        d_states = torch.empty_like(states) if want_states else None
        d_weight = None
        for i in _pieces(len(ids), weight):
            z = logits_of(states[i], weight)
            given = (lse[i], entropy[i], grads[0][i], grads[1][i])
            if not others and token_kernels.usable(z):
                dz = token_kernels.gradient(z, ids[i], *given, len(wide), states.dtype)
            else:
                exact = _on(z.device, _gradient)(z, ids[i], *given)
                for number, o in enumerate(others):
                    y = logits_of(o.states[i], o.weight)
                    g = grads[2 + number][i]
                    exact = _on(z.device, _gradient_kl)(exact, z, lse[i], y, kl[number][i], g)
                dz = states.new_zeros((len(z), len(wide)))  # columns that are no words stay 0
                dz[:, : len(weight)].copy_(exact)
            if d_states is not None:
                d_states[i] = dz @ wide
            if want_weight:  # fp32: a sum over all pieces
                part = _product(dz.t(), states[i].t())
                d_weight = part if d_weight is None else d_weight.add_(part)
        if want_weight and d_weight is None:  # not one token
            d_weight = torch.zeros(wide.shape, device=weight.device)
        d_weight = None if d_weight is None else d_weight[: len(weight)].to(weight.dtype)
        return (d_states, d_weight, None, *[None] * len(flat))


def _pieces(n: int, weight: Tensor) -> list[slice]:
    """As few as may be, of one size but for the last."""
    most = max(1, PIECE // len(weight))
    size = max(1, -(-n // max(1, -(-n // most))))
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]
