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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tether.analysis.reward_models import class_report
from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
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
from tether.tasks.loading import splits
from tether.tasks.preferences import load_pairs
from tether.tasks.reading import utf8
from tether.train.disk import guarded
from tether.train.head_fit import fit, part_of, start_classifier
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
    if settings.model.dropout:
        raise UserError(
            "model.dropout cannot have an effect: a learned reward trains without dropout; leave "
            "it out"
        )
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
        column, label = settings.data.text, settings.data.label
        if column is None or label is None:
            raise UserError(
                "a classifier needs data.text and data.label: the columns of text and class"
            )
        self.settings = settings
        found = splits(settings.data)
        for table, numbers in found.values():
            for value, row in zip(table[column], numbers, strict=True):
                if value is None:
                    raise UserError(f"data: row {row}, column {column!r} holds None, expected text")
                utf8(value, row, column)
        train, _ = found["train"]
        rows = part_of(len(train[column]), settings.half, settings.share)
        self.texts = [str(t) for t in train[column][rows]]
        self.classes = [str(x) for x in train[label][rows]]
        self.tests = {
            k: ([str(x) for x in t[column]], [str(x) for x in t[label]])
            for k, (t, _) in found.items()
            if k != "train"
        }
        self.labels = sorted(set(self.classes))
        if len(self.labels) < 2:
            raise UserError(
                f"data.label {label!r} has only the value {self.labels}; a classifier needs two"
            )
        odd = next((x for _, y in self.tests.values() for x in y if x not in self.labels), None)
        if odd is not None:
            raise UserError(
                f"data.label {label!r}: {odd!r} is held out but is no class of the training rows "
                f"{self.labels}; use more rows, or a larger share"
            )

    def run(self, folder: Path, say: Say) -> dict[str, Any]:
        s = self.settings
        say(f"{len(self.texts)} training texts, classes {self.labels}")
        if s.kind == "tfidf":
            judge = fit_tfidf(self.texts, self.classes, positive=self.labels[-1])
            judge.save(folder / "judge.json")
            results: dict[str, Any] = {
                k: {"rows": len(y), "accuracy": judge.accuracy(x, y)}
                for k, (x, y) in self.tests.items()
            }
        else:
            classifier = start_classifier(s, self.labels)
            classifier.notes["kind"] = "classes"
            _fit(classifier, self.texts, self.classes, s, say)
            results = {k: evaluate_classes(classifier, x, y, s) for k, (x, y) in self.tests.items()}
            save_classifier(classifier, folder / MODEL)
        results["train_rows"] = len(self.texts)
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
