"""How good a reward model is: accuracy, AUC, calibration, and what length has to do with it.

All functions take plain arrays of one number a row. What cannot be said of the rows at hand (a
correlation with a constant, an accuracy over no pairs) is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]
_EDGE = 1e-9
"""A confidence this close to the edge of two bins counts as on it: .6 is not 6.000001 tenths."""


def auc(positive: ArrayLike, negative: ArrayLike) -> float | None:
    """Chance that a random positive scores above a random negative, a tie counting one half.

        U / (n_p n_n),  U = sum of the ranks of the positives - n_p (n_p + 1) / 2

    Source: the Mann-Whitney statistic; equal to the area under the ROC curve (Hanley and McNeil
    1982). Args: scores, [n_p] and [n_n]. Returns None where one of them is empty.
    """
    p, n = _array(positive), _array(negative)
    if not len(p) or not len(n):
        return None
    ranks = rankdata(np.concatenate([p, n]))
    u = ranks[: len(p)].sum() - len(p) * (len(p) + 1) / 2
    return float(u / (len(p) * len(n)))


def reliability(
    confidence: ArrayLike, correct: ArrayLike, *, bins: int = 10, low: float = 0.0
) -> dict[str, Any]:
    """Expected calibration error and the table it is computed from.

        ECE = sum_b n_b / n |accuracy_b - confidence_b|,   bins ](b - 1) / B, b / B] of [low, 1]

    Source: Naeini et al. 2015; Guo et al. 2017, arXiv 1706.04599, equation 3.
    Args:
        confidence: [n] probability given to the predicted answer.
        correct: [n] 1 where it was right, 0 where not, 1/2 for a coin's toss.
        bins: number of bins of equal width. low: least confidence there can be (1/2 of a pair).
    Returns:
        {"ece", "bins": [{"low", "high", "rows", "confidence", "accuracy"}]}; empty bins have None.
    """
    c, y = _array(confidence), _array(correct)
    if len(c) != len(y):
        raise ValueError(f"{len(c)} confidences and {len(y)} answers")
    place = np.ceil((c - low) / (1 - low) * bins - _EDGE).astype(int) - 1
    place = place.clip(0, bins - 1)
    table: list[dict[str, Any]] = []
    error = 0.0
    for b in range(bins):
        here = place == b
        n = int(here.sum())
        mean_c, mean_y = _mean(c[here]), _mean(y[here])
        if mean_c is not None and mean_y is not None:
            error += n / len(c) * abs(mean_y - mean_c)
        edges = [low + (1 - low) * k / bins for k in (b, b + 1)]
        table.append(
            {"low": edges[0], "high": edges[1], "rows": n, "confidence": mean_c, "accuracy": mean_y}
        )
    return {"ece": error if len(c) else None, "bins": table}


def pearson(x: ArrayLike, y: ArrayLike) -> float | None:
    """Correlation; None where one side is constant or there are fewer than two rows."""
    a, b = _array(x), _array(y)
    if len(a) < 2 or not np.ptp(a) or not np.ptp(b):
        return None  # the mean of equal numbers is rounded: they would vary about it
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    return float(a @ b) / scale if scale > 0 else None


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Rank correlation, ties by mean ranks; None as in `pearson`."""
    a, b = _array(x), _array(y)
    return pearson(rankdata(a), rankdata(b)) if len(a) > 1 else None


def pair_report(
    chosen: ArrayLike,
    rejected: ArrayLike,
    chosen_length: ArrayLike,
    rejected_length: ArrayLike,
    *,
    bins: int = 10,
) -> dict[str, Any]:
    """Everything about a pairwise reward model on one set of pairs.

    Args:
        chosen, rejected: [n] raw scores. *_length: [n] lengths of the completions, in tokens.
    Returns:
        rows; loss (mean Bradley-Terry loss, nats); accuracy (a tie is one half); auc (of chosen
        against rejected scores over all prompts); auc_within (of score differences in both
        directions); calibration; length_bias.
    """
    c, r = _array(chosen), _array(rejected)
    margin = c - r
    right = _right(margin)
    confidence = 1 / (1 + np.exp(-np.abs(margin)))
    return {
        "rows": len(c),
        "loss": _mean(np.logaddexp(0.0, -margin)),
        "accuracy": _mean(right),
        "auc": auc(c, r),
        "auc_within": auc(margin, -margin),
        "calibration": reliability(confidence, right, bins=bins, low=0.5),
        "length_bias": length_bias(c, r, chosen_length, rejected_length),
    }


def length_bias(
    chosen: ArrayLike, rejected: ArrayLike, chosen_length: ArrayLike, rejected_length: ArrayLike
) -> dict[str, Any]:
    """How far length explains who wins, and how far it explains the scores.

    Source of the question: Singhal et al. 2023, arXiv 2310.03716.
    Returns:
        winner_longer, winner_shorter, equal: shares of pairs; accuracy_longer_won,
        accuracy_shorter_won, accuracy_equal: of the model on those pairs; accuracy_of_length: of
        the rule "the longer one wins"; model_prefers_longer: share of pairs of unequal length;
        pearson, spearman: of score and length over all completions; pearson_within: of the
        differences within pairs, each in both directions.
    """
    c, r = _array(chosen), _array(rejected)
    longer = _array(chosen_length) - _array(rejected_length)
    right = _right(c - r)
    unequal = longer != 0
    says_longer = np.where(longer > 0, right, 1 - right)[unequal]
    scores = np.concatenate([c, r])
    lengths = np.concatenate([_array(chosen_length), _array(rejected_length)])
    both = np.concatenate([c - r, r - c]), np.concatenate([longer, -longer])
    return {
        "winner_longer": _mean((longer > 0).astype(float)),
        "winner_shorter": _mean((longer < 0).astype(float)),
        "equal": _mean((longer == 0).astype(float)),
        "accuracy_longer_won": _mean(right[longer > 0]),
        "accuracy_shorter_won": _mean(right[longer < 0]),
        "accuracy_equal": _mean(right[longer == 0]),
        "accuracy_of_length": _mean(_right(longer)),
        "model_prefers_longer": _mean(says_longer),
        "pearson": pearson(scores, lengths),
        "spearman": spearman(scores, lengths),
        "pearson_within": pearson(*both),
    }


def class_report(
    probabilities: ArrayLike, truth: Sequence[int], lengths: ArrayLike, *, bins: int = 10
) -> dict[str, Any]:
    """Everything about a classifier on one set of texts.

    Args:
        probabilities: [n, classes]. truth: [n] class indices. lengths: [n] in tokens.
    Returns:
        rows; accuracy; auc (of the last class against the rest; with three or more classes the mean
        over classes, each against the rest); calibration (of the likeliest class); length_bias:
        pearson and spearman of the last class's probability with length, of being in the last class
        with length (`label_pearson`), and the accuracy on the longer and on the shorter half.
    """
    p, y, size = np.asarray(probabilities, dtype=np.float64), np.asarray(truth), _array(lengths)
    classes = p.shape[1]
    right = (p.argmax(1) == y).astype(float)
    columns = range(classes) if classes > 2 else (classes - 1,)
    areas = [auc(p[y == k, k], p[y != k, k]) for k in columns]
    known = [a for a in areas if a is not None]
    last, middle = p[:, -1], np.median(size) if len(size) else 0.0
    return {
        "rows": len(y),
        "accuracy": _mean(right),
        "auc": _mean(np.array(known)),
        "calibration": reliability(p.max(1), right, bins=bins),
        "length_bias": {
            "pearson": pearson(last, size),
            "spearman": spearman(last, size),
            "label_pearson": pearson((y == classes - 1).astype(float), size),
            "accuracy_longer_half": _mean(right[size > middle]),
            "accuracy_shorter_half": _mean(right[size <= middle]),
        },
    }


def _right(margin: Floats) -> Floats:
    return np.where(margin > 0, 1.0, np.where(margin < 0, 0.0, 0.5))


def _array(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None
