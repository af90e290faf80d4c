"""A metric that is a reward reads in the benchmark what the reward read in the run: prompts cut to
what the model was given, completions with their blanks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.config.parts import build
from tether.config.run import RunSettings
from tether.config.settings import parse
from tether.metrics.base import Metric
from tether.models.loading import load_tokenizer
from tether.recipes.toy import ASSETS
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.learned_metrics import IntentAccuracy, LearnedClassifier, PreferenceModel
from tether.studies.grue.anchors import Examples, anchor, examples, store
from tether.studies.grue.metrics import Entry
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
    s = settings(tmp_path)
    rows = examples(s, as_given=True)
    task = load_task(s.data, load_tokenizer(s.model), s.sampling)["test"]
    assert task is not None and task.notes["cut_too_long"] == 3
    assert list(rows.given) == task.raw_prompts != rows.prompts
    classifier = Lengths()
    reward = ClassifierReward.of(classifier, reads=reads)
    wanted = reward(RewardBatch(list(task.raw_prompts), TEXTS, [[]] * 4))
    before = list(classifier.read)
    metric = kind(reward)
    assert metric(rows.samples(TEXTS, metric)).per_sample == wanted
    some = metric(rows.samples(TEXTS, metric, [2, 0])).per_sample
    assert some == [wanted[2], wanted[0]]
    assert set(classifier.read) == set(before)
    found = anchor(entry(metric), rows)
    prompts = [str(p) for p in task.raw_prompts]
    first = prompts if reads == "prompt_and_completion" else [""] * 4
    copied = sum(len(a + b) for a, b in zip(first, prompts, strict=True)) / 4000
    assert (found.floor, found.floor_is) == (pytest.approx(copied), "copied prompt")


def test_others_read_whole_prompts_and_no_blanks(tmp_path: Path) -> None:
    rows = examples(settings(tmp_path), as_given=True)
    for metric in (build("metric", {"kind": "rouge_1"}), IntentAccuracy()):
        found = rows.samples(TEXTS, metric)
        assert list(found.texts) == [t.strip() for t in TEXTS]
        assert list(found.prompts or ()) == rows.prompts
    assert examples(settings(tmp_path)).given == ()


def test_anchors_of_other_cuts_are_refused(tmp_path: Path) -> None:
    metric = PreferenceModel(ClassifierReward.of(Lengths()))
    short, long = (examples(settings(tmp_path, n), as_given=True) for n in (12, 16))
    assert short.sha256 == long.sha256
    kept = store(tmp_path, "t", [entry(metric)], short)
    assert store(tmp_path, "t", [entry(metric)], short) == kept
    with pytest.raises(UserError, match="other test examples"):
        store(tmp_path, "t", [entry(metric)], long)
    plain = entry(build("metric", {"kind": "rouge_1"}))
    store(tmp_path, "u", [plain], short)
    store(tmp_path, "u", [plain], Examples(**{**vars(long), "given": ()}))
    assert "prompts_given_sha256" not in (tmp_path / "anchors" / "u.json").read_text()
