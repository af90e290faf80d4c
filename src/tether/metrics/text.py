"""Diversity and shape of generated texts: signs of degeneration that no likelihood shows.

Pure Python on lists of units (token ids or words). Empty texts are legal everywhere (B38).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any


def ngrams(units: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    """All n-grams in order; none where the text is shorter."""
    return [tuple(units[i : i + n]) for i in range(len(units) - n + 1)]


def distinct_n(texts: Iterable[Sequence[Hashable]], n: int) -> float:
    """Corpus level: different n-grams of all texts / n-grams of all texts.

    Source: Li et al. 2016 (distinct-1, distinct-2), over the corpus and not averaged over texts.
    Falls as the corpus grows: compare equal numbers of texts of equal length only.
    Returns 0 where there is no n-gram.
    """
    counts = _counts(texts, n)
    total = counts.total()
    return len(counts) / total if total else 0.0


def common_ngram_share(texts: Iterable[Sequence[Hashable]], n: int = 4, k: int = 10) -> float:
    """Share of all n-grams of the corpus that are one of its k commonest n-grams.

        sum of the k largest counts / all n-grams

    Rises towards 1 when the policy writes the same phrases for every prompt. 0 without n-grams.
    """
    counts = _counts(texts, n)
    total = counts.total()
    return sum(c for _, c in counts.most_common(k)) / total if total else 0.0


def mean_length(texts: Iterable[Sequence[Any]]) -> float:
    """Mean number of units; 0 for no texts."""
    lengths = [len(t) for t in texts]
    return sum(lengths) / len(lengths) if lengths else 0.0


def text_gauges(
    completion_ids: Sequence[Sequence[int]], finished: Sequence[bool]
) -> dict[str, float]:
    """`text/*` of one evaluation: units are token ids, the stop token included in the length.

    Raises ValueError without completions or for lists of different length.
    """
    if not completion_ids or len(completion_ids) != len(finished):
        raise ValueError(
            f"text gauges: {len(completion_ids)} completions and {len(finished)} finished flags"
        )
    return {
        "text/distinct_1": distinct_n(completion_ids, 1),
        "text/distinct_2": distinct_n(completion_ids, 2),
        "text/common_4gram_share": common_ngram_share(completion_ids),
        "text/length_tokens": mean_length(completion_ids),
        "text/finished_share": sum(map(bool, finished)) / len(finished),
    }


def _counts(texts: Iterable[Sequence[Hashable]], n: int) -> Counter[tuple[Hashable, ...]]:
    if n < 1:
        raise ValueError(f"n-grams need n >= 1, got {n}")
    return Counter(g for t in texts for g in ngrams(t, n))
