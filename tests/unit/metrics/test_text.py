"""Text gauges by hand."""

from __future__ import annotations

import pytest

from tether.metrics.text import common_ngram_share, distinct_n, mean_length, text_gauges


def test_distinct_n_is_over_the_corpus() -> None:
    corpus = [[1, 1, 2], [1, 2, 3]]
    assert distinct_n(corpus, 1) == 3 / 6
    assert distinct_n(corpus, 2) == 3 / 4  # 11 12 | 12 23
    assert distinct_n([[1, 2], [1, 2]], 2) == 0.5


def test_common_ngram_share_counts_the_k_commonest() -> None:
    texts = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]]  # 1234 twice, 2345, 2346
    assert common_ngram_share(texts, n=4, k=1) == 0.5
    assert common_ngram_share(texts, n=4, k=2) == 0.75
    assert common_ngram_share(texts, n=4, k=10) == 1.0
    varied = [list(range(i, i + 5)) for i in range(0, 200, 5)]
    assert common_ngram_share(varied) == 10 / 80


def test_text_gauges() -> None:
    out = text_gauges([[7, 7, 7, 7, 1], [7, 7, 1]], [True, False])
    assert out == {
        "text/distinct_1": 2 / 8,
        "text/distinct_2": 2 / 6,
        "text/common_4gram_share": 1.0,
        "text/length_tokens": 4.0,
        "text/finished_share": 0.5,
    }
    assert mean_length([]) == 0.0
    with pytest.raises(ValueError, match="0 completions and 1 finished"):
        text_gauges([], [True])
    with pytest.raises(ValueError, match="n >= 1"):
        distinct_n([[1]], 0)
