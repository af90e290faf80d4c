"""KL estimators on random pairs, and the alarm of B09 (numbers: faults B10, B11)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.kl import MAX_EXPONENT, kl_exact, kl_k1, kl_k3, standard_errors
from tether.core.masking import local

weights = st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4)


@settings(max_examples=50, deadline=None)
@given(weights, weights)
def test_k1_and_k3_are_unbiased_and_exact_is_not_negative(a: list[float], b: list[float]) -> None:
    p, q = (torch.tensor(x, dtype=torch.float64) for x in (a, b))
    p, q = (p / p.sum()).log(), (q / q.sum()).log()
    exact = float(kl_exact(p, q))
    assert exact >= -1e-12
    assert float((p.exp() * kl_k1(p - q)).sum()) == pytest.approx(exact, abs=1e-9)
    assert float((p.exp() * kl_k3(p - q)).sum()) == pytest.approx(exact, abs=1e-9)


def test_equal_policies_have_exactly_no_kl() -> None:
    logp = torch.randn(3, 7, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    assert not kl_exact(logp, logp).any()
    assert not kl_k3(logp - logp).any()


def test_k3_is_precise_for_small_steps_and_has_a_gradient_up_to_the_bound() -> None:
    assert float(kl_k3(torch.tensor(1e-3))) == pytest.approx(5e-7, rel=0.1)
    d = torch.tensor([-1.0, -MAX_EXPONENT - 1], requires_grad=True)
    kl_k3(d).sum().backward()
    assert d.grad is not None
    assert float(d.grad[0]) == pytest.approx(1 - 2.718282, abs=1e-5) and float(d.grad[1]) == 0


def test_standard_errors_by_hand() -> None:
    """Mean -2, sample variance 1, n 3: -2 / (1 / sqrt 3) = -3.4641."""
    x = torch.tensor([-1.0, -2.0, -3.0])
    assert float(standard_errors(x, local)) == pytest.approx(-3.4641, abs=1e-4)
    assert float(standard_errors(torch.zeros(5), local)) == 0
    assert float(standard_errors(torch.tensor([-5.0]), local)) == 0
