"""Allowed sets by hand (B43's numbers) and their storage as bits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest
from torch._subclasses.fake_tensor import FakeTensorMode

from tether.core.sampling import (
    draw,
    exponential,
    min_p_set,
    pack_bits,
    top_k_set,
    top_p_set,
    unpack_bits,
)

LOGITS = torch.tensor([[0.2, 0.5, 0.3]]).log()


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.4, [1]), (0.6, [1, 2]), (0.9, [0, 1, 2]), (1.0, [0, 1, 2]), (1e-6, [1])],
)
def test_top_p_is_the_smallest_set_of_at_least_p(p: float, kept: list[int]) -> None:
    assert top_p_set(LOGITS, p)[0].nonzero().flatten().tolist() == kept


def test_top_p_stops_as_soon_as_p_is_reached() -> None:
    assert int(top_p_set(torch.zeros(1, 4), 0.5).sum()) == 2
    assert int(top_p_set(torch.zeros(1, 4), 0.51).sum()) == 3


def test_floor_top_k_and_min_p() -> None:
    assert top_p_set(LOGITS, 0.4, floor=2)[0].tolist() == [False, True, True]
    assert top_p_set(LOGITS, 0.4, floor=9)[0].all()
    assert top_k_set(LOGITS, 2)[0].tolist() == [False, True, True]
    assert top_k_set(LOGITS, 0).all() and top_k_set(LOGITS, 99).all()
    assert int(top_k_set(torch.zeros(1, 5), 2).sum()) == 2, "ties do not widen the set"
    assert min_p_set(LOGITS, 0.5)[0].tolist() == [False, True, True]
    assert min_p_set(LOGITS, 0.0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10_000))
def test_bits_come_back(v: int, seed: int) -> None:
    allowed = torch.rand(2, 3, v, generator=torch.Generator().manual_seed(seed)) < 0.5
    bits = pack_bits(allowed)
    assert bits.shape == (2, 3, -(-v // 8)) and bits.dtype == torch.uint8
    assert torch.equal(unpack_bits(bits, v), allowed)


def test_bit_order_by_hand() -> None:
    allowed = torch.zeros(10, dtype=torch.bool)
    allowed[[0, 3, 9]] = True
    assert pack_bits(allowed).tolist() == [1 + 8, 2]


def test_sets_need_no_value_on_the_host() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 9)
        for allowed in (top_p_set(x, 0.9, 2), top_k_set(x, 3), min_p_set(x, 0.1)):
            assert unpack_bits(pack_bits(allowed), 9).shape == (4, 9)


def test_exponential_noise_has_its_distribution_and_is_never_zero() -> None:
    rng = torch.Generator().manual_seed(0)
    e = exponential(torch.empty(400, 2000), rng).double()
    assert e.shape == (400, 2000) and float(e.min()) > 0 and bool(torch.isfinite(e).all())
    # a Kolmogorov-Smirnov test of 800,000 draws, and the small end, which decides for rare tokens
    assert kstest(e.flatten().numpy(), "expon").pvalue > 0.001
    below = (e < 1e-4).sum()
    assert abs(int(below) - 80) < 4 * 80**0.5


def test_draws_follow_the_probabilities() -> None:
    logp = torch.log(torch.tensor([0.6, 0.3, 0.0999, 0.0001, 0.0])).expand(200_000, 5)
    token = draw(logp, torch.Generator().manual_seed(1))
    count = token.bincount(minlength=5)
    assert int(count[4]) == 0
    assert chisquare(count[:4], [120_000, 60_000, 19_980, 20]).pvalue > 0.001
