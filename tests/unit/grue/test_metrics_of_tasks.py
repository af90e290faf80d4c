"""The metrics of a task's score: no number counts twice, and German is read as German."""

from __future__ import annotations

import pytest

from tether.config.catalog import kinds, load
from tether.config.errors import UserError
from tether.config.parts import build
from tether.metrics.base import Metric, Samples
from tether.studies.grue.metrics import entries, part_of
from tether.studies.grue.terms import GERMAN, Terms, house

TEXTS = [
    "a grey fox ran down the steep hill",
    "she gave him two red apples",
    "slept deeply the king",
    "at night the wolves came to the village",
]
REFERENCES = [
    ["a red fox ran down the steep hill", "the fox ran over a hill"],
    ["she gave him red apples", "two apples were given to him then"],
    ["the king slept for a year", "an old king slept deeply"],
    ["the wolves came at night", "to the village came the wolves"],
]
COLUMNS = {
    "concepts": [["fox", "hill"], ["apple", "give"], ["king", "castle"], ["wolf", "night"]],
    "table": [[["fox", "hill"]], [["apples", "red"]], [["king", "old"]], [["wolves", "night"]]],
}


@pytest.mark.parametrize("task", kinds("task"))
def test_no_two_metrics_of_a_score_are_one_number(task: str) -> None:
    """On answers of one sentence with several references; where summaries have several sentences
    ROUGE-Lsum is a metric of its own."""
    texts = [f"{t}. It was {n}." for t, n in zip(TEXTS, ("far", "late", "cold", "so"), strict=True)]
    rows = texts if task == "cnn_dailymail" else TEXTS
    several = [[f"It was {r[0][:9]}. {x}." for x in r] for r in REFERENCES]
    references = several if task == "cnn_dailymail" else REFERENCES
    found: dict[float, str] = {}
    for name in load("task", task).metrics:
        try:
            metric: Metric = build("metric", {"kind": name, **_OWN.get(name, {})})
            metric.check()
            value = metric(Samples(rows, references, ["a prompt"] * 4, COLUMNS)).value
        except UserError:
            continue  # a model or a package that is not here
        assert value not in found, f"{task}: {name} is {found[value]}"
        found[value] = name


_OWN = {"meteor": {"synonyms": False}}
"""Settings without which a metric needs what is not here."""


@pytest.mark.parametrize("task", GERMAN)
def test_umlauts_are_letters(task: str) -> None:
    """With rouge-score's own tokens `ein b r l uft` and `ein b rger l uft` share three of four."""
    assert "rouge_1" in load("task", task).metrics
    metric: Metric = build("metric", part_of("rouge_1", task, house(task), "a test"))
    value = metric(Samples(["Ein Bär läuft"], [["Ein Bürger läuft"]])).value
    assert value == pytest.approx(2 / 3)


def test_a_task_score_needs_a_metric() -> None:
    with pytest.raises(UserError, match=r"'metrics' of imdb is empty, .* or leave the key out"):
        entries("imdb", Terms(metrics=[]))
    assert entries("imdb", Terms(metrics=["chrf"], naturalness=[]))
