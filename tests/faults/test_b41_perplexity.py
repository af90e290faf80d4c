"""B41: pooled perplexity, the start token, nothing to predict, names that keep averages apart."""

from __future__ import annotations

import math

import pytest
import torch

from tether.metrics.perplexity import mean_of_texts, nll_per_token, pooled, whole_texts
from tether.types import Sequences

COST = {2: 0.0, 5: 9.0, 6: 1.0, 7: 3.0}
"""Nats of each token id, whatever stands before it; 2 is the start token."""


def logprobs(s: Sequences) -> torch.Tensor:
    return torch.tensor([[-COST.get(int(t), float("nan")) for t in row] for row in s.completion])


def test_the_start_token_is_context_and_the_first_token_is_predicted() -> None:
    s, kept = whole_texts([[5, 6], [7]], start=2, pad_id=0)
    assert kept == [0, 1]
    assert s.prompt.tolist() == [[2], [2]]
    assert s.completion.tolist() == [[5, 6], [7, 0]]
    assert pooled(logprobs(s), s.completion_mask) == pytest.approx(math.exp((9 + 1 + 3) / 3))
    same, _ = whole_texts([[2, 5, 6], [2, 7]], start=2, pad_id=0)
    assert torch.equal(same.completion, s.completion)  # not given a second one


def test_without_a_start_token_the_first_token_is_context() -> None:
    s, kept = whole_texts([[5, 6], [7]], start=None, pad_id=0)
    assert kept == [0]
    assert s.prompt.tolist() == [[5]]
    assert pooled(logprobs(s), s.completion_mask) == pytest.approx(math.exp(1))


def test_nothing_predicted_is_absent_and_never_nan() -> None:
    s, kept = whole_texts([[7], []], start=None, pad_id=0)
    assert kept == []
    assert pooled(logprobs(s), s.completion_mask) is None
    empty = torch.zeros(2, 3, dtype=torch.bool)
    for of in (pooled, mean_of_texts, nll_per_token):
        assert of(torch.full((2, 3), float("nan")), empty) is None


def test_a_text_without_tokens_leaves_the_mean_of_texts_alone() -> None:
    mask = torch.tensor([[True], [False]])
    assert mean_of_texts(torch.tensor([[-2.0], [9e9]]), mask) == pytest.approx(math.exp(2))


def test_the_two_averages_are_different_numbers() -> None:
    s, _ = whole_texts([[6, 6, 6, 6], [5]], start=2, pad_id=0)
    assert pooled(logprobs(s), s.completion_mask) == pytest.approx(math.exp(13 / 5))
    both = (math.exp(1) + math.exp(9)) / 2
    assert mean_of_texts(logprobs(s), s.completion_mask) == pytest.approx(both)


def test_the_limit_counts_predicted_tokens() -> None:
    s, _ = whole_texts([[5, 6, 7]], start=None, pad_id=0, limit=1)
    assert s.completion.tolist() == [[6]]


def test_the_three_perplexities_have_three_names() -> None:
    """An average of perplexities is not sold as the pooled one, nor windows of a joined text."""
    from tether.config.catalog import CATALOG, load

    names = [n for n in CATALOG["metric"] if n.startswith("perplexity")]
    assert {"perplexity", "perplexity_mean_of_texts", "perplexity_joined"} <= set(names)
    assert len({load("metric", n) for n in names}) == len(names)
