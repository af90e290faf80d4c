"""A benchmark's folder of made-up numbers: two tasks, rows and seeds as asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.reports.folders import point, write_run
from tether.config.json_file import digest

ANCHORS = [
    {"metric": "rouge_1", "family": "task", "signature": "rouge_1|x", "floor": 0.1,
     "floor_is": "copied prompt", "ceiling": 0.5, "ceiling_is": "maximum of the metric"},
    {"metric": "coverage", "family": "task", "signature": "coverage|x", "floor": 1.0,
     "floor_is": "copied prompt", "ceiling": 1.0, "ceiling_is": "maximum of the metric",
     "dropped": "its ceiling is not above its floor"},
    {"metric": "perplexity", "family": "naturalness", "signature": "perplexity",
     "ceiling_is": "initial model / policy"},
    {"metric": "chrf", "family": "other", "signature": "chrf|x"},
]  # fmt: skip
Value = Callable[[str, str, int], float]
"""(task, row, seed) -> rouge_1 of the final weights; that within 4 nats is .04 below."""


def anchors_of(task: str) -> dict[str, Any]:
    content = {"task": task, "examples": 2, "examples_sha256": "e", "metrics": ANCHORS}
    return {**content, "sha256": digest(content)}


def stamp(task: str) -> str:
    """Hash of the task's anchors."""
    return str(anchors_of(task)["sha256"])


def row(label: str, **more: Any) -> dict[str, Any]:
    about = {"method": label, "start": "", "tuned": True, "trained_on": "", "reference": ""}
    return about | more


def write(
    folder: Path,
    rows: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    value: Value,
    *,
    primary: Sequence[Sequence[str]] = (),
    unfinished: Sequence[str] = (),
    tasks: Sequence[str] = ("commongen", "imdb"),
    free: Sequence[Mapping[str, Any]] = (),
) -> Path:
    cells = []
    for task in tasks:
        (folder / "anchors").mkdir(parents=True, exist_ok=True)
        (folder / "anchors" / f"{task}.json").write_text(json.dumps(anchors_of(task)))
        for label, about in rows.items():
            for seed in seeds if label != "zero-shot" else seeds[:1]:
                name = f"{task}/{label.replace(' ', '_')}-seed{seed}"
                cells.append(
                    {"name": name, "task": task, "label": label, "seed": seed, "completions": 64}
                )
                if name not in unfinished:
                    _cell(folder / name, task, label, about, seed, value(task, label, seed))
    declared = {
        "mini": False, "tasks": list(tasks), "rows": dict(rows), "seeds": list(seeds),
        "budgets": [2.0, 4.0], "primary": list(primary), "margin": 0.01,
        "anchors": {t: stamp(t) for t in tasks}, "cells": cells, "free": list(free),
    }  # fmt: skip
    (folder / "grue.json").write_text(json.dumps(declared))
    return folder


def _cell(
    folder: Path, task: str, label: str, about: Mapping[str, Any], seed: int, rouge: float
) -> None:
    test = {"split": "test", "common": False}
    points = [point(0, 0.0, 0.3), point(2, 3.0, 0.4), point(4, 6.0, 0.5)]
    points += [
        point(4, 6.0, 0.5, weights="final", **test),
        point(0, 0.0, 0.3, weights="initial", **test),
        point(2, 3.0, 0.4, weights="budget:4", **test),
    ]
    write_run(folder, label, seed, points)
    if about["tuned"]:
        weights = [_weights(["final"], 4, 6.0, rouge), _weights(["budget:4"], 2, 3.0, rouge - 0.04),
                   _weights(["initial", "budget:2"], 0, 0.0, 0.1)]  # fmt: skip
    else:
        weights = [_weights(["final"], 0, 0.0, rouge, 40.0)]
    content = {"anchors": stamp(task), "weights": weights}
    (folder / "scores.json").write_text(json.dumps(content))


def _weights(
    names: Sequence[str], update: int, drift: float, rouge: float, perplexity: float = 50.0
) -> dict[str, Any]:
    return {
        "names": list(names), "policy": "exported", "update": update, "drift": drift,
        "reward": 0.4, "perplexity": perplexity,
        "values": {"rouge_1": rouge, "perplexity": perplexity, "chrf": 0.7},
        "left_out": {"rouge_1": [rouge - 0.04, rouge + 0.04], "chrf": [0.6, 0.8]},
    }  # fmt: skip
