"""Metrics as rewards, learned rewards as metrics, and RL4LMs' compositions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.wordnet_for_tests import write_wordnet
from tether.config.errors import UserError
from tether.config.parts import build, check
from tether.metrics.base import Samples
from tether.metrics.cider import DocumentFrequencies
from tether.metrics.meteor import Meteor
from tether.rewards import compositions
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.combine import RewardSet
from tether.rewards.concept_preference import ConceptPreference
from tether.rewards.learned_metrics import IntentAccuracy, LearnedClassifier, PreferenceModel
from tether.rewards.length import LengthReward
from tether.rewards.metric import MetricReward
from tether.rewards.repeat_penalty import RepeatPenalty


def batch(*texts: str, prompt: Any = "p", **columns: Any) -> RewardBatch:
    n = len(texts)
    return RewardBatch(
        [prompt] * n, list(texts), [[1]] * n, {k: [v] * n for k, v in columns.items()}
    )


def reward(metric: str, **settings: Any) -> MetricReward:
    made: MetricReward = build("reward", {"kind": "metric", "metric": metric, **settings})
    return made


def test_a_metric_is_a_reward() -> None:
    given = batch("the cat", " the dog\n", "", references=["the cat", "a cat"])
    assert reward("rouge_1")(given) == pytest.approx([1.0, 0.5, 0.0])
    assert reward("distinct_1")(batch("a a", "a b")) == [0.5, 1.0]
    assert reward("rouge_1", references="human")(batch("a", human="a")) == [1.0]  # a text alone


def test_less_is_better_turns_round() -> None:
    given = batch("a b c x", references="a b c d")
    assert reward("ter")(given) == pytest.approx([0.75])
    assert reward("common_ngram_share")(batch("a b c d", "a b")) == [-1.0, 0.0]


def test_the_white_space_around_is_not_measured() -> None:
    spaced = {"metric": {"kind": "length", "unit": "characters"}}
    assert build("reward", {"kind": "metric", **spaced})(batch(" ab ")) == [2.0]
    assert build("reward", {"kind": "metric", "strip": False, **spaced})(batch(" ab ")) == [4.0]


def test_columns_that_are_needed() -> None:
    assert reward("rouge_l", references="human").needs() == ("human",)
    assert reward("parent").needs() == ("references", "table")
    assert reward("coverage").needs() == ("concepts",)
    assert reward("length").needs() == ()
    rewards = RewardSet({"overlap": reward("rouge_l")})
    with pytest.raises(UserError, match="needs the column 'references'; did you mean 'reference'"):
        rewards.check(["prompt", "reference"])


def test_a_row_without_a_reference() -> None:
    given = RewardBatch(["p", "q"], ["a", "a"], [[1], [1]], {"references": [["a"], [""]]})
    with pytest.raises(UserError, match="row 2 has an empty reference"):
        reward("rouge_1")(given)
    assert reward("rouge_1", missing="drop")(given) == [1.0, None]


def test_what_cannot_be_a_reward_is_refused_before_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cider_d cannot be a reward: its weights would change"):
        reward("cider_d").check()
    with pytest.raises(UserError, match="mauve cannot be a reward: it has a value for a corpus"):
        reward("mauve").check()
    with pytest.raises(UserError, match="needs `metric`"):
        MetricReward().check()
    path = tmp_path / "df.json"
    DocumentFrequencies.of([["a cat"], ["a dog"], ["birds"]]).save(path)
    made = build("reward", {"kind": "metric", "metric": {"kind": "cider_d",
                                                         "frequencies": str(path)}})  # fmt: skip
    made.check()
    both = made(batch("a cat", "birds", references="a cat"))
    assert both[0] > both[1] == 0.0
    assert made(batch("a cat", references="a cat")) == both[:1]


def test_configuration() -> None:
    full = check("reward", {"kind": "metric", "metric": "rouge_l"})
    assert full["metric"]["kind"] == "rouge_l" and full["metric"]["stemmer"] is True
    with pytest.raises(UserError, match="did you mean 'rouge_l'"):
        check("reward", {"kind": "metric", "metric": "rouge_ll"})
    with pytest.raises(UserError, match="stemer"):
        check("reward", {"kind": "metric", "metric": {"kind": "rouge_l", "stemer": False}})


def test_repeat_penalty() -> None:
    prompt = "generate a sentence with: dog park run."
    texts = ["A dog runs in the park.", "Dog park run", "This Sentence is long.", "generates heat"]
    assert RepeatPenalty()(batch(*texts, prompt=prompt)) == [0.0, -1.0, -1.0, -1.0]
    assert RepeatPenalty(penalty=2.0)(batch("dog park run!", prompt=prompt)) == [-2.0]
    assert RepeatPenalty()(batch("dog park run", prompt="dog park run.")) == [0.0]  # no prefix
    assert RepeatPenalty(phrases=[])(batch("a sentence", prompt=prompt)) == [0.0]
    with pytest.raises(UserError, match="must not be empty"):
        RepeatPenalty(prefix="").check()


class Likes(Reward):
    """.8 for every text."""

    def __call__(self, given: RewardBatch) -> list[float]:
        return [0.8] * len(given)


def test_preference_with_missing_concepts() -> None:
    given = batch("a cat", "a cat sat", "x", concepts=["cat", "sit"], references="a cat sat")
    plain = ConceptPreference(preference=Likes(), meteor_coef=0.0)
    assert plain.needs() == ("concepts",)
    assert plain(given) == pytest.approx([0.8 / 2, 0.8, 0.8 / 3])
    meteor = Meteor(synonyms=False)
    own = meteor(Samples(["a cat", "a cat sat", "x"], [["a cat sat"]] * 3)).per_sample or []
    both = ConceptPreference(
        preference=Likes(), metric=meteor, meteor_coef=2.0, concept_penalty_coef=3.0
    )
    both.check()
    assert both.needs() == ("concepts", "references")
    want = [2 * m + 0.8 / d for m, d in zip(own, (4, 1, 7), strict=True)]
    assert both(given) == pytest.approx(want)
    with pytest.raises(UserError, match="at least 0"):
        ConceptPreference(preference=Likes(), concept_penalty_coef=-1.0).check()
    with pytest.raises(UserError, match="needs `path`"):
        ConceptPreference(meteor_coef=0.0).check()


class Intents:
    """Label 1 for a question mark, label 2 for `please`, else 0."""

    labels = ["inform", "question", "directive"]

    def logits(self, texts: list[str], batch_size: int) -> torch.Tensor:
        which = [1 if "?" in t else 2 if "please" in t else 0 for t in texts]
        return torch.eye(3)[which]

    def probabilities(self, texts: list[str], batch_size: int) -> torch.Tensor:
        return self.logits(texts, batch_size)


def test_intent_accuracy() -> None:
    metric = IntentAccuracy(classifier=ClassifierReward.of(Intents()))
    prompts = ["Why?<EOU>Sit down.<EOU>"] * 4
    columns = {"intent": [[2], "directive", 1, 3]}
    result = metric(Samples(["Who?", "please", "No.", "No."], None, prompts, columns))
    assert result.per_sample == [1.0, 1.0, 1.0, 0.0]  # the first turn's question mark is not read
    assert result.value == 0.75
    whole = IntentAccuracy(classifier=ClassifierReward.of(Intents()), reads="prompt_and_completion")
    assert whole(Samples(["No."], None, prompts[:1], {"intent": [2]})).value == 1.0
    with pytest.raises(UserError, match="row 1 asks for the intent 4"):
        metric(Samples(["x"], None, ["p"], {"intent": [4]}))


def test_learned_rewards_are_metrics() -> None:
    classifier = ClassifierReward.of(Intents(), label="question", reads="completion")
    result = LearnedClassifier(classifier=classifier)(Samples(["Who?", "No."]))
    assert (result.value, result.per_sample) == (0.5, [1.0, 0.0])
    assert result.settings["classifier"]["label"] == "question"
    liked = PreferenceModel(model=LengthReward(unit="words"))(Samples(["a b", ""]))
    assert liked.value == 1.0
    with pytest.raises(UserError, match="reads the columns"):
        PreferenceModel(model=reward("rouge_1")).check()


def test_compositions_are_configurations(tmp_path: Path) -> None:
    path = tmp_path / "df.json"
    DocumentFrequencies.of([["a"]]).save(path)
    wordnet = str(write_wordnet(tmp_path / "wordnet"))
    parts = {
        **compositions.meteor_with_repeat_penalty(),
        **compositions.rouge_combined(),
        **compositions.intent_and_meteor("folder", intent=0.5, overlap=0.5),
        **compositions.preference_with_concept_penalty("folder"),
        **{f"spider_{k}": v for k, v in compositions.spider_with_repeat_penalty(str(path)).items()},
    }
    made = {name: build("reward", part) for name, part in parts.items()}
    assert made["intent"].weight == 0.5 and made["intent"].metric.classifier.path == "folder"
    parts = compositions.meteor_with_repeat_penalty()
    parts["meteor"]["metric"]["wordnet"] = wordnet
    rewards = RewardSet({k: build("reward", v) for k, v in parts.items()})
    given = batch("car", "generate", prompt="generate a sentence with: car.", references="auto")
    assert rewards.score(given).score == pytest.approx([0.5 - 1.0, -1.0])
    mean = RewardSet({k: build("reward", v) for k, v in compositions.rouge_combined().items()})
    score = mean.score(batch("a b", references=["a c", "a b"])).score
    assert score == pytest.approx([(0.5 + 0.0 + 0.5) / 3])
