"""Train a text classifier: a head on a language model's backbone, or a bag-of-words judge."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.distributed.seeds import generator
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import build_classifier, save_classifier
from tether.rewards.tfidf import fit_tfidf
from tether.tasks.loading import splits
from tether.train.provenance import write_environment

Say = Callable[[str], None]


def train_classifier(settings: ClassifierSettings, folder: Path, say: Say = print) -> Path:
    """Writes config.yaml, results.json and `classifier/` (or judge.json) into `folder`."""
    column, label = settings.data.text, settings.data.label
    if column is None or label is None:
        raise UserError(
            "a classifier needs data.text and data.label: the columns of text and class"
        )
    found = splits(settings.data)
    train, _ = found["train"]
    texts, classes = halves(train[column], train[label], settings.half)
    tests = {
        k: (t[column], [str(x) for x in t[label]]) for k, (t, _) in found.items() if k != "train"
    }
    labels = sorted(set(classes))
    if len(labels) < 2:
        raise UserError(f"data.label {label!r} has only the value {labels}; a classifier needs two")
    folder.mkdir(parents=True, exist_ok=True)
    write_yaml(folder / "config.yaml", dump(settings))
    write_environment(folder, settings)
    say(f"{len(texts)} training texts, classes {labels}")
    if settings.kind == "tfidf":
        model = fit_tfidf(texts, classes, positive=labels[-1])
        model.save(folder / "judge.json")
        results: dict[str, Any] = {
            k: {"rows": len(y), "accuracy": model.accuracy(x, y)} for k, (x, y) in tests.items()
        }
    else:
        classifier = build_classifier(
            settings.model, labels, seed=settings.seed, max_tokens=settings.max_tokens
        )
        _fit(classifier, texts, classes, settings, say)
        results = {k: _evaluate(classifier, x, y, settings) for k, (x, y) in tests.items()}
        save_classifier(classifier, folder / "classifier")
    results["train_rows"] = len(texts)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    say(json.dumps(results))
    return folder


def halves(texts: Sequence[Any], labels: Sequence[Any], half: str) -> tuple[list[str], list[str]]:
    """The named half of already shuffled rows: two halves share no row."""
    n = len(texts) // 2
    rows = {"all": slice(None), "first": slice(0, n), "second": slice(n, None)}[half]
    return [str(t) for t in texts[rows]], [str(x) for x in labels[rows]]


def crop(ids: Sequence[int], low: int, high: int, g: torch.Generator) -> list[int]:
    """A random stretch of low to high tokens (the whole, if the text is shorter)."""
    width = int(torch.randint(low, high + 1, (1,), generator=g))
    room = max(len(ids) - width, 0)
    start = int(torch.randint(0, room + 1, (1,), generator=g))
    return list(ids[start : start + width])


def _fit(
    classifier: TextClassifier,
    texts: list[str],
    classes: list[str],
    settings: ClassifierSettings,
    say: Say,
) -> None:
    """AdamW with linear warm-up and decay; fp32 masters where the backbone trains in bf16."""
    rows = classifier.encode(texts, max_tokens=4 * settings.max_tokens)
    target = torch.tensor([classifier.labels.index(c) for c in classes])
    live = [p for p in classifier.module.parameters() if p.requires_grad]
    masters = [p if p.dtype == torch.float32 else p.detach().float() for p in live]
    optimizer = torch.optim.AdamW(masters, lr=settings.lr, weight_decay=settings.weight_decay)
    per_epoch = -(-len(rows) // settings.batch_size)
    steps = per_epoch * settings.epochs
    warm = max(1, int(settings.warmup_ratio * steps))
    low, high = settings.crop_tokens
    step, started, running = 0, time.perf_counter(), 0.0
    for epoch in range(settings.epochs):
        g = generator("classifier", settings.seed, epoch)
        order = torch.randperm(len(rows), generator=g)
        for index in order.split(settings.batch_size):
            factor = min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)
            optimizer.param_groups[0]["lr"] = settings.lr * factor
            ids, mask = classifier.batch([crop(rows[i], low, high, g) for i in index.tolist()])
            logits = classifier.forward(ids, mask)
            loss = cross_entropy(logits, target[index].to(logits.device))
            loss.backward()
            _step(optimizer, masters, live)
            running = 0.95 * running + 0.05 * float(loss.detach()) if step else float(loss.detach())
            step += 1
            if step % max(1, steps // 10) == 0:
                left = (time.perf_counter() - started) / step * (steps - step)
                say(f"step {step} of {steps}, loss {running:.3f}, {left:.0f} s left")


def _step(optimizer: torch.optim.Optimizer, masters: list[Tensor], live: list[Any]) -> None:
    for m, p in zip(masters, live, strict=True):
        if m is not p:
            m.grad, p.grad = (None if p.grad is None else p.grad.float()), None
    torch.nn.utils.clip_grad_norm_(masters, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for m, p in zip(masters, live, strict=True):
            if m is not p:
                p.copy_(m)


def _evaluate(
    classifier: TextClassifier, texts: list[str], classes: list[str], settings: ClassifierSettings
) -> dict[str, Any]:
    """Accuracy on whole texts (their last `max_tokens`) and on excerpts of given lengths."""
    truth = [classifier.labels.index(c) for c in classes]

    def accuracy(given: list[str]) -> float:
        predicted = classifier.logits(given, batch_size=128).argmax(1).tolist()
        return sum(p == t for p, t in zip(predicted, truth, strict=True)) / len(truth)

    out: dict[str, Any] = {"rows": len(texts), "accuracy": accuracy(texts)}
    for n in settings.evaluate_crops:
        g = generator("excerpts", settings.seed, n)
        rows = classifier.encode(texts, max_tokens=4 * settings.max_tokens)
        excerpts = [
            classifier.tokenizer.decode(crop(r, n, n, g), skip_special_tokens=True) for r in rows
        ]
        out[f"accuracy_on_{n}_tokens"] = accuracy(excerpts)
    return out
