"""B40: implementation, version, parameters and word list are in METEOR's result; a missing word
list is an error before training, not another score."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wordnet_for_tests import write_wordnet
from tether.config.errors import UserError
from tether.metrics.base import Samples
from tether.metrics.meteor import Meteor
from tether.rewards.combine import RewardSet
from tether.rewards.metric import MetricReward

PAIR = Samples(["car"], [["auto"]])


def test_what_decides_the_number_is_in_the_result(tmp_path: Path) -> None:
    folder = str(write_wordnet(tmp_path / "wordnet"))
    full = Meteor(wordnet=folder)(PAIR)
    assert "nltk " in full.version and "WordNet 9.9" in full.version
    for part in ("alpha=0.9", "beta=3.0", "gamma=0.5", "synonyms=True"):
        assert part in full.signature
    plain = Meteor(synonyms=False)(PAIR)
    assert "no WordNet" in plain.version and "synonyms=False" in plain.signature
    assert (full.value, plain.value) == (0.5, 0.0)


def test_a_missing_word_list_is_refused_at_start(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "wordnet")
    reward = MetricReward(metric=Meteor(wordnet=str(folder)))
    rewards = RewardSet({"meteor": reward})
    rewards.check(["references"])
    (folder / "index.noun").unlink()
    again = RewardSet({"meteor": MetricReward(metric=Meteor(wordnet=str(folder)))})
    with pytest.raises(UserError, match="meteor needs WordNet's database and finds none in"):
        again.check(["references"])


def test_an_unreadable_word_list_is_one_line(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "wordnet")
    (folder / "index.noun").write_text("car n one\n")
    with pytest.raises(UserError, match="is not a WordNet database that nltk can read") as caught:
        Meteor(wordnet=str(folder)).check()
    assert "\n" not in str(caught.value)


def test_where_nltk_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk.data

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    write_wordnet(tmp_path / "corpora" / "wordnet")
    assert Meteor()(PAIR).value == 0.5


def test_a_packed_word_list_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nltk's downloader may leave the archive as it came."""
    import nltk.data

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "wordnet.zip").write_bytes(b"")
    with pytest.raises(UserError, match=r"wordnet\.zip is packed; unzip it where it lies"):
        Meteor().check()
