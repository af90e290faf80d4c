"""Fitting a head and its backbone: AdamW over shuffled rows, in microbatches with one denominator.

    loss of a step = sum of the losses of its rows / number of its rows

whatever the microbatch, the last step of a pass included.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.core import weights as w
from tether.distributed.seeds import generator
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import build_classifier

Say = Callable[[str], None]
Item = TypeVar("Item")


def start_classifier(settings: ClassifierSettings, labels: list[str]) -> TextClassifier:
    """The untrained model; its notes name the weights that it starts from, for averaging."""
    seed = settings.seed if settings.start_seed is None else settings.start_seed
    out = build_classifier(settings.model, labels, seed=seed, max_tokens=settings.max_tokens)
    out.notes["initial"] = w.fingerprint(dict(out.module.named_parameters()))
    return out


def part_of(rows: int, half: str, share: float = 1.0) -> slice:
    """Which of so many shuffled rows are used: the beginning of the named half, at least one row.

    Raises UserError where the half has none: its row would be one of the other half.
    """
    middle = rows // 2
    start, stop = {"all": (0, rows), "first": (0, middle), "second": (middle, rows)}[half]
    if start == stop:
        raise UserError(f"data: {rows} training rows have no '{half}' half; give more rows")
    return slice(start, start + max(1, round(share * (stop - start))))


def fit(
    module: nn.Module,
    rows: int,
    settings: ClassifierSettings,
    draw: Callable[[list[int], torch.Generator], Sequence[Item]],
    losses: Callable[[Sequence[Item]], Tensor],
    say: Say,
) -> None:
    """AdamW with linear warm-up and decay; fp32 masters where the backbone trains in bf16.

    Args:
        rows: training rows; each is read once a pass, in an order of the seed and the pass.
        draw: (row numbers, generator) -> what the model reads of them, random crops included.
        losses: the same, or a part of it -> [n] losses with gradients.
    Raises:
        UserError: the loss or the gradient is not finite.
    """
    live = [p for p in module.parameters() if p.requires_grad]
    masters = [p if p.dtype == torch.float32 else p.detach().float() for p in live]
    optimizer = torch.optim.AdamW(masters, lr=settings.lr, weight_decay=settings.weight_decay)
    per_epoch = -(-rows // settings.batch_size)
    steps = per_epoch * settings.epochs
    warm = max(1, int(settings.warmup_ratio * steps))
    micro = settings.microbatch or settings.batch_size
    step, started, running = 0, time.perf_counter(), 0.0
    for epoch in range(settings.epochs):
        g = generator("classifier", settings.seed, epoch)
        order = torch.randperm(rows, generator=g)
        for index in order.split(settings.batch_size):
            factor = min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)
            optimizer.param_groups[0]["lr"] = settings.lr * factor
            items, loss = draw(index.tolist(), g), 0.0
            for start in range(0, len(items), micro):
                part = losses(items[start : start + micro]).sum() / len(items)
                part.backward()  # type: ignore[no-untyped-call]
                loss += float(part.detach())
            _take(masters, live)
            norm = float(torch.nn.utils.clip_grad_norm_(masters, 1.0))
            for name, value in (("loss", loss), ("gradient's norm", norm)):
                if not math.isfinite(value):
                    where = f"at step {step + 1} of {steps}"
                    raise UserError(f"the {name} is {value} {where}; lower lr")
            _step(optimizer, masters, live)
            running = 0.95 * running + 0.05 * loss if step else loss
            step += 1
            if step % max(1, steps // 10) == 0:
                left = (time.perf_counter() - started) / step * (steps - step)
                say(f"step {step} of {steps}, loss {running:.3f}, {left:.0f} s left")


def _take(masters: list[Tensor], live: list[Any]) -> None:
    """The gradients, to the masters."""
    for m, p in zip(masters, live, strict=True):
        if m is not p:
            m.grad, p.grad = (None if p.grad is None else p.grad.float()), None


def _step(optimizer: torch.optim.Optimizer, masters: list[Tensor], live: list[Any]) -> None:
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for m, p in zip(masters, live, strict=True):
            if m is not p:
                p.copy_(m)
