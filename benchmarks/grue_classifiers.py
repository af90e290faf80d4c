"""The classifiers of reviews and of intents that the real runs of the benchmark need: a part of
`benchmarks.grue_real smollm2`, trained where they were not packed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.grue_study import INTENT, SENTIMENT, classifier_words, settings
from tether.studies.devices import visible_devices

READ_BY = {"imdb": SENTIMENT, "dailydialog": INTENT}
"""Task -> the classifier that its metrics read."""
CLASSIFIERS = {SENTIMENT: "sentiment", INTENT: "intent"}
"""Classifier -> what it is called in `benchmarks.grue_study.classifier_words`."""


def classifiers(tasks: Sequence[str], quick: bool, gpus: int = 0) -> None:
    """The classifiers that tasks read and that are not there, beside each other, each on a GPU of
    its own where there are as many.

    Raises CalledProcessError: one could not be trained; the others are there.
    """
    cards = visible_devices()[:gpus]
    model = settings(quick)["tasks"]["dailydialog"]["all"]["model"]
    made: dict[Path, tuple[str, subprocess.Popen[bytes]]] = {}
    for target in lacking(tasks):
        which = CLASSIFIERS[target]
        shutil.rmtree(Path("classifiers") / which, ignore_errors=True)
        card = {"CUDA_VISIBLE_DEVICES": cards[len(made) % len(cards)]} if cards else {}
        made[target] = which, training(classifier_words(which, model, quick), card)
    try:
        ended = {target: process.wait() for target, (_, process) in made.items()}
    finally:
        for _, process in made.values():
            process.kill()
            process.wait()
    for target in (t for t, status in ended.items() if not status):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path("classifiers") / made[target][0] / "classifier", target)
    for target in (t for t, status in ended.items() if status):
        raise subprocess.CalledProcessError(ended[target], made[target][1].args)


def training(words: Sequence[str], card: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """`tether` with those words, on a card that the environment names."""
    return subprocess.Popen([sys.executable, "-m", "tether", *words], env={**os.environ, **card})


def lacking(tasks: Sequence[str]) -> list[Path]:
    """Classifiers that some tasks read and that are not there."""
    read = dict.fromkeys(READ_BY[t] for t in tasks if t in READ_BY)
    return [target for target in read if not (target / "classifier.json").is_file()]
