"""B30: a learned reward gets text and tokenises it itself; the policy's ids mean nothing to it."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.combine import RewardSet

WORDS = ["the", "film", "is", "good", "bad", "</s>"]


def tokenizer(words: list[str]) -> Any:
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="</s>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="</s>")


class CountsGood:
    """A reward model that counts one id of its own vocabulary."""

    labels = ["count"]

    def __init__(self, mine: Any) -> None:
        self.tokenizer = mine

    def count(self, ids: list[int]) -> float:
        return float(ids.count(self.tokenizer.convert_tokens_to_ids("good")))

    def logits(self, texts: list[str], batch_size: int) -> torch.Tensor:
        return torch.tensor([[self.count(self.tokenizer(t)["input_ids"])] for t in texts])


def test_the_score_is_the_texts_in_whatever_vocabulary() -> None:
    policy, reward = tokenizer(WORDS), tokenizer([WORDS[i] for i in (3, 5, 0, 2, 1, 4)])
    texts = ["the film is good good", "good bad the", "bad bad"]
    ids = [policy(t)["input_ids"] for t in texts]
    model = CountsGood(reward)
    assert [model.count(x) for x in ids] != [2.0, 1.0, 0.0]  # the fault: foreign ids
    rewards = RewardSet({"good": ClassifierReward.of(model, output="logit")})
    batch = RewardBatch(["good "] * 3, texts, ids)
    assert rewards.score(batch).score == [3.0, 2.0, 1.0]
    alone = RewardSet({"good": ClassifierReward.of(model, output="logit", reads="completion")})
    assert alone.score(batch).score == [2.0, 1.0, 0.0]


def test_the_joined_text_is_tokenised_not_the_joined_tokens() -> None:
    model = CountsGood(tokenizer(WORDS))
    rewards = RewardSet({"good": ClassifierReward.of(model, output="logit")})
    # "go" + "od" is one word of the whole text and none of the parts
    assert rewards.score(RewardBatch(["the go"], ["od film"], [[0, 1]])).score == [1.0]
