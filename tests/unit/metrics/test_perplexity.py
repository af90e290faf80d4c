"""Windows and the three averages by hand (B41 has its own file)."""

from __future__ import annotations

import math

import pytest
import torch

from tether.metrics.perplexity import (
    answered_texts,
    by_group,
    halved_texts,
    joined,
    mean_of_texts,
    pooled,
    windows,
)


def test_windows_advance_by_stride_and_cover_every_token_once() -> None:
    assert list(windows(10, window=4, stride=2)) == [
        (0, 2, 0), (0, 4, 2), (2, 6, 4), (4, 8, 6), (6, 10, 8),
    ]  # fmt: skip
    assert list(windows(5, 4, 2)) == [(0, 2, 0), (0, 4, 2), (2, 5, 4)]
    assert list(windows(3, 8, 8)) == [(0, 3, 0)]
    with pytest.raises(ValueError, match="0 < stride <= window"):
        list(windows(5, 2, 3))


def test_joined_weightings() -> None:
    """ids are the log-probs themselves: token i costs i nats. Window 4, stride 2, six tokens:
    windows predict [1], [2 3], [4 5]; their means are 1, 2.5, 4.5."""

    def logprobs_of(ids: list[int]) -> list[float]:
        return [-float(i) for i in ids[1:]]

    ids = list(range(6))

    def value(weighting: str) -> float:
        got = joined(logprobs_of, ids, window=4, stride=2, weighting=weighting)  # type: ignore[arg-type]
        assert got is not None
        return math.log(got)

    assert value("tokens") == pytest.approx(15 / 5)
    assert value("window_length") == pytest.approx((1 * 2 + 2.5 * 2 + 4.5 * 2) / 6)
    assert value("windows") == pytest.approx((1 + 2.5 + 4.5) / 3)
    assert joined(logprobs_of, [3], window=4, stride=2) is None


def test_pooled_and_mean_of_texts_differ() -> None:
    logprobs = torch.tensor([[-1.0, -3.0], [-6.0, 9e9]])
    mask = torch.tensor([[True, True], [True, False]])
    assert pooled(logprobs, mask) == pytest.approx(math.exp(10 / 3))
    assert mean_of_texts(logprobs, mask) == pytest.approx((math.exp(2) + math.exp(6)) / 2)
    groups = by_group(logprobs, mask, ["b", "a"])
    assert list(groups) == ["b", "a"]
    assert groups["b"] == (pytest.approx(math.exp(2)), 2)
    assert groups["a"] == (pytest.approx(math.exp(6)), 1)


def test_a_perplexity_that_no_double_holds_is_absent() -> None:
    assert pooled(torch.tensor([[-1e4]]), torch.tensor([[True]])) is None


def test_an_encoder_decoder_reads_the_prompt_and_predicts_the_answer() -> None:
    s, kept = answered_texts([[5, 6, 7], [8], []], [[1, 2], [], [3]], pad_id=0)
    assert kept == [0]  # a row needs both sides
    assert s.prompt.tolist() == [[5, 6, 7]] and s.completion.tolist() == [[1, 2]]
    s, kept = answered_texts([[5, 6, 7], [8]], [[1, 2, 3], [4]], pad_id=0, limit=2)
    assert kept == [0, 1] and s.completion.tolist() == [[1, 2], [4, 0]]
    assert s.prompt.tolist() == [[5, 6, 7], [8, 0, 0]]  # padded right
    assert s.completion_mask.sum() == 3


def test_a_text_without_a_prompt_is_halved() -> None:
    s, kept = halved_texts([[1, 2, 3, 4, 5], [6, 7], [8]], pad_id=0)
    assert kept == [0, 1]  # one token cannot be both read and predicted
    assert s.prompt.tolist() == [[1, 2], [6, 0]]
    assert s.completion.tolist() == [[3, 4, 5], [7, 0, 0]]
    long = [list(range(1, 21))]
    s, _ = halved_texts(long, pad_id=0, limit=4)
    assert s.prompt.tolist() == [[1, 2, 3, 4]] and s.completion.tolist() == [[5, 6, 7, 8]]
    s, _ = halved_texts(long, pad_id=0, limit=4, room=3)
    assert s.prompt.tolist() == [[1, 2, 3]] and s.completion.tolist() == [[4, 5, 6, 7]]
