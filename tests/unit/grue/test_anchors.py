"""Anchors by hand: what an empty text, the prompt and people get on three examples."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tether.analysis.grue import Anchor
from tether.config.errors import UserError
from tether.config.parts import build
from tether.studies.grue.anchors import Examples, anchor, digest, store
from tether.studies.grue.metrics import Entry, entries
from tether.studies.grue.mini import METEOR
from tether.studies.grue.scoring import measure
from tether.studies.grue.terms import Terms

ONE = Examples(
    ["say: a cat", "say: two dogs", "say: a bird sings"],
    [["a cat sat"], ["two dogs ran"], ["a bird sings"]],
    {},
    "h",
)
SEVERAL = Examples(
    ["x y", "x y", "x y"],
    [["a b c d", "a b c e"], ["p q", "p r", "p q"], ["only one"]],
    {},
    "h",
)


def entry(
    name: str, family: str = "task", maximum: float | None = None, **settings: object
) -> Entry:
    metric = build("metric", {"kind": name, **settings})
    metric.check()
    metric.prepare()
    return Entry(name, family, metric, metric.best if maximum is None else maximum)  # type: ignore[arg-type]


def test_the_floor_is_the_copied_prompt_where_that_is_better() -> None:
    found = anchor(entry("rouge_1", stemmer=False), ONE)
    # F1 of "say a cat" and "a cat sat": 2/3 and 2/3; of the second the same; of the third:
    # precision 3/4, recall 1, F1 6/7
    assert found.floor == pytest.approx((2 / 3 + 2 / 3 + 6 / 7) / 3)
    assert (found.floor_is, found.ceiling, found.ceiling_is) == (
        "copied prompt",
        1.0,
        "maximum of the metric",
    )
    assert not found.dropped and found.signature.startswith("rouge_1|rouge-score")


def test_the_floor_is_the_empty_output_where_that_is_better() -> None:
    # every word of the prompt but none of the references: more edits than writing nothing
    rows = Examples(["q q q q q q q q", "q q q q q q q q"], [["a b"], ["c d"]], {}, "h")
    found = anchor(entry("ter"), rows)
    # 2 deletions... of an empty text: all words missing, TER 1; of the prompt 8 edits / 2 words
    assert (found.floor, found.floor_is, found.ceiling) == (1.0, "empty output", 0.0)


def test_with_several_references_the_ceiling_is_what_people_get() -> None:
    found = anchor(entry("rouge_1", stemmer=False), SEVERAL)
    # first against the others: 3 of 4 words; "p q" is among the others; the third has no other
    assert found.ceiling == pytest.approx((0.75 + 1.0) / 2)
    assert found.ceiling_is == "first reference against the others, 2 of 3 examples"


def test_a_metric_that_copying_the_prompt_wins_is_dropped() -> None:
    rows = Examples(["a cat", "a dog"], [["a cat"], ["a dog"]], {}, "h")
    found = anchor(entry("rouge_1"), rows)
    assert "its ceiling 1 (maximum of the metric) is not above its floor 1" in found.dropped


def apart(right: int, of: int) -> Examples:
    """People agree wholly on the first `right` examples, where the prompt has none of their words,
    and not at all on the others, where it has all."""
    prompts = ["x"] * right + ["a b"] * (of - right)
    references = [["a b", "a b"]] * right + [["p q", "a b"]] * (of - right)
    return Examples(prompts, references, {}, "h")


def test_ends_that_chance_could_turn_round_are_no_scale() -> None:
    """11 of 20: people .55, the prompt .45. The differences are 11 times 1 and 9 times -1: standard
    deviation sqrt(20 / 19 (1 - .01)) = 1.021, divided by sqrt(20) .23."""
    found = anchor(entry("rouge_1", stemmer=False), apart(11, 20))
    assert found.floor == pytest.approx(0.45) and found.ceiling == pytest.approx(0.55)
    assert found.dropped == (
        "its ceiling 0.55 (first reference against the others, 20 of 20 examples) and its floor "
        "0.45 (copied prompt) are less than 3 standard errors over examples (0.23) apart"
    )
    # 17 of 20: .7 apart, with sqrt(20 / 19 (1 - .49)) / sqrt(20) = .164 still more than three
    assert not anchor(entry("rouge_1", stemmer=False), apart(17, 20)).dropped
    assert anchor(entry("rouge_1", stemmer=False), apart(15, 20)).dropped  # .5 and .199: 2.5
    # of fewer examples an error says too little
    assert not anchor(entry("rouge_1", stemmer=False), apart(10, 19)).dropped


def test_a_metric_without_a_largest_value_is_dropped() -> None:
    found = anchor(entry("length"), ONE)
    assert found.dropped == "it has no largest value and the examples have one reference"
    stated = anchor(entry("length", maximum=100.0), ONE)
    assert not stated.dropped and stated.ceiling == 100.0


def test_what_is_only_measured_has_no_ends() -> None:
    found = anchor(entry("rouge_1", "other"), ONE)
    assert (found.floor, found.ceiling, found.family) == (None, None, "other")


def test_they_are_written_once_and_cannot_be_changed(tmp_path: Path) -> None:
    listed = [entry("rouge_1"), Entry("spice", "task", None, 1.0, "no Java")]
    first = store(tmp_path, "t", listed, ONE)
    file = tmp_path / "anchors" / "t.json"
    written = file.read_text()
    assert store(tmp_path, "t", listed, ONE) == first and file.read_text() == written
    assert [a.dropped for a in first] == ["", "no Java"]
    with pytest.raises(UserError, match="other test examples"):
        store(tmp_path, "t", listed, SEVERAL_HASHED)
    with pytest.raises(UserError, match="other metrics"):
        store(tmp_path, "t", [entry("rouge_2"), listed[1]], ONE)
    gone = Entry("rouge_1", "task", None, 1.0, "the package is gone")
    with pytest.raises(UserError, match="not to be had: the package is gone"):
        store(tmp_path, "t", [gone, listed[1]], ONE)
    content = json.loads(written)
    content["metrics"][0]["floor"] = 0.0
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match="changed after it was written"):
        store(tmp_path, "t", listed, ONE)


def test_subsets_are_measured_as_parts() -> None:
    rows = Examples(
        ["x", "x", "x"], [["a b c d"], ["a b c d"], ["p q r s"]],
        {"overlap_subset": [True, False, None]}, "h",
    )  # fmt: skip
    listed = [entry("sacre_bleu_by_overlap", "other"), entry("rouge_1")]
    values, parts, left_out = measure(listed, ["a b c d", "x", "p q r s"], rows)
    # 8 of 9 words are right, 6 of 6 pairs, 4 and 2 of the longer ones; 9 words against 12
    bleu = math.exp(1 - 12 / 9) * (8 / 9) ** 0.25
    assert values["sacre_bleu_by_overlap"] == pytest.approx(bleu)
    assert parts == {"sacre_bleu_by_overlap": pytest.approx({"overlap": 1.0, "non_overlap": 0.0})}
    assert set(left_out) == set(values)


def test_of_what_is_left_out_there_is_the_value_alone() -> None:
    texts = ["a b", "c", "d"]
    listed = [entry("rouge_1"), entry("rouge_2")]
    values, _, left_out = measure(listed, texts, ONE, {"rouge_2"})
    assert set(values) == {"rouge_1", "rouge_2"} and set(left_out) == {"rouge_1"}


SEVERAL_HASHED = Examples(SEVERAL.prompts, SEVERAL.references, {}, "other")


def test_perplexity_by_another_name(tmp_path: Path) -> None:
    parts = {"fluency": {"kind": "perplexity"}, "perplexity": {"kind": "rouge_1"}}
    terms = Terms(metrics=["perplexity"], naturalness=["fluency"], parts=parts)
    listed = entries("commongen", terms)
    found = {a.metric: a for a in store(tmp_path, "commongen", listed, ONE)}
    assert found["fluency"].is_perplexity and found["fluency"].counts("naturalness")
    assert not found["perplexity"].is_perplexity and found["perplexity"].ceiling == 1.0
    assert list(found.values()) == store(tmp_path, "commongen", listed, ONE)


def test_a_metric_that_has_left_the_score_is_said(tmp_path: Path) -> None:
    """It is still measured, so that names and signatures are the same."""
    terms = Terms(metrics=["rouge_1", "rouge_l"], naturalness=[])
    before = entries("commongen", terms)
    store(tmp_path, "commongen", before, ONE)
    after = entries("commongen", Terms(metrics=["rouge_1"], naturalness=[]), ["rouge_l"])
    assert {e.name for e in before} == {e.name for e in after}
    with pytest.raises(UserError, match=r"another of them in a score: .* delete this file"):
        store(tmp_path, "commongen", after, ONE)
    assert store(tmp_path, "commongen", before, ONE)


def test_a_task_without_any_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no metric of the task t can be used \(spice: no Java"):
        store(tmp_path, "t", [Entry("spice", "task", None, 1.0, "no Java")], ONE)
    assert not (tmp_path / "anchors").exists()


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2, "ü"]}) == digest({"b": [2, "ü"], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_metrics_of_a_task_have_the_settings_of_its_reward() -> None:
    terms = Terms(
        metrics=["meteor", "rouge_1"], naturalness=["perplexity"], parts={"meteor": METEOR}
    )
    found = entries("commongen", terms, ["chrf", "meteor"])
    assert [(e.name, e.family) for e in found] == [
        ("meteor", "task"),
        ("rouge_1", "task"),
        ("perplexity", "naturalness"),
        ("chrf", "other"),
    ]
    assert found[0].metric is not None and not found[0].metric.settings["synonyms"]
    beside = [e.name for e in entries("totto", Terms(naturalness=[])) if e.family == "other"]
    assert beside == ["sacre_bleu_by_overlap", "parent_by_overlap"]
    with pytest.raises(UserError, match="did you mean 'rouge_1'"):
        entries("commongen", Terms(metrics=["rouge1"]))
    with pytest.raises(UserError, match="is measured by a run, not on texts"):
        entries("commongen", Terms(metrics=["drift"]))


def test_what_cannot_be_computed_says_why() -> None:
    found = entries("imdb", Terms(naturalness=[], parts={"classifier": {
        "kind": "classifier", "classifier": {"path": "/nowhere/at/all"}}}))  # fmt: skip
    assert found[0].metric is None and "/nowhere/at/all" in found[0].missing
    assert isinstance(anchor(found[0], ONE), Anchor) and anchor(found[0], ONE).dropped
