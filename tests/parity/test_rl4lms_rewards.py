"""The rewards of RL4LMs' recipes on a few completions, computed by hand.

METEOR is F (1 - .5 (chunks / m)^3) with F = P R / (.9 P + .1 R) over m aligned words; stems and
exact words only here, so that no WordNet is needed. Compositions: allenai/RL4LMs@97df0bd,
reward.py; arXiv 2210.01241, section 5.2.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from tether.config.catalog import CATALOG
from tether.config.compose import compose, recipe
from tether.config.errors import UserError
from tether.config.parts import build
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.combine import RewardSet


class Model:
    """A classifier that gives every text the same logits."""

    def __init__(self, labels: list[str], *logits: float) -> None:
        self.labels, self.row, self.notes = labels, torch.tensor([logits]), dict[str, Any]()

    def logits(self, texts: list[str], batch_size: int) -> torch.Tensor:
        return self.row.repeat(len(texts), 1)

    def probabilities(self, texts: list[str], batch_size: int) -> torch.Tensor:
        found = self.logits(texts, batch_size)
        return found.sigmoid() if len(self.labels) == 1 else found.softmax(-1)


def rewards_of(name: str, model: Model | None = None) -> RewardSet:
    """The rewards of a recipe without WordNet, with a model in the place of its learned one."""
    parts = copy.deepcopy(compose(name).rewards)
    for part in parts.values():
        metric = part.get("metric")
        if isinstance(metric, dict) and metric["kind"] == "meteor":
            metric["synonyms"] = False
    made = {k: build("reward", v) for k, v in parts.items()}
    if "intent" in made:
        made["intent"].metric.classifier = ClassifierReward.of(model)
    if "preference" in made:
        settings = parts["preference"]["preference"]
        made["preference"].preference = ClassifierReward.of(model, output=settings["output"])
    return RewardSet(made)


def scored(rewards: RewardSet, texts: list[str], prompt: str, **columns: Any) -> list[Any]:
    n = len(texts)
    batch = RewardBatch([prompt] * n, texts, [[1]] * n, {k: [v] * n for k, v in columns.items()})
    return rewards.score(batch).score


INTENTS = ["inform", "question", "directive", "commissive"]
# "i am fine" against "i am fine today": m 3, P 1, R 3/4, one chunk
FINE = (1 * 0.75) / (0.9 * 1 + 0.1 * 0.75) * (1 - 0.5 * (1 / 3) ** 3)


@pytest.mark.parametrize(
    ("name", "intent", "overlap"),
    [
        ("grue-dialog-ppo", 0.75, 0.25),
        ("grue-dialog-nlpo", 0.75, 0.25),
        ("rl4lms-dialog-supervised-ppo", 0.5, 0.5),
        ("rl4lms-dialog-supervised-nlpo", 0.25, 0.75),
    ],
)
def test_intent_and_meteor(name: str, intent: float, overlap: float) -> None:
    assert pytest.approx(0.754986, abs=1e-6) == FINE
    rewards = rewards_of(name, Model(INTENTS, 0.0, 2.0, 1.0, 0.0))  # always a question
    prompt = "hello<EOU>how are you ? <EOU>"
    for wanted, right in ((2, 1.0), (1, 0.0)):
        score = scored(rewards, ["i am fine", "nothing"], prompt, intent=wanted,
                       references=["i am fine today"])  # fmt: skip
        assert score == pytest.approx([intent * right + overlap * FINE, intent * right])


# "dog runs" against "the dog runs in the park": m 2, P 1, R 2/6, one chunk
RUNS = (1 * 2 / 6) / (0.9 * 1 + 0.1 * 2 / 6) * (1 - 0.5 * (1 / 2) ** 3)
CONCEPTS = {"concepts": ["dog", "run", "park"], "references": ["the dog runs in the park"]}
PROMPT = "generate a sentence with: dog run park."


@pytest.mark.parametrize("name", ["grue-commongen-ppo", "grue-commongen-nlpo"])
def test_meteor_with_the_penalty_for_repeating(name: str) -> None:
    assert pytest.approx(0.334821, abs=1e-6) == RUNS
    # "dog run park": three stems in order, P 1, R 3/6; aligned to words 2, 3 and 6: two chunks
    echo = (1 * 3 / 6) / (0.9 + 0.1 * 3 / 6) * (1 - 0.5 * (2 / 3) ** 3)
    texts = ["dog runs", "dog run park", "a sentence", ""]
    # "a sentence" has no word of the reference: 0 - 1
    assert scored(rewards_of(name), texts, PROMPT, **CONCEPTS) == pytest.approx(
        [RUNS, echo - 1.0, -1.0, 0.0]
    )


def test_preference_with_the_penalty_for_missing_concepts() -> None:
    """A reward model of pairs scores log 4: P(preferred) .8. "dog runs" lacks one concept of
    three, "park" two."""
    name = "rl4lms-commongen-supervised-ppo"
    rewards = rewards_of(name, Model(["score"], math.log(4.0)))
    # "park": m 1, P 1, R 1/6, one chunk of one word
    park = (1 / 6) / (0.9 + 0.1 / 6) * (1 - 0.5)
    got = scored(rewards, ["dog runs", "park"], PROMPT, **CONCEPTS)
    assert got == pytest.approx([RUNS + 0.8 / 2, park + 0.8 / 3])
    assert got == pytest.approx([0.734821, 0.357576], abs=1e-6)
    # a score below 0 is a small probability, never a negative reward that missing concepts raise
    low = rewards_of(name, Model(["score"], -math.log(4.0)))
    assert scored(low, ["dog runs"], PROMPT, **CONCEPTS) == pytest.approx([RUNS + 0.2 / 2])
    raw = rewards_of(name, Model(["score"], -1.0))
    raw.rewards["preference"].preference.output = "auto"  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"the preference gives -1 for 'dog runs'.*output to prob"):
        scored(raw, ["dog runs"], PROMPT, **CONCEPTS)


@pytest.mark.parametrize("name", [n for n in CATALOG["recipe"] if n.startswith("rl4lms-")])
def test_only_the_reward_differs_from_the_cell_of_grue(name: str) -> None:
    own, cell = recipe(name), recipe(name.replace("rl4lms-", "grue-"))
    rewards = own.pop("rewards")
    assert own == cell and "rewards" not in cell
    assert rewards != recipe_rewards(name.replace("rl4lms-", "grue-"))
    if "cnn" in name or name.endswith("commongen-supervised-nlpo"):
        assert rewards == {"meteor": {"kind": "metric", "metric": {"kind": "meteor"},
                                      "references": "references"}}  # fmt: skip


def recipe_rewards(name: str) -> dict[str, Any]:
    return {
        k: {n: v[n] for n in ("kind", "metric", "references", "weight") if n in v}
        for k, v in compose(name).rewards.items()
    }
