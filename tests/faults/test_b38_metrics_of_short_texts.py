"""B38, the metrics: an empty text scores 0, a word for a word 0 or 1, an empty reference is an
error with its row, and a number of one version is not one of another."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.runs_for_tests import make_world, settings
from tether.config.errors import UserError
from tether.config.parts import build
from tether.metrics.base import Metric, Samples
from tether.train.run import train

OVERLAP = ["rouge_1", "rouge_2", "rouge_l", "rouge_lsum", "rouge_l_max", "bleu", "sacre_bleu",
           "chrf", "cider_d"]  # fmt: skip


def metric(name: str) -> Metric:
    made: Metric = build("metric", name)
    return made


@pytest.mark.parametrize("name", OVERLAP)
def test_nothing_against_a_reference_is_zero(name: str) -> None:
    for text in ("", " ", "\n"):
        result = metric(name)(Samples([text], [["the cat sat"]]))
        assert (result.value, result.per_sample) == (0.0, [0.0])


@pytest.mark.parametrize("name", OVERLAP)
def test_one_wrong_word_is_zero(name: str) -> None:
    """Older sacrebleu gave 50 for it."""
    result = metric(name)(Samples(["yes"], [["on"]]))
    assert (result.value, result.per_sample) == (0.0, [0.0])


@pytest.mark.parametrize("name", ["rouge_1", "rouge_l", "rouge_lsum", "sacre_bleu", "chrf"])
def test_one_right_word_is_one(name: str) -> None:
    assert metric(name)(Samples(["yes"], [["yes"]])).per_sample == pytest.approx([1.0])


def test_what_a_text_is_too_short_for_is_zero() -> None:
    assert metric("rouge_2")(Samples(["yes"], [["yes"]])).value == 0.0
    assert metric("bleu")(Samples(["yes it is"], [["yes it is"]])).value == 0.0


def test_distinct_n_of_texts_of_which_one_is_empty() -> None:
    texts = Samples(["a a b", "", "c"])
    assert metric("distinct_1")(texts).value == 0.75
    assert metric("distinct_2")(texts).value == 1.0
    assert metric("distinct_1")(Samples(["", ""])).value == 0.0


@pytest.mark.parametrize("name", [*OVERLAP, "ter"])
@pytest.mark.parametrize("empty", [[], [""], ["a", " "]])
def test_an_empty_reference_is_an_error_with_its_row(name: str, empty: list[str]) -> None:
    with pytest.raises(UserError, match="row 2 has an empty reference"):
        metric(name)(Samples(["a", ""], [["a"], empty]))


@pytest.mark.parametrize("name", OVERLAP)
def test_a_result_carries_name_version_and_settings(name: str) -> None:
    result = metric(name)(Samples(["yes"], [["yes"]]))
    assert result.signature.startswith(f"{name}|") and result.settings
    assert any(c.isdigit() for c in result.version)


def test_a_run_says_which_metric_it_was_trained_on(tmp_path: Path) -> None:
    part = {"kind": "metric", "references": "reference"}
    changes = {
        "updates": 1,
        "rewards": {"reward": {**part, "metric": {"kind": "rouge_l", "tokens": "unicode"}}},
        "judges": {"judge": {**part, "metric": "sacre_bleu"}},
        "evaluation": {"every": 1, "human_rows": 0},
        "tethers": {},
    }
    folder = train(settings(make_world(tmp_path), changes))
    found = json.loads((folder / "environment.json").read_text())
    reward, judge = found["rewards"]["reward"], found["judges"]["judge"]
    assert reward["source"] == "metric rouge_l"
    assert reward["version"].startswith(f"rouge_l|rouge-score {version('rouge-score')}|")
    assert "tokens=unicode" in reward["version"]
    assert judge["version"].startswith(f"sacre_bleu|sacrebleu {version('sacrebleu')}|")
