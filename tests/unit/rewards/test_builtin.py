"""Lexicon, length, contains, classifier and the TF-IDF judge, with numbers by hand."""

from __future__ import annotations

import gzip
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tether.config.errors import UserError
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.contains import ContainsReward
from tether.rewards.length import LengthReward
from tether.rewards.lexicon import LexiconReward, read_lexicon, words
from tether.rewards.tfidf import TfidfJudge, fit_tfidf, load_tfidf

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def batch(*texts: str, prompt: Any = "Good: ") -> RewardBatch:
    return RewardBatch([prompt] * len(texts), list(texts), [[1] * len(t.split()) for t in texts])


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".jsonl.gz", ".txt"])
def test_lexicon_files(tmp_path: Path, ending: str) -> None:
    weights = {"good": 2.0, "bad": -1.5}
    path = tmp_path / f"words{ending}"
    if ending == ".json":
        path.write_text(json.dumps(weights))
    elif ending == ".txt":
        path.write_text("good\t2.0\nbad -1.5\n")
    else:
        text = '{"word": "Good", "score": 2}\n{"token": "bad", "mean": -1.5}\n'
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    assert read_lexicon(path) == weights
    reward = LexiconReward(str(path))
    reward.check()
    assert reward(batch("good GOOD, bad!", "", "nothing")) == [2.5, 0.0, 0.0]
    assert reward(batch("good good good")) == [6.0]  # gameable by design
    assert LexiconReward(str(path), mean=True)(batch("good good bad x")) == [0.625]
    assert LexiconReward(str(path), reads="prompt_and_completion")(batch("bad")) == [0.5]


def test_lexicon_squashes(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text('{"good": 2.0}')
    value = {
        s: LexiconReward(str(path), squash=s, scale=0.5).value("good good")  # type: ignore[arg-type]
        for s in ("none", "tanh", "sigmoid", "vader")
    }
    assert value["none"] == 2.0
    assert value["tanh"] == pytest.approx(0.9640276)
    assert value["sigmoid"] == pytest.approx(0.8807971)
    assert value["vader"] == pytest.approx(2 / math.sqrt(19))


def test_lexicon_errors(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good\t1\nbad\tx\n")
    (tmp_path / "b.json").write_text("{}")
    for path, message in {"a.txt": "line 2", "b.json": "is empty", "c.json": "no file"}.items():
        with pytest.raises(UserError, match=message):
            LexiconReward(str(tmp_path / path)).check()
    with pytest.raises(UserError, match="needs `path`"):
        LexiconReward().check()
    assert words("It's good-natured, 10 of 10!") == ["it's", "good-natured", "of"]


@pytest.mark.skipif(not (SHARED / "lexicons").is_dir(), reason="../shared/data/lexicons is absent")
def test_lexicons_people_have() -> None:
    assert read_lexicon(SHARED / "lexicons" / "vader.jsonl.gz")["good"] == pytest.approx(1.9)
    assert read_lexicon(SHARED / "lexicons" / "afinn_en.jsonl.gz")["abandon"] == -2.0


def test_length() -> None:
    assert LengthReward()(batch("a b c", "")) == [3.0, 0.0]
    assert LengthReward(target=4)(batch("a b", "a b c d", "a b c d e")) == [-0.5, 0.0, -0.25]
    assert LengthReward(unit="characters")(batch("a b")) == [3.0]
    assert LengthReward(unit="words")(batch("a bb")) == [2.0]
    with pytest.raises(UserError, match="at least 1"):
        LengthReward(target=0).check()


def test_contains() -> None:
    texts = batch("The cat sat. A cat!", "category", "dog")
    assert ContainsReward(["cat", "dog"])(texts) == [1.0, 0.0, 1.0]
    assert ContainsReward(["cat", "dog"], mode="share")(texts) == [0.5, 0.0, 0.5]
    assert ContainsReward(["cat"], mode="count")(texts) == [2.0, 0.0, 0.0]
    assert ContainsReward(["cat"], absent=True)(texts) == [0.0, 1.0, 1.0]
    assert ContainsReward(["CAT"], case=True)(texts) == [0.0, 0.0, 0.0]
    with pytest.raises(UserError, match="needs `words`"):
        ContainsReward().check()


class FakeClassifier:
    """Counts "good" as evidence, and looks at gradient mode."""

    labels = ["negative", "positive"]

    def logits(self, texts: list[str], batch_size: int) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        good = torch.tensor([float(t.lower().count("good")) for t in texts])
        return torch.stack([-good, good], 1)

    def probabilities(self, texts: list[str], batch_size: int) -> torch.Tensor:
        return self.logits(texts, batch_size).softmax(-1)


def test_classifier_label_output_and_what_it_reads() -> None:
    def value(given: RewardBatch, **settings: Any) -> float:
        (x,) = ClassifierReward.of(FakeClassifier(), **settings)(given)
        return float(x)

    assert value(batch("good"), output="logit") == 2.0  # the prompt says "Good: "
    assert value(batch("good"), output="logit", reads="completion") == 1.0
    assert value(batch("good"), output="logit", label="negative") == -2.0
    assert value(batch("good"), output="logit", label=0) == -2.0
    assert value(batch("good"), label="1") == pytest.approx(1 / (1 + math.exp(-4)))
    chat = [{"role": "user", "content": "Good"}]
    assert batch("good", prompt=chat).joined_texts == ["Good\ngood"]
    with pytest.raises(UserError, match="did you mean 'positive'"):
        ClassifierReward.of(FakeClassifier(), label="postive").prepare()
    with pytest.raises(UserError, match="needs `path`"):
        ClassifierReward().check()


def test_classifier_in_several_threads_builds_no_graph() -> None:
    reward = ClassifierReward.of(FakeClassifier(), reads="completion", output="logit")
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda n: reward(batch("good " * n)), range(20)))
    assert got == [[float(n)] for n in range(20)]


TEXTS = ["a great warm film", "great fun and warm", "warm great acting"] * 3 + [
    "a dull cold film", "dull and cold", "cold dull acting",
] * 3  # fmt: skip
LABELS = [1] * 9 + [0] * 9


def test_tfidf_round_trip_and_score(tmp_path: Path) -> None:
    model = fit_tfidf(TEXTS, LABELS)
    assert model.accuracy(TEXTS, LABELS) == 1.0
    path = tmp_path / "judge.json"
    model.save(path)
    again = load_tfidf(path)
    texts = ["great warm", "dull", "", "unknown words"]
    assert again.probabilities(texts).tolist() == model.probabilities(texts).tolist()
    judge = TfidfJudge(str(path), reads="completion")
    judge.check()
    got = judge(batch(*texts))
    assert got[0] > 0.9 and got[1] < 0.2
    assert got[2] == got[3] == pytest.approx(float(1 / (1 + math.exp(-model.bias))))


def test_tfidf_has_scikit_learns_numbers() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text", reason="scikit-learn is absent")
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is absent")
    features = text.TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    x = features.fit_transform(TEXTS)
    theirs = linear.LogisticRegression(C=10.0, tol=1e-10, max_iter=2000).fit(x, LABELS)
    new = ["great warm film", "a cold film and dull", "film"]
    want = theirs.predict_proba(features.transform(new))[:, 1]
    mine = fit_tfidf(TEXTS, LABELS)
    assert mine.features(new).toarray() == pytest.approx(features.transform(new).toarray())
    assert mine.probabilities(new) == pytest.approx(want, abs=1e-4)


def test_tfidf_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two kinds"):
        fit_tfidf(["a b", "c d"], [1, 1])
    with pytest.raises(UserError, match="no term occurs in 2 of 2"):
        fit_tfidf(["aa", "bb"], [0, 1])
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(UserError, match="is not a judge file"):
        load_tfidf(tmp_path / "x.json")
    with pytest.raises(UserError, match="label '2' is not one of"):
        fit_tfidf(TEXTS, LABELS).accuracy(["great"], [2])
