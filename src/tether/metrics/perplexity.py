"""Three perplexities with three names, and the rule for the first token (B41).

    pooled          exp(sum of all NLL / number of predicted tokens)
    mean_of_texts   mean over texts of exp(NLL of the text / its predicted tokens)
    joined          all texts as one, in windows that overlap (RL4LMs, Elastic Reset's two codes)

They are different quantities: never compare one with another. A model with a start token predicts
every token of a text after it; without one the first token is context and is not predicted. An
encoder-decoder model reads the prompt of a human text and predicts its completion. Where nothing is
predicted there is no number (None), never NaN. The value is always somebody's (whose) on something
(what); `human/perplexity` is the policy's, pooled, on human text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from tether.core.masking import local, masked_sum
from tether.models.tokenizing import pad
from tether.types import Sequences, Total

Weighting = Literal["tokens", "window_length", "windows"]


def whole_texts(
    rows: Sequence[Sequence[int]], start: int | None, pad_id: int, limit: int | None = None
) -> tuple[Sequences, list[int]]:
    """Ids of whole texts -> sequences whose completion is everything that is predicted.

    start: the model's start token (B41), or None: then the first token is the context. A row that
    begins with the start token is not given a second one. limit: predicted tokens at most.
    Returns the sequences and the indices of the rows kept: rows that predict nothing are left out.
    """
    prompts, completions, kept = [], [], []
    for i, row in enumerate(rows):
        ids = list(row)
        if start is not None and ids[:1] != [start]:
            ids = [start, *ids]
        if len(ids) > 1:
            prompts.append(ids[:1])
            completions.append(ids[1:][:limit])
            kept.append(i)
    prompt, prompt_mask = pad(prompts, "left", pad_id)
    completion, mask = pad(completions, "right", pad_id)
    return Sequences(prompt, prompt_mask, completion, mask), kept


def answered_texts(
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    pad_id: int,
    limit: int | None = None,
) -> tuple[Sequences, list[int]]:
    """For an encoder-decoder model: the prompt is read, every token of the answer is predicted.

    Not comparable with `whole_texts`, whose model predicts the prompt too. limit: predicted tokens
    at most. Returns the sequences and the indices of the rows kept: those with both sides.
    """
    pairs = zip(prompts, answers, strict=True)
    kept = [i for i, (p, a) in enumerate(pairs) if len(p) and len(a)]
    prompt, prompt_mask = pad([prompts[i] for i in kept], "right", pad_id)
    completion, mask = pad([answers[i][:limit] for i in kept], "right", pad_id)
    return Sequences(prompt, prompt_mask, completion, mask), kept


def halved_texts(
    rows: Sequence[Sequence[int]],
    pad_id: int,
    limit: int | None = None,
    room: int | None = None,
) -> tuple[Sequences, list[int]]:
    """For an encoder-decoder model and texts without a prompt: the first half of a text is read, at
    most `room` tokens of it, and what follows is predicted, at most `limit` tokens."""
    caps = [c for c in (limit, room) if c is not None]
    at = [min([len(r) // 2, *caps]) for r in rows]
    heads = [list(r[:n]) for r, n in zip(rows, at, strict=True)]
    tails = [list(r[n:]) for r, n in zip(rows, at, strict=True)]
    return answered_texts(heads, tails, pad_id, limit)


def nll_per_token(logprobs: Tensor, mask: Tensor, total: Total = local) -> float | None:
    """-sum of log-probs / predicted tokens, over all ranks, nats. logprobs, mask: [B,T]."""
    count = float(total(mask.sum().double()))
    return -float(_sum(logprobs, mask, total)) / count if count else None


def _sum(x: Tensor, mask: Tensor, total: Total) -> Tensor:
    return total(torch.where(mask, x.double(), 0.0).sum())


def pooled(logprobs: Tensor, mask: Tensor, total: Total = local) -> float | None:
    """exp(total NLL / predicted tokens). None where nothing is predicted."""
    nll = nll_per_token(logprobs, mask, total)
    return None if nll is None else _exp(nll)


def mean_of_texts(logprobs: Tensor, mask: Tensor, total: Total = local) -> float | None:
    """Mean of the texts' own perplexities: rare hard texts dominate it (B41)."""
    count = mask.sum(1)
    there = count > 0
    each = torch.where(mask, -logprobs.double(), 0.0).sum(1) / count.clamp(min=1)
    n = float(total(there.sum().double()))
    return float(total(torch.where(there, each.exp(), 0.0).sum())) / n if n else None


def _exp(x: float) -> float | None:
    """None where a double cannot hold it."""
    return math.exp(x) if x < 709.0 else None


def windows(length: int, window: int = 1024, stride: int = 512) -> Iterable[tuple[int, int, int]]:
    """(begin, end, first) of each window over a joined text: ids[begin:end] are read, those from
    `first` on are new in this window; ends advance by `stride`, so the first windows are shorter.
    Raises ValueError unless 0 < stride <= window."""
    if not 0 < stride <= window:
        raise ValueError(f"windows need 0 < stride <= window, got {stride} and {window}")
    for first in range(0, length, stride):
        yield max(first + stride - window, 0), min(first + stride, length), first


def joined(
    logprobs_of: Callable[[list[int]], Sequence[float] | Tensor],
    ids: Sequence[int],
    *,
    window: int = 1024,
    stride: int = 512,
    weighting: Weighting = "window_length",
) -> float | None:
    """Perplexity of one long text in overlapping windows.

    logprobs_of(ids of a window) -> log-probs of ids[1:], the first token being context.
    weighting:
        tokens         exp(sum of NLL / predicted tokens).
        window_length  RL4LMs, and with it Elastic Reset on IMDB: mean NLL of a window's new tokens
                       times how many they are, summed, over the length of the text (the very first
                       token is not predicted but counts). Texts joined by blank lines, window =
                       the model's 1024 positions, stride 512. Source: allenai/RL4LMs@97df0bd,
                       rl4lms/envs/text_generation/metric.py, `Perplexity.compute`.
        windows        Elastic Reset on StackLLaMA: unweighted mean over windows of their mean NLL;
                       texts joined by EOS.
    None where nothing is predicted.
    """
    total, count, means = 0.0, 0, []
    for begin, end, first in windows(len(ids), window, stride):
        at = logprobs_of(list(ids[begin:end]))
        new = list(at)[max(first - begin, 1) - 1 :]
        if not new:
            continue
        nll = -math.fsum(float(x) for x in new)
        means.append(nll / len(new))
        if weighting == "window_length":
            total, count = total + means[-1] * (end - first), count + (end - first)
        else:
            total, count = total + nll, count + len(new)
    if not means:
        return None
    return _exp(math.fsum(means) / len(means) if weighting == "windows" else total / count)


def by_group(
    logprobs: Tensor, mask: Tensor, groups: Sequence[object]
) -> dict[str, tuple[float, int]]:
    """group -> (pooled perplexity, predicted tokens) of its rows, in order of appearance. Groups
    that predict nothing are left out. Raises ValueError when there is not one group a row."""
    if len(groups) != len(mask):
        raise ValueError(f"{len(groups)} groups for {len(mask)} texts")
    names = [str(g) for g in groups]
    out = {}
    for name in dict.fromkeys(names):
        rows = torch.tensor([n == name for n in names], device=mask.device)
        value = pooled(logprobs[rows], mask[rows])
        if value is not None:
            out[name] = (value, int(masked_sum(mask[rows].float(), mask[rows])))
    return out
