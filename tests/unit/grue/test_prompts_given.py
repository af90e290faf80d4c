"""A metric that is a reward reads in the benchmark what the reward read in the run: prompts cut to
what the model was given, completions with their blanks."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from tether.analysis.grue import Anchor
from tether.config.errors import UserError
from tether.config.parts import build
from tether.config.run import RunSettings
from tether.config.settings import parse
from tether.config.text_values import write_yaml
from tether.metrics.base import Metric
from tether.models.loading import load_tokenizer
from tether.recipes.toy import ASSETS
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.learned_metrics import IntentAccuracy, LearnedClassifier, PreferenceModel
from tether.rewards.metric import MetricReward
from tether.studies.grue.anchors import anchor, check_cuts, digest, examples, given, store
from tether.studies.grue.cells import Cell, jobs
from tether.studies.grue.methods import parse as parse_methods
from tether.studies.grue.metrics import Entry
from tether.studies.grue.mini import PRAISE
from tether.studies.grue.planning import Asked, plan_of
from tether.studies.grue.run import prepare
from tether.studies.grue.scoring import completions, score
from tether.tasks.loading import load_task

TEXTS = [" a reply", "b", "  twice blank ", ""]


class Lengths:
    """A classifier whose probability is the length of its text, in thousands of letters."""

    labels = ("no", "yes")

    def __init__(self) -> None:
        self.read: list[str] = []

    def probabilities(self, texts: list[str], batch_size: int) -> Tensor:
        self.read += texts
        yes = torch.tensor([len(t) / 1000 for t in texts])
        return torch.stack([1 - yes, yes], 1)


def settings(folder: Path, tokens: int = 12) -> RunSettings:
    for split in ("train", "test"):
        rows = [
            {"text": f"{split} {i} " + "word " * (8 * i) + "the end " * 4, "label": i % 2}
            for i in range(4)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    data = {
        "path": str(folder / "train.jsonl"), "test": str(folder / "test.jsonl"),
        "task": {"kind": "imdb"}, "validation_rows": 1, "max_prompt_tokens": tokens,
        "too_long": "truncate_left",
    }  # fmt: skip
    model = {"path": str(ASSETS / "model"), "device": "cpu", "dtype": "float32"}
    return parse({"data": data, "model": model, "evaluation": {"test_prompts": 4}})


def entry(metric: Metric) -> Entry:
    return Entry(metric.name, "task", metric, 1.0)


@pytest.mark.parametrize("reads", ["prompt_and_completion", "completion"])
@pytest.mark.parametrize("kind", [LearnedClassifier, PreferenceModel])
def test_as_the_reward(kind: type, reads: Any, tmp_path: Path) -> None:
    """Of a run: as a classifier, and as `--rewards` makes it."""
    s = settings(tmp_path)
    task = load_task(s.data, load_tokenizer(s.model), s.sampling)["test"]
    assert task is not None and task.notes["cut_too_long"] == 3
    rows = replace(examples(s), given=given(s))
    assert list(rows.given) == task.raw_prompts != rows.prompts
    classifier = Lengths()
    reward = ClassifierReward.of(classifier, reads=reads)
    batch = RewardBatch(list(task.raw_prompts), TEXTS, [[]] * 4)
    wanted = reward(batch)
    before = list(classifier.read)
    metric = kind(reward)
    assert MetricReward(metric=metric, strip=False)(batch) == wanted
    assert metric(rows.samples(TEXTS, metric)).per_sample == wanted
    some = metric(rows.samples(TEXTS, metric, [2, 0])).per_sample
    assert some == [wanted[2], wanted[0]]
    assert set(classifier.read) == set(before)
    found = anchor(entry(metric), rows)
    prompts = [str(p) for p in task.raw_prompts]
    doubled = [p + p for p in prompts] if reads == "prompt_and_completion" else rows.prompts
    copied = sum(map(len, doubled)) / 4000
    assert (found.floor, found.floor_is) == (pytest.approx(copied), "copied prompt")


def test_a_human_ceiling_reads_them_too(tmp_path: Path) -> None:
    """Where people wrote several references, the first is measured, after the prompt as given."""
    s = settings(tmp_path)
    rows = replace(examples(s), given=given(s))
    rows = replace(rows, references=[[r[0], "other"] for r in rows.references])
    found = anchor(entry(PreferenceModel(ClassifierReward.of(Lengths()))), rows)
    joined = [str(p) + r[0] for p, r in zip(rows.given, rows.references, strict=True)]
    assert found.ceiling == pytest.approx(sum(map(len, joined)) / 4000)


def test_what_each_metric_reads(tmp_path: Path) -> None:
    s = settings(tmp_path)
    rows = replace(examples(s), given=["cut"] * 4)
    bare, whole = [t.strip() for t in TEXTS], rows.prompts
    summac = build("metric", {"kind": "summac", "model": "somewhere"})
    for metric, texts, prompts in (
        (build("metric", {"kind": "rouge_1"}), bare, whole),
        (summac, bare, whole),
        (IntentAccuracy(), bare, rows.given),
        (IntentAccuracy(reads="completion"), bare, whole),
        (LearnedClassifier(), TEXTS, rows.given),
    ):
        found = rows.samples(TEXTS, metric)
        assert (list(found.texts), list(found.prompts or ())) == (texts, list(prompts))
    with pytest.raises(ValueError, match="none are here"):
        examples(s).samples(TEXTS, LearnedClassifier())


def test_the_reward_of_a_matrix_keeps_blanks_where_its_metric_does(tmp_path: Path) -> None:
    asked = Asked(["imdb"], ["ppo"], mini=True, rewards=["praise", "rouge_1"], out=tmp_path)
    rewards = {c.reward: j.settings.rewards for c, j in jobs(plan_of(asked)) if c.reward}
    assert rewards["praise"]["praise"]["strip"] is False
    assert rewards["rouge_1"]["rouge_1"]["strip"] is True


def test_anchors_are_not_computed_again_to_be_read(tmp_path: Path) -> None:
    """Nor is a tokenizer loaded for it. Those of an earlier version say what to do, but where no
    metric that counts reads the prompts."""
    s = settings(tmp_path)
    rows, calls = examples(s), []

    def prompts() -> list[Any]:
        calls.append(1)
        return list(given(s))

    metric = PreferenceModel(ClassifierReward.of(Lengths()))
    plain = entry(build("metric", {"kind": "rouge_1"}))
    dropped = Entry("preference", "task", metric, math.inf)  # has no largest value
    kept = store(tmp_path, "t", [entry(metric)], rows, prompts)
    assert store(tmp_path, "t", [entry(metric)], rows, prompts) == kept and calls == [1]
    file = tmp_path / "anchors" / "t.json"
    content = json.loads(file.read_text())
    assert content.pop("prompts_given_sha256") == digest(given(s))
    content["sha256"] = digest({k: v for k, v in content.items() if k != "sha256"})
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"t\.json is of an earlier version.*delete this file"):
        store(tmp_path, "t", [entry(metric)], rows, prompts)
    for name, listed in (("u", [plain]), ("v", [plain, dropped])):
        store(tmp_path, name, listed, rows, prompts)
        assert "prompts_given" not in (tmp_path / "anchors" / f"{name}.json").read_text()
        store(tmp_path, name, listed, rows, prompts)
    missing = Entry("preference", "task", None, math.inf, "no network")
    store(tmp_path, "w", [plain, missing], rows, prompts)
    store(tmp_path, "w", [plain, dropped], rows, prompts)  # it is there now, and stays dropped


def test_cells_are_measured_with_the_prompts_that_they_were_given(tmp_path: Path) -> None:
    """Whatever the anchors' were; each set of weights once."""
    lines = [
        {"split": split, "row": i, "update": 3, "policy": "exported", "prompt": "p" * (i + 1),
         "completion": " done"}
        for split in ("validation", "test") for i in range(4)
    ]  # fmt: skip
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    prompts, texts = completions(tmp_path, 4)[3, "exported"]
    assert (prompts, texts) == (["p", "pp", "ppp", "pppp"], [" done"] * 4)
    metric = PreferenceModel(ClassifierReward.of(Lengths()))
    point = {
        "kind": "eval", "agent": "agent", "split": "test", "update": 3, "weights": "final",
        "reward": 0.5, "reward_se": 0.1, "drift": {}, "policy": "exported", "policy_version": 3,
        "prompts": 4, "side": "", "common": False, "metrics": {},
    }  # fmt: skip
    (tmp_path / "record.jsonl").write_text(json.dumps(point) + "\n")
    cell = Cell("imdb", parse_methods(["ppo"])["ppo"], 0)
    rows = examples(settings(tmp_path))
    anchors = [Anchor("preference", "task", metric.signature, 0.0, "", 1.0, "")]
    assert score(tmp_path, cell, [entry(metric)], anchors, rows, "stamp")
    found = json.loads((tmp_path / "scores.json").read_text())["weights"][0]
    assert found["values"]["preference"] == pytest.approx((6 + 7 + 8 + 9) / 4000)


def test_one_cut_for_all_cells(tmp_path: Path) -> None:
    s = settings(tmp_path)
    metric = entry(PreferenceModel(ClassifierReward.of(Lengths())))
    other = replace(s.data, max_prompt_tokens=8)
    check_cuts("t", [metric], [s.data, s.data])
    check_cuts("t", [entry(build("metric", {"kind": "rouge_1"}))], [s.data, other])
    with pytest.raises(UserError, match=r"preference of t reads prompts.*once for all"):
        check_cuts("t", [metric], [s.data, other])
    open_ = replace(s.data, max_prompt_tokens=None)
    with pytest.raises(UserError, match=r"set data\.max_prompt_tokens, which is open"):
        check_cuts("t", [metric], [open_])
    check_cuts("t", [metric], [replace(open_, too_long="error")])
    whole = given(replace(s, data=replace(open_, too_long="error")))
    assert whole == examples(s).prompts
    terms = {"all": {}, "tuned": {"data": {"max_prompt_tokens": 8, "too_long": "truncate_left"}}}
    file = tmp_path / "settings.yaml"
    reading = {"kind": "preference", "model": {**PRAISE, "reads": "prompt_and_completion"}}
    write_yaml(file, {"tasks": {"imdb": {**terms, "parts": {"praise": {**reading, "maximum": 1}}}}})
    plan = plan_of(Asked(["imdb"], ["ppo"], mini=True, settings=file, out=tmp_path / "o"))
    with pytest.raises(UserError, match="praise of imdb reads prompts"):
        prepare(plan, jobs(plan), Console(quiet=True))
