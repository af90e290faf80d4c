"""Every metric of the catalog: odd texts, several references, duplicates, unicode, time.

A metric without its model or data gets a tiny one; one whose package or program cannot be replaced
is asked what it needs. What was seen is printed as a table at the end of the run.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import pytest_terminal_summary
from tests.unit.metrics.test_adapters import Entails, save_bert, save_convolution
from tests.wordnet_for_tests import write_wordnet
from tether.config.catalog import CATALOG, kinds, load
from tether.config.errors import UserError
from tether.config.parts import build
from tether.metrics.base import Metric, MetricResult, Samples
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.metric import MetricReward
from tether.types import Scores

NAMES = kinds("metric")
GAUGES = sorted(set(CATALOG["metric"]) - set(NAMES))
NEEDS = {"mauve": "mauve-text", "spice": "spice needs"}
"""Metrics whose work a test cannot stand in for: what their one line names."""
TEXT = """
the a small big red old man woman dog cat bird house park road car tree sits runs holds sees
finds near under over with and then while it was is there today quickly slowly"""
WORDS = TEXT.split()


def sentence(seed: int, length: int) -> str:
    """A sentence of `length` words, the same for a seed."""
    return " ".join(
        WORDS[(seed * 7919 + i * i * 31 + i * seed) % len(WORDS)] for i in range(length)
    )


def columns(n: int) -> dict[str, list[Any]]:
    table = [["name", "the red dog"], ["place", "park"], ["year", "1999"]]
    return {"concepts": [["dog", "park", "run"]] * n, "table": [table] * n, "intent": [1] * n,
            "overlap_subset": [(True, False, None)[i % 3] for i in range(n)]}  # fmt: skip


def samples(texts: Sequence[str], references: Sequence[Sequence[str]] | None = None) -> Samples:
    n = len(texts)
    prompts = ["It rained. A dog ran in the park."] * n
    return Samples(list(texts), references or [["the dog runs in the park"]] * n, prompts,
                   columns(n))  # fmt: skip


class Judge:
    """A classifier of two labels: how often the letter e occurs."""

    labels = ["few", "many"]

    def logits(self, texts: Sequence[str], batch_size: int) -> Tensor:
        e = torch.tensor([float(t.count("e")) for t in texts])
        return torch.stack([2.0 - e, e - 2.0], 1)

    def probabilities(self, texts: Sequence[str], batch_size: int) -> Tensor:
        return self.logits(texts, batch_size).softmax(-1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models and a WordNet of one synset."""
    out = tmp_path_factory.mktemp("metrics")
    write_wordnet(out / "wordnet")
    save_bert(out / "bert")
    save_bert(out / "bleurt", ["score"])
    save_convolution(out / "conv.bin")
    return out


def make(name: str, folder: Path) -> Metric:
    """The metric with what it needs."""
    judge = ClassifierReward.of(Judge())
    settings: dict[str, dict[str, Any]] = {
        "meteor": {"wordnet": str(folder / "wordnet")},
        "bert_score": {"model": str(folder / "bert"), "layer": 2, "device": "cpu"},
        "bleurt": {"model": str(folder / "bleurt"), "device": "cpu"},
        "summac": {"model": "given"},
        "summac_conv": {"model": "given", "weights": str(folder / "conv.bin")},
    }
    if name in ("classifier", "intent_accuracy", "preference"):
        made: Metric = load("metric", name)(**{
            "model" if name == "preference" else "classifier": judge
        })  # fmt: skip
        return made
    if name == "bert_score":
        pytest.importorskip("bert_score", reason="bert-score is absent")
    made = build("metric", {"kind": name, **settings.get(name, {})})
    if name in ("summac", "summac_conv"):
        made._model = Entails()  # type: ignore[attr-defined]
    return made


def ready(name: str, folder: Path, record_property: Callable[[str, object], None]) -> Metric:
    """A metric that can work here; for the others the test ends with what they need."""
    metric = make(name, folder)
    try:
        if name != "summac":
            metric.check()
    except UserError as e:
        assert name in NEEDS and NEEDS[name] in str(e) and "\n" not in str(e)
        limit = f"{metric.seconds_per_1000:g}"
        record_property("metric", (name, metric.version, "-", "-", "-", limit, f"needs: {e}"))
        pytest.skip(str(e))
    return metric


def sound(metric: Metric, result: MetricResult, n: int) -> None:
    """Finite, in bounds, complete, and fit for a file."""
    low, high = metric.bounds
    assert result.n == n and result.value is not None
    for value in (result.value, *(result.per_sample or [])):
        assert math.isfinite(value) and low - 1e-6 <= value <= high, value
    assert all(math.isfinite(x) for x in result.parts.values())
    assert len(result.per_sample or []) == (n if metric.per_sample else 0)
    assert result.name == metric.name and result.version and "\n" not in result.signature
    json.dumps([result.settings, result.parts, result.per_sample], allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_metric_on_odd_texts(
    name: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    metric = ready(name, folder, record_property)
    empty = metric(samples([""]))
    sound(metric, empty, 1)
    if metric.needs_references and metric.higher_is_better and name not in ("bleurt",):
        assert empty.value == 0.0  # nothing earns nothing (B38)
    sound(metric, metric(samples(["", "", ""])), 3)
    sound(metric, metric(samples(["dog"])), 1)
    sound(metric, metric(samples(["dog"], [["dog"]])), 1)
    odd = ["größer 猫 🐕‍🦺", "العربية نص", "a\u0301\u200b\ufeff", "\t\n ", "!!! ... ???", "𝔘𝔫𝔦"]
    sound(metric, metric(samples(odd, [[t if t.strip() else "x"] for t in odd])), len(odd))
    nothing = metric(samples([]))
    assert (nothing.value, nothing.n) == (None, 0)


@pytest.mark.parametrize("name", NAMES)
def test_metric_with_several_references_and_duplicates(
    name: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    metric = ready(name, folder, record_property)
    texts = [sentence(i, 8) for i in range(6)] + ["the dog runs in the park"]
    references = [[sentence(i + j, 8) for j in range(1 + i % 3)] for i in range(7)]
    result = metric(samples(texts, references))
    sound(metric, result, 7)
    order = [3, 0, 6, 2, 5, 1, 4]
    moved = metric(samples([texts[i] for i in order], [references[i] for i in order]))
    assert result.per_sample is not None and moved.per_sample is not None
    assert moved.per_sample == pytest.approx([result.per_sample[i] for i in order], abs=1e-5)
    assert name in ("msttr",) or moved.value == pytest.approx(result.value, abs=1e-5)
    twice = metric(samples([*texts, texts[0], texts[0]], [*references, *[references[0]] * 2]))
    assert twice.per_sample is not None
    assert twice.per_sample[7:] == [twice.per_sample[0]] * 2
    if metric.needs_references:
        among = metric(samples([references[0][0]], [[*references[1], references[0][0]]]))
        alone = metric(samples([references[0][0]], [references[1]]))
        assert among.value is not None and alone.value is not None
        if name not in ("cider_d", "bleurt"):  # weights of one document; a random model
            better = among.value >= alone.value - 1e-6
            assert better if metric.higher_is_better else among.value <= alone.value + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_metric_reads_prompts_only_where_it_says_so(
    name: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    """Without prompts: refused in one line, or the same numbers as with any. Texts of one prompt
    are scored apart, equal ones alike."""
    metric = ready(name, folder, record_property)
    given = samples([sentence(1, 6), "dog", sentence(1, 6)])
    bare = dataclasses.replace(given, prompts=None)
    result = metric(given)
    if metric.needs_prompts:
        with pytest.raises(UserError, match=f"^{name} reads the prompts, and none are given$"):
            metric(bare)
        other = metric(dataclasses.replace(given, prompts=["eeee"] * 3))
        assert other.per_sample != result.per_sample
    else:
        assert metric(bare) == result
    assert result.per_sample is not None and result.per_sample[0] == result.per_sample[2]
    assert metric.signature == result.signature


@pytest.mark.parametrize("name", NAMES)
def test_metric_refuses_what_is_no_text(
    name: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    """One line that names metric and row, not an error of the library's."""
    metric = ready(name, folder, record_property)
    given = samples(["dog", "the dog runs"])
    nothing: Any = None
    with pytest.raises(UserError, match=r"^\w+: row 2 of the texts holds None, expected text"):
        metric(dataclasses.replace(given, texts=["dog", nothing]))
    if metric.needs_references:
        with pytest.raises(UserError, match=r"^\w+: row 2 has an empty reference"):
            metric(dataclasses.replace(given, references=[["x"], nothing]))
    for column in metric.columns():
        bare = {**given.columns, column: [given.columns[column][0], None]}
        if not column.endswith("subset"):  # of a row that is in none
            with pytest.raises(UserError, match=r"^\w+: row 2 "):
                metric(dataclasses.replace(given, columns=bare))


@pytest.mark.parametrize("name", NAMES)
def test_metric_as_a_reward(
    name: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    metric = ready(name, folder, record_property)
    texts = ["", "dog", "the dog runs", "größer 猫", "dog"]
    given = samples(texts)
    reward = MetricReward(metric=metric)
    batch = RewardBatch(
        list(given.prompts or []), texts, [[1]] * 5,
        {**given.columns, "references": list(given.references or [])},
    )  # fmt: skip
    if metric.no_reward:
        with pytest.raises(UserError, match=f"{name} cannot be a reward"):
            reward.check()
        return
    assert set(reward.needs()) <= set(batch.columns)
    values = reward(batch)
    own = metric(given).per_sample
    assert values == [metric.as_reward(x) for x in own or []]
    assert values[1] == values[4]


@pytest.mark.parametrize("name", NAMES)
def test_metric_takes_the_time_of_its_card(
    name: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    metric = ready(name, folder, record_property)
    n = 1000
    texts = [sentence(i, 8 + i % 9) for i in range(n)]
    references = [[sentence(i + 1, 12), sentence(i + 5, 9)] for i in range(n)]
    given = samples(texts, references)
    metric(samples(["warm"], [["up"]]))
    start = time.perf_counter()
    result = metric(given)
    took = time.perf_counter() - start
    sound(metric, result, n)
    start = time.perf_counter()
    metric(given)
    again = time.perf_counter() - start
    row = (name, result.version, f"{result.value:.4f}", f"{took:.2f}", f"{again:.2f}",
           f"{metric.seconds_per_1000:g}", "")  # fmt: skip
    record_property("metric", row)
    assert took <= metric.seconds_per_1000


PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_metric_has_a_card(name: str) -> None:
    """A row in docs/metrics.md that gives its time and limit."""
    rows = [r for r in PAGE.splitlines() if r.startswith(f"| `{name}` |") and r.count(" | ") == 5]
    assert len(rows) == 1, f"{len(rows)} cards of {name}"
    seconds, limit = rows[0].split(" | ")[-1].rstrip(" |").split(" / ")
    assert float(limit) == load("metric", name).seconds_per_1000
    assert seconds == "-" if name in NEEDS else 0 < float(seconds) < float(limit)


def test_metric_gauges_have_a_limit() -> None:
    """One for all that are measured from a model's scores, in the same page."""
    assert f"1,000 texts of scores may take {LIMIT:g} s" in " ".join(PAGE.split())


def test_metric_table_is_printed() -> None:
    """At the end of the run: a row a metric, what it took beside what it may take."""
    lines: list[str] = []
    slow = ("slow", "own 1", "0.5", "9.99", "0.10", "10", "")
    absent = ("absent", "own 2", "-", "-", "-", "600", "needs: a program")
    reports = [SimpleNamespace(user_properties=[("metric", row)]) for row in (slow, absent)]
    reporter: Any = SimpleNamespace(
        stats={"passed": reports[:1], "skipped": reports[1:], "": [object()]},
        section=lines.append,
        write_line=lines.append,
    )
    pytest_terminal_summary(reporter)
    title, head, *rows = [" ".join(line.split()) for line in lines]
    assert title == "metrics on 1,000 rows"
    assert head == "metric version value 1,000 rows, s again, s card, s"
    assert rows == ["absent own 2 - - - 600 needs: a program", "slow own 1 0.5 9.99 0.10 10"]


LIMIT = 5.0
"""Seconds for the measurements of a model's scores on 1,000 texts, without the model."""


def scores(texts: Sequence[str]) -> tuple[Scores, Scores, Tensor]:
    """Policy and initial model as unigram models of bytes, log 1/256 and log 1/128 each."""
    lengths = [min(len(t.encode()), 64) for t in texts]
    mask = torch.arange(64)[None] < torch.tensor(lengths, dtype=torch.long)[:, None]
    policy = torch.where(mask, -math.log(128), float("nan"))
    initial = torch.where(mask, -math.log(256), float("nan"))
    kl = torch.where(mask, math.log(2), float("nan"))
    entropy = torch.where(mask, 1.0, float("nan"))
    return (
        Scores(policy, policy, entropy=entropy, exact_kl={"initial": kl}),
        Scores(initial, initial),
        mask,
    )


def gauge(name: str, texts: Sequence[str]) -> dict[str, float | None]:
    policy, initial, mask = scores(texts)
    measure = load("metric", name)
    if name == "drift":
        return dict(measure(policy, initial, mask).values)
    if name == "drift_on_human":
        return dict(measure(policy, mask, ["x"] * len(texts)).values)
    if name == "drift_on_domains":
        return dict(measure({"d": (policy, mask)}).values)
    if name == "perplexity_joined":
        ids = list("\n\n".join(texts).encode())
        return {name: measure(lambda window: [-math.log(128)] * (len(window) - 1), ids)}
    if name == "perplexity_by_group":
        return {k: v for k, (v, _) in measure(policy.logprobs, mask, ["x"] * len(texts)).items()}
    return {name: measure(policy.logprobs, mask)}


@pytest.mark.parametrize("name", GAUGES)
def test_metric_of_scores(name: str, record_property: Callable[[str, object], None]) -> None:
    """Measurements that a model's scores go into: nothing predicted is absent, never NaN."""
    assert not any(v is not None and math.isnan(v) for v in gauge(name, [""]).values())
    for texts in (["dog"], ["", "größer 猫", "dog", "dog"]):
        found = [v for v in gauge(name, texts).values() if v is not None]
        assert found and all(math.isfinite(v) for v in found)
    start = time.perf_counter()
    found_all = gauge(name, [sentence(i, 8 + i % 9) for i in range(1000)])
    took = time.perf_counter() - start
    values = [v for v in found_all.values() if v is not None]
    if "perplexity" in name:
        assert values == pytest.approx([128.0], rel=1e-5)
    record_property(
        "metric", (name, "tether", f"{values[0]:.4f}", f"{took:.2f}", "-", f"{LIMIT:g}", "")
    )
    assert took <= LIMIT
