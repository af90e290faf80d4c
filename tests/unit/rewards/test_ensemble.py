"""Ensembles: mean minus coef times the standard deviation, members called once each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tether.config.errors import UserError
from tether.config.parts import build, dump
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.combine import RewardSet
from tether.rewards.ensemble import EnsembleReward, penalised


class Fixed:
    """A reward model that says the same of every text."""

    labels = ["score"]

    def __init__(self, value: float, **notes: Any) -> None:
        self.value, self.notes, self.calls = value, notes, 0

    def logits(self, texts: list[str], batch_size: int) -> torch.Tensor:
        self.calls += 1
        return torch.full((len(texts), 1), self.value)

    def probabilities(self, texts: list[str], batch_size: int) -> torch.Tensor:
        return self.logits(texts, batch_size).sigmoid()


def batch(n: int = 1) -> RewardBatch:
    return RewardBatch(["p"] * n, ["c"] * n, [[1]] * n)


def members(*values: float, **notes: Any) -> list[ClassifierReward]:
    return [ClassifierReward.of(Fixed(v, **notes), path=str(i)) for i, v in enumerate(values)]


def test_by_hand() -> None:
    # 1 and 3: mean 2, standard deviation 1; 0, 0, 3: mean 1, variance 2
    assert penalised([[1.0], [3.0]], 0.5) == ([1.5], [1.0])
    (value,), (spread,) = penalised([[0.0], [0.0], [3.0]], 2.0)
    assert spread == pytest.approx(math.sqrt(2)) and value == pytest.approx(1 - 2 * math.sqrt(2))
    assert penalised([[4.0], [4.0]], 9.0) == ([4.0], [0.0])


def test_in_a_set_of_rewards() -> None:
    reward = EnsembleReward.of(members(1.0, 3.0), coef=0.5)
    found = RewardSet({"reward": reward}).score(batch(2))
    assert found.score == [1.5, 1.5]
    assert found.metrics == {"log.disagreement": 1.0}
    assert found.extra == {"disagreement": [1.0, 1.0]}


def test_members_are_normalised_by_their_own_numbers() -> None:
    a = ClassifierReward.of(
        Fixed(5.0, scores={"validation": {"mean": 1.0, "std": 2.0}}), normalise="validation"
    )
    b = ClassifierReward.of(
        Fixed(50.0, scores={"validation": {"mean": 10.0, "std": 20.0}}), normalise="validation"
    )
    assert EnsembleReward.of([a, b], coef=1.0)(batch()) == [2.0]


def test_a_reward_model_gives_its_raw_score_and_a_classifier_a_probability() -> None:
    assert ClassifierReward.of(Fixed(3.0))(batch()) == [3.0]
    (p,) = ClassifierReward.of(Fixed(3.0), output="probability")(batch())
    assert p == pytest.approx(1 / (1 + math.exp(-3)))


def test_what_cannot_be_normalised_is_refused() -> None:
    for reward, message in (
        (ClassifierReward.of(Fixed(1.0), normalise="test"), "unknown set 'test'"),
        (
            ClassifierReward.of(Fixed(1.0), normalise="test", output="probability"),
            "normalise is for raw scores",
        ),
        (
            ClassifierReward.of(
                Fixed(1.0, scores={"test": {"mean": 1.0, "std": 0.0}}), normalise="test"
            ),
            "all scores of test are equal",
        ),
        (
            ClassifierReward.of(
                Fixed(1.0, scores={"test": {"mean": -0.2, "std": 1.6e-8}}), normalise="test"
            ),
            r"all scores of test are equal or nearly so \(mean -0.2, standard deviation 1.6e-08\)",
        ),
        (
            ClassifierReward.of(
                Fixed(1.0, scores={"test": {"mean": 1e6, "std": 0.5}}), normalise="test"
            ),
            "equal or nearly so",
        ),
    ):
        with pytest.raises(UserError, match=message):
            reward.prepare()


def test_from_settings_and_back() -> None:
    part = {"kind": "ensemble", "paths": ["a", "b"], "coef": 0.25, "normalise": "validation"}
    reward = build("reward", part)
    assert isinstance(reward, EnsembleReward)
    kept = dump(reward, "reward")
    assert {k: kept[k] for k in part} == part


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"paths": ["a"]}, "two or more `paths`, not 1"),
        ({"paths": ["a", "a"]}, "stands twice"),
        ({"paths": ["a", "b"], "coef": -1.0}, "coef is -1.0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EnsembleReward(**settings).check()


def test_members_of_two_kinds_are_refused() -> None:
    class Classes(Fixed):
        labels = ["a", "b"]

    mixed = [ClassifierReward.of(Fixed(1.0)), ClassifierReward.of(Classes(1.0))]
    with pytest.raises(UserError, match="set output: logit"):
        EnsembleReward.of(mixed).prepare()


@pytest.mark.parametrize("again", ["runs/a/", "./runs/a", "runs/a/classifier", "runs/b/../a"])
def test_a_path_in_two_spellings_stands_twice(
    again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        folder = tmp_path / "runs" / name / "classifier"
        folder.mkdir(parents=True)
        (folder / "classifier.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="stands twice"):
        EnsembleReward(paths=["runs/a", again]).check()
    EnsembleReward(paths=["runs/a", "runs/b"]).check()
