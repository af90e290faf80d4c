"""One pass over the logits: log-sum-exp, the draw and its log-prob, the noise made on the way; and
one more kernel that writes the token and moves on.

The noise is a function of (seed, step, row, token) alone (Philox), so what a row draws depends
neither on the batch around it nor on how often a step was recorded, and no generator is needed
inside a graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tether.core.logprobs import log_softmax, pick
from tether.rollout.buffers import Inputs, Written

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without
    triton = None

PROGRAMS, MOST = 1024, 16
"""Enough to fill a large GPU: with fewer rows a row is cut into pieces, MOST at most."""


def choose(
    logits: Tensor, noise: Tensor | None, allowed: Tensor | None, temperature: float, full: bool
) -> tuple[Tensor, Tensor]:
    """In torch: [B,V] logits, Exp(1) noise or None (greedy) -> [B] tokens, [B] log-probs.

    `core.sampling.draw` with the logarithm taken of the noise instead of the exponential of the
    log-probs (p / e and log p - log e have the same largest element). full: log-probs of the free
    distribution instead of the one that samples.
    """
    logp = log_softmax(logits, temperature, allowed)
    token = (logp if noise is None else logp - noise.clamp(min=1e-30).log()).argmax(-1)
    return token, pick(log_softmax(logits) if full else logp, token)


if triton is not None:

    @triton.jit
    def _pieces(
        logits, allowed, out, seed, step, temperature, row_stride, V, SPLIT: tl.constexpr,
        BLOCK: tl.constexpr, GREEDY: tl.constexpr, MASKED: tl.constexpr, FULL: tl.constexpr,
    ):  # fmt: skip
        """A piece of a row: largest x, sum of exp(x - largest), the winner of the race (the largest
        exp(x) / e, kept relative to the largest x so far), its token and its logit."""
        b, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
        key, number = tl.load(seed), tl.load(step)
        warm = 1.0 / tl.cast(temperature, tl.float32)
        size = tl.cdiv(tl.cdiv(V, SPLIT), 4 * BLOCK) * 4 * BLOCK
        most = tl.full([], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        free = tl.full([], float("-inf"), tl.float32)
        free_total = tl.zeros([BLOCK], tl.float32)
        best = tl.full([BLOCK], -1.0, tl.float32)
        where = tl.zeros([BLOCK], tl.int32)
        chosen = tl.full([BLOCK], float("-inf"), tl.float32)
        if GREEDY:
            best = tl.full([BLOCK], float("-inf"), tl.float32)
        for i in range(piece * size, tl.minimum((piece + 1) * size, V), 4 * BLOCK):
            # one Philox call gives four numbers: those of four neighbouring blocks
            offset = ((number << 24) + b) * V + i + tl.arange(0, BLOCK)
            u0, u1, u2, u3 = tl.rand4x(key, offset)
            for j in tl.static_range(4):
                n = i + j * BLOCK + tl.arange(0, BLOCK)
                inside = n < V
                raw = tl.load(logits + b * row_stride + n, mask=inside, other=float("-inf"))
                raw = raw.to(tl.float32)
                x = raw * warm
                legal = inside
                if MASKED:
                    legal = inside & (tl.load(allowed + b * V + n, mask=inside, other=0) != 0)
                x = tl.where(legal, x, float("-inf"))
                new = tl.maximum(most, tl.max(x, 0))
                safe = tl.where(new == float("-inf"), 0.0, new)
                shrink = tl.exp(most - safe)
                p = tl.exp(x - safe)
                total = total * shrink + p
                most = new
                if FULL:
                    top = tl.maximum(free, tl.max(raw, 0))
                    free_total = free_total * tl.exp(free - top) + tl.exp(raw - top)
                    free = top
                if GREEDY:
                    score = x
                else:
                    u = u0 if j == 0 else (u1 if j == 1 else (u2 if j == 2 else u3))
                    # -log(1 - u): the small end, which decides for rare tokens, stays fine
                    e = tl.where(u < 1e-3, u * (1 + u * (0.5 + u * 0.33333334)), -tl.log(1 - u))
                    score = p / tl.maximum(e, 1e-30)
                    best = tl.where(best < 0, best, best * shrink)
                better = legal & (score > best)
                best = tl.where(better, score, best)
                where = tl.where(better, n, where)
                chosen = tl.where(better, raw if FULL else x, chosen)
        mass = tl.sum(total, 0)
        winner = tl.max(best, 0)
        if not GREEDY:
            winner = tl.where(winner > 0, tl.log(winner) + most, float("-inf"))
        at = tl.argmax(best, 0)
        here = tl.arange(0, BLOCK) == at
        place = out + (b * SPLIT + piece) * 5
        tl.store(place, free if FULL else most)
        tl.store(place + 1, tl.sum(free_total, 0) if FULL else mass)
        tl.store(place + 2, winner)
        tl.store(place + 3, tl.sum(tl.where(here, where, 0), 0).to(tl.float32, bitcast=True))
        tl.store(place + 4, tl.sum(tl.where(here, chosen, 0.0), 0))

    @triton.jit
    def _write(
        pieces, stops, done, newest, position, end, tokens, logprobs, step, pad, token_row,
        logprob_row, STOPS: tl.constexpr, SPLIT: tl.constexpr, WIDTH: tl.constexpr,
    ):  # fmt: skip
        """A row: its pieces together, and what a step leaves to the next one."""
        b = tl.program_id(0).to(tl.int64)
        s = tl.arange(0, WIDTH)
        ours = s < SPLIT
        place = pieces + (b * SPLIT + s) * 5
        most = tl.load(place, mask=ours, other=float("-inf"))
        total = tl.load(place + 1, mask=ours, other=0.0)
        best = tl.load(place + 2, mask=ours, other=float("-inf"))
        peak = tl.max(most, 0)
        lse = peak + tl.log(tl.sum(tl.where(total != 0, total * tl.exp(most - peak), 0.0), 0))
        here = s == tl.argmax(best, 0)
        at = tl.load(place + 3, mask=ours, other=0.0).to(tl.int32, bitcast=True)
        x = tl.load(place + 4, mask=ours, other=0.0)
        now, ended = tl.load(step), tl.load(done + b).to(tl.int32)
        token = tl.where(ended != 0, pad, tl.sum(tl.where(here, at, 0), 0)).to(tl.int64)
        tl.store(tokens + b * token_row + now, token)
        tl.store(logprobs + b * logprob_row + now, tl.sum(tl.where(here, x, 0.0), 0) - lse)
        tl.store(newest + b, token)
        for k in tl.static_range(STOPS):
            ended |= (tl.load(stops + k) == token).to(tl.int32)
        tl.store(done + b, ended != 0)
        tl.store(position + b, tl.load(position + b) + 1)
        tl.store(end + b, tl.load(end + b) + 1)


def draw_and_write(
    logits: Tensor,
    allowed: Tensor | None,
    seed: Tensor,
    i: Inputs,
    w: Written,
    stops: Tensor,
    *,
    pad: int,
    temperature: float,
    greedy: bool,
    full: bool,
) -> None:
    """`choose` and `write` as two kernels: logits [B,V], seed [1] int64 on the device."""
    b, v = logits.shape
    split = 1
    while split < MOST and b * split < PROGRAMS:
        split *= 2
    pieces = torch.empty((b, split, 5), dtype=torch.float32, device=logits.device)
    _pieces[(b, split)](
        logits, logits if allowed is None else allowed, pieces, seed, i.step, temperature,
        logits.stride(0), v, SPLIT=split, BLOCK=512, GREEDY=greedy, MASKED=allowed is not None,
        FULL=full,
    )  # fmt: skip
    _write[(b,)](
        pieces, stops, i.done, i.token, i.position, i.spans.tokens.end, w.token, w.logprob, i.step,
        pad, w.token.stride(0), w.logprob.stride(0), STOPS=len(stops), SPLIT=split,
        WIDTH=max(2, split), num_warps=1,
    )  # fmt: skip
    i.clock.add_(1)


def write(
    token: Tensor, logprob: Tensor, i: Inputs, w: Written, stops: Tensor, *, pad: int
) -> None:
    """What was drawn ([B] each) to its place; rows that have ended get pad; on to the next."""
    token = torch.where(i.done, pad, token)
    w.token.index_copy_(1, i.step, token[:, None])
    w.logprob.index_copy_(1, i.step, logprob[:, None])
    i.done |= torch.isin(token, stops)
    i.token.copy_(token)
    i.position += 1
    i.spans.tokens.end += 1
    i.clock += 1
