"""Fitting a head and its backbone: AdamW over shuffled rows, in microbatches with one denominator.

    loss of a step = sum of the losses of its rows / number of its rows

whatever the microbatch, the last step of a pass included. Where the backbone computes in bf16, the
gradients of the microbatches are summed in fp32 and step fp32 masters, as in a policy's run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings, OptimizerSettings
from tether.core import weights as w
from tether.distributed.seeds import generator
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import build_classifier
from tether.train.optimizer import MasterOptimizer

Say = Callable[[str], None]
Item = TypeVar("Item")
GROUP = "model"
"""The optimizer's only group of weights."""


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


def schedule(step: int, steps: int, warmup_ratio: float) -> float:
    """Factor of the learning rate of step number `step` (0-based) of `steps`.

        min((step + 1) / W, (steps - step) / (steps - W), 1),   W = max(1, floor(ratio * steps))

    Linear warm-up over W steps, then linear decay, which would reach 0 at the step after the last.
    """
    warm = max(1, int(warmup_ratio * steps))
    return min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)


def fit(
    module: nn.Module,
    rows: int,
    settings: ClassifierSettings,
    draw: Callable[[list[int], torch.Generator], Sequence[Item]],
    losses: Callable[[Sequence[Item]], Tensor],
    say: Say,
) -> None:
    """AdamW on fp32 masters, gradients clipped to norm 1, with linear warm-up and decay.

    Args:
        rows: training rows; each is read once a pass, in an order of the seed and the pass.
        draw: (row numbers, generator) -> what the model reads of them, random crops included.
        losses: the same, or a part of it -> [n] losses with gradients.
    Raises:
        UserError: the loss or its gradient is not finite.
    """
    live = w.trainable(module)
    masters = {n: p if p.dtype == torch.float32 else p.detach().float() for n, p in live.items()}
    optimizer = MasterOptimizer(
        {GROUP: list(masters.values())},
        {GROUP: list(live.values())},
        OptimizerSettings(weight_decay=settings.weight_decay, max_grad_norm=1.0),
        total_steps=0,
    )
    per_epoch = -(-rows // settings.batch_size)
    steps = per_epoch * settings.epochs
    micro = settings.microbatch or settings.batch_size
    step, started, running = 0, time.perf_counter(), 0.0
    for epoch in range(settings.epochs):
        g = generator("classifier", settings.seed, epoch)
        order = torch.randperm(rows, generator=g)
        for index in order.split(settings.batch_size):
            items, loss = draw(index.tolist(), g), 0.0
            for start in range(0, len(items), micro):
                part = losses(items[start : start + micro]).sum() / len(items)
                part.backward()  # type: ignore[no-untyped-call]
                optimizer.add_gradients()
                loss += float(part.detach())
            if not math.isfinite(loss):
                raise UserError(f"the loss is {loss} at step {step + 1} of {steps}; lower lr")
            lr = settings.lr * schedule(step, steps, settings.warmup_ratio)
            norm = float(optimizer.step({GROUP: lr}, step)[GROUP])
            if not math.isfinite(norm):
                raise UserError(
                    f"the norm of the gradient is {norm} at step {step + 1} of {steps}; lower lr"
                )
            w.round_(live, masters)
            running = 0.95 * running + 0.05 * loss if step else loss
            step += 1
            if step % max(1, steps // 10) == 0:
                left = (time.perf_counter() - started) / step * (steps - step)
                say(f"step {step} of {steps}, loss {running:.3f}, {left:.0f} s left")
