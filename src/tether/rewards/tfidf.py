"""A judge that is never a reward: TF-IDF features and logistic regression.

    tf(w, d) = 1 + log count;  idf(w) = log((1 + N) / (1 + df(w))) + 1;  x = tf * idf / |tf * idf|_2
    minimise  sum_i log(1 + exp(-y_i (w.x_i + b))) + |w|^2 / (2 C),  y_i = +-1, b not penalised

Weighting as scikit-learn's TfidfVectorizer(sublinear_tf=True) and LogisticRegression(C), whose
numbers a parity test reproduces; written with scipy so that scikit-learn is not needed. Stored as
JSON (no pickle). Source of the set-up: `judge` of the IMDB experiment, fitted on the half of the
labels that the reward never saw.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from tether.config.errors import UserError
from tether.config.whole_file import write_whole
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch

_TOKEN = re.compile(r"\b\w\w+\b")
_FORMAT = "tether-tfidf-1"


def terms(text: str, ngrams: int) -> list[str]:
    """Lower-cased words of two or more characters and their n-grams up to `ngrams`."""
    words = _TOKEN.findall(text.lower())
    out = list(words)
    for n in range(2, ngrams + 1):
        out += [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
    return out


@dataclass(frozen=True)
class TfidfModel:
    """A fitted judge."""

    vocabulary: dict[str, int]
    idf: NDArray[np.float64]
    coef: NDArray[np.float64]
    bias: float
    labels: tuple[str, str]
    """Negative, positive."""
    ngrams: int

    def features(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """[n, vocabulary], rows of length 1 (an empty or unknown text is a zero row)."""
        counted = [Counter(terms(t, self.ngrams)) for t in texts]
        return _matrix(counted, self.vocabulary, self.idf)

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """[n] probability of the positive label."""
        margin = self.features(texts) @ self.coef + self.bias
        return np.asarray(0.5 * (1.0 + np.tanh(margin / 2.0)))

    def accuracy(self, texts: Sequence[str], labels: Sequence[Any]) -> float:
        """Share of texts on the right side of 1/2. Raises UserError for labels it does not know."""
        if len(texts) != len(labels) or not len(texts):
            raise UserError(f"judge accuracy: {len(texts)} texts and {len(labels)} labels")
        names = [str(x) for x in labels]
        odd = next((x for x in names if x not in self.labels), None)
        if odd is not None:
            raise UserError(f"judge accuracy: label {odd!r} is not one of {list(self.labels)}")
        right = [
            (p > 0.5) == (x == self.labels[1])
            for p, x in zip(self.probabilities(texts), names, strict=True)
        ]
        return float(np.mean(right))

    @property
    def version(self) -> str:
        """`judge HASH`: 12 hexadecimal digits of what was fitted."""
        return f"judge {hashlib.sha256(self._content().encode()).hexdigest()[:12]}"

    def save(self, path: str | Path) -> None:
        """Write one JSON file, whole or not at all."""
        write_whole(Path(path), self._content())

    def _content(self) -> str:
        words = sorted(self.vocabulary, key=self.vocabulary.__getitem__)
        state = {
            "format": _FORMAT, "labels": self.labels, "ngrams": self.ngrams, "bias": self.bias,
            "words": words, "idf": self.idf.tolist(), "coef": self.coef.tolist(),
        }  # fmt: skip
        return json.dumps(state, ensure_ascii=False)


def load_tfidf(path: str | Path) -> TfidfModel:
    """Read what `TfidfModel.save` wrote. Raises UserError."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"tfidf judge: there is no file {path}; write one with fit_tfidf(...).save")
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["format"] != _FORMAT:
            raise ValueError(f"format {state['format']!r}")
        negative, positive = state["labels"]
        return TfidfModel(
            {w: i for i, w in enumerate(state["words"])},
            np.array(state["idf"]), np.array(state["coef"]), float(state["bias"]),
            (negative, positive), int(state["ngrams"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"tfidf judge: {path} is not a judge file ({error})") from error


def _matrix(
    counted: Sequence[Counter[str]], vocabulary: dict[str, int], idf: NDArray[np.float64]
) -> sparse.csr_matrix:
    rows, columns, values = [], [], []
    for i, counter in enumerate(counted):
        for term, count in counter.items():
            if (j := vocabulary.get(term)) is not None:
                rows.append(i)
                columns.append(j)
                values.append(count)
    weights = (1.0 + np.log(np.array(values, dtype=np.float64))) * idf[np.array(columns, dtype=int)]
    x = sparse.csr_matrix((weights, (rows, columns)), shape=(len(counted), len(vocabulary)))
    norm = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    return sparse.diags_array(1.0 / np.where(norm > 0, norm, 1.0)).dot(x).tocsr()


def fit_tfidf(
    texts: Sequence[str],
    labels: Sequence[Any],
    *,
    positive: Any = 1,
    ngrams: int = 2,
    min_count: int = 2,
    max_terms: int = 200_000,
    c: float = 10.0,
) -> TfidfModel:
    """Fit on two-class labels. `min_count` = documents a term must occur in; of more than
    `max_terms` the most frequent stay (ties by alphabet). Deterministic. Raises UserError."""
    names = [str(x) for x in labels]
    kinds = sorted(set(names))
    if len(texts) != len(names) or len(kinds) != 2 or str(positive) not in kinds:
        raise UserError(
            f"tfidf judge: {len(texts)} texts, {len(names)} labels of kinds {kinds[:5]}; it needs "
            f"one label a text, two kinds, one of them the positive label {str(positive)!r}"
        )
    counted = [Counter(terms(t, ngrams)) for t in texts]
    frequency = Counter(term for counter in counted for term in counter)
    kept = sorted(
        (t for t, n in frequency.items() if n >= min_count), key=lambda t: (-frequency[t], t)
    )
    kept = sorted(kept[:max_terms])
    if not kept:
        raise UserError(f"tfidf judge: no term occurs in {min_count} of {len(texts)} texts")
    vocabulary = {t: j for j, t in enumerate(kept)}
    df = np.array([frequency[t] for t in kept], dtype=np.float64)
    idf = np.log((1.0 + len(texts)) / (1.0 + df)) + 1.0
    x = _matrix(counted, vocabulary, idf)
    y = np.where(np.array(names) == str(positive), 1.0, -1.0)

    def objective(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = y * (x @ w[:-1] + w[-1])
        slope = -y * 0.5 * (1.0 - np.tanh(margin / 2.0))
        loss = np.logaddexp(0.0, -margin).sum() + (w[:-1] @ w[:-1]) / (2.0 * c)
        return float(loss), np.append(x.T @ slope + w[:-1] / c, slope.sum())

    start = np.zeros(len(kept) + 1)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    other = next(k for k in kinds if k != str(positive))
    return TfidfModel(
        vocabulary, idf, found.x[:-1], float(found.x[-1]), (other, str(positive)), ngrams
    )


@dataclass
class TfidfJudge(Reward):
    """Probability of the positive label by a fitted TF-IDF judge (`fit_tfidf(...).save(path)`)."""

    path: str = ""
    """JSON file of the fitted judge."""
    reads: Literal["completion", "prompt_and_completion"] = "prompt_and_completion"
    """What is judged."""

    @cached_property
    def _model(self) -> TfidfModel:
        if not self.path:
            raise UserError("a tfidf judge needs `path`: the file that fit_tfidf(...).save wrote")
        return load_tfidf(self.path)

    @cached_property
    def version(self) -> str:  # type: ignore[override]
        return self._model.version

    def check(self) -> None:
        self._model  # noqa: B018  raises where the file cannot be read

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        texts = batch.texts if self.reads == "completion" else batch.joined_texts
        return [float(x) for x in self._model.probabilities(texts)]
