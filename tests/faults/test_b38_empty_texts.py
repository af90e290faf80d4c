"""B38, the part of text gauges and built-in rewards: nothing written is legal, and scores 0."""

from __future__ import annotations

from pathlib import Path

from tether.metrics.text import common_ngram_share, distinct_n, mean_length, text_gauges
from tether.rewards.batch import RewardBatch
from tether.rewards.combine import RewardSet
from tether.rewards.contains import ContainsReward
from tether.rewards.length import LengthReward
from tether.rewards.lexicon import LexiconReward


def test_distinct_n_of_texts_of_which_one_is_empty() -> None:
    texts = [["a", "a", "b"], [], ["c"]]
    assert distinct_n(texts, 1) == 0.75
    assert distinct_n(texts, 2) == 1.0


def test_nothing_but_empty_texts_is_zero_not_perfect() -> None:
    assert distinct_n([[], []], 1) == 0.0
    assert distinct_n([[], []], 2) == 0.0
    assert common_ngram_share([[], ["a"]]) == 0.0
    assert mean_length([[], []]) == 0.0
    assert set(text_gauges([[1], [1]], [True, True]).values()) == {0.5, 0.0, 1.0}


def test_built_in_rewards_score_an_empty_completion(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text('{"good": 1}')
    rewards = RewardSet(
        {
            "lexicon": LexiconReward(str(path), mean=True),
            "length": LengthReward(unit="words"),
            "contains": ContainsReward(["good"]),
        }
    )
    assert rewards.score(RewardBatch(["p"], [""], [[1]])).score == [0.0]
    assert rewards.score(RewardBatch([], [], [])).score == []
