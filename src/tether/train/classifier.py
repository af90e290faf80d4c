"""Train a learned reward: classes of texts or one score from pairs, on a language model's backbone;
or a bag-of-words judge.

The folder gets config.yaml first and results.json last, each whole or not at all: a folder with
results is complete and never written again, one without is trained anew by `tether resume`, to the
same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tether.analysis.reward_models import class_report
from tether.config.errors import UserError
from tether.config.run import ClassifierSettings, PairSettings
from tether.config.settings import dump
from tether.config.text_values import to_yaml
from tether.config.whole_file import write_whole
from tether.distributed.seeds import generator
from tether.distributed.total import world_size
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import save_classifier
from tether.records import finite
from tether.reports.reward_models import told
from tether.rewards.tfidf import fit_tfidf
from tether.tasks.preferences import load_pairs
from tether.train.disk import guarded
from tether.train.head_fit import fit, start_classifier
from tether.train.labelled import load_labelled
from tether.train.lock import writing
from tether.train.pairwise import train_pairs
from tether.train.provenance import write_environment

Say = Callable[[str], None]
RESULTS = "results.json"
MODEL = "classifier"
"""In the folder of a run: what was measured, and the model."""


def train_classifier(settings: ClassifierSettings, folder: Path, say: Say = print) -> Path:
    """Writes config.yaml, environment.json, `classifier/` (or judge.json) and results.json into
    `folder`. A folder that is complete is left as it is.

    Raises UserError for what the user can mend, before anything is written where possible.
    """
    if (folder / RESULTS).is_file():
        say(f"{folder} is complete already: nothing to train")
        return folder
    if world_size() > 1 or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("a learned reward trains in one process; start it without torchrun")
    _refuse_idle(settings)
    job = _PairJob(settings) if settings.kind == "pairs" else _ClassJob(settings)
    with guarded("config.yaml", folder):
        write_whole(folder / "config.yaml", to_yaml(dump(settings)))
    with writing(folder):
        shutil.rmtree(folder / MODEL, ignore_errors=True)  # a kill may have left it
        write_environment(folder, settings)
        with guarded(MODEL, folder):
            results = job.run(folder, say)
        write_results(folder, results)
    for line in told(results):
        say(line)
    return folder


def _refuse_idle(s: ClassifierSettings) -> None:
    """Raises UserError for a setting that this training does not read."""
    limit = "whole texts are read, up to max_tokens: set that"
    why = {
        "model.dropout": "a learned reward trains without dropout",
        "model.compile": "a learned reward trains with plain layers",
        "model.capture": "the passes of a learned reward are not recorded",
        "model.copies": "a learned reward is trained without copies of it",
        "model.gradient_checkpointing": "a learned reward keeps its activations; a smaller "
        "microbatch has fewer",
    }
    if s.data.task is None:  # a task proposes limits of prompts, which nobody wrote
        why |= {"data.too_long": limit, "data.max_prompt_tokens": limit}
        if s.kind == "pairs":
            why["data.too_long"] += ", and pairs.too_long for longer completions"
    if s.kind != "pairs":
        columns = f"kind is {s.kind}, which reads data.text and data.label"
        why |= {f"pairs.{f.name}": columns for f in fields(PairSettings)}
    plain = ClassifierSettings()
    for path, reason in why.items():
        section, name = path.split(".")
        if getattr(getattr(s, section), name) != getattr(getattr(plain, section), name):
            raise UserError(f"{path} cannot have an effect: {reason}; leave it out")


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """results.json, whole or absent; what is not finite is null."""
    text = json.dumps(finite(dict(results)), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(folder / RESULTS, text + "\n")


def crop(ids: Sequence[int], low: int, high: int, g: torch.Generator) -> list[int]:
    """A random stretch of low to high tokens (the whole, if the text is shorter)."""
    width = int(torch.randint(low, high + 1, (1,), generator=g))
    room = max(len(ids) - width, 0)
    start = int(torch.randint(0, room + 1, (1,), generator=g))
    return list(ids[start : start + width])


class _PairJob:
    """One score, from pairs."""

    def __init__(self, settings: ClassifierSettings) -> None:
        self.settings = settings
        self.found = load_pairs(settings.data, settings.pairs)

    def run(self, folder: Path, say: Say) -> dict[str, Any]:
        return train_pairs(self.settings, self.found, folder / MODEL, say)


class _ClassJob:
    """Classes of texts, by a head or a bag of words."""

    def __init__(self, settings: ClassifierSettings) -> None:
        self.settings = settings
        self.found = load_labelled(settings)

    def run(self, folder: Path, say: Say) -> dict[str, Any]:
        s = self.settings
        found = self.found
        labels = found.labels
        if found.dropped:
            say(f"{found.dropped} training rows are left out: their text is held out too")
        say(
            f"{len(found.texts)} training texts, classes {labels}; as a reward {labels[-1]!r} "
            "counts, the last, where `label` names no other"
        )
        if s.kind == "tfidf":
            judge = fit_tfidf(found.texts, found.classes, positive=labels[-1])
            judge.save(folder / "judge.json")
            results: dict[str, Any] = {
                k: {"rows": len(y), "accuracy": judge.accuracy(x, y)}
                for k, (x, y) in found.tests.items()
            }
        else:
            classifier = start_classifier(s, labels)
            classifier.notes["kind"] = "classes"
            _fit(classifier, found.texts, found.classes, s, say)
            results = {
                k: evaluate_classes(classifier, x, y, s) for k, (x, y) in found.tests.items()
            }
            save_classifier(classifier, folder / MODEL)
        if found.dropped:
            results["notes"] = {"train": {"dropped_text_held_out": found.dropped}}
        results["train_rows"] = len(found.texts)
        return results


def _fit(
    classifier: TextClassifier,
    texts: list[str],
    classes: list[str],
    settings: ClassifierSettings,
    say: Say,
) -> None:
    rows = classifier.encode(texts, max_tokens=4 * settings.max_tokens)
    target = [classifier.labels.index(c) for c in classes]
    low, high = settings.crop_tokens

    def draw(index: list[int], g: torch.Generator) -> list[tuple[list[int], int]]:
        return [(crop(rows[i], low, high, g), target[i]) for i in index]

    def losses(items: Sequence[tuple[list[int], int]]) -> Tensor:
        ids, mask = classifier.batch([classifier.closed(x) for x, _ in items])
        logits = classifier.forward(ids, mask)
        wanted = torch.tensor([y for _, y in items], device=logits.device)
        return cross_entropy(logits, wanted, reduction="none")

    fit(classifier.module, len(rows), settings, draw, losses, say)


def evaluate_classes(
    classifier: TextClassifier, texts: list[str], classes: list[str], settings: ClassifierSettings
) -> dict[str, Any]:
    """The report on whole texts (their last `max_tokens`), and accuracy on excerpts of given
    lengths."""
    truth = [classifier.labels.index(c) for c in classes]
    p = classifier.probabilities(texts, batch_size=128).double().numpy()
    out = class_report(p, truth, classifier.lengths(texts), bins=settings.bins)
    rows = classifier.encode(texts, max_tokens=4 * settings.max_tokens)
    for n in settings.evaluate_crops:
        g = generator("excerpts", settings.seed, n)
        excerpts = [
            classifier.tokenizer.decode(crop(r, n, n, g), skip_special_tokens=True) for r in rows
        ]
        predicted = classifier.logits(excerpts, batch_size=128).argmax(1).tolist()
        right = sum(p == t for p, t in zip(predicted, truth, strict=True))
        out[f"accuracy_on_{n}_tokens"] = right / len(truth)
    return out
