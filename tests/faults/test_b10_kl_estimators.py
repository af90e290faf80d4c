"""B10: each estimator is what its name says, the exponent is bounded, and the bound is counted."""

import pytest
import torch

from tether.core.kl import ESTIMATORS, exponent_bounded, kl_exact, kl_k1, kl_k2, kl_k3

P = torch.tensor([0.5, 0.3, 0.2])
Q = torch.tensor([0.2, 0.3, 0.5])


@pytest.mark.parametrize(
    ("d", "k1", "k2", "k3"),
    [
        (0.0, 0.0, 0.0, 0.0),
        (1.0, 1.0, 0.5, 0.36788),
        (0.1, 0.1, 0.005, 0.0048374),
        (-0.1, -0.1, 0.005, 0.0051709),
    ],
)
def test_hand_computed(d: float, k1: float, k2: float, k3: float) -> None:
    x = torch.tensor(d)
    assert float(kl_k1(x)) == pytest.approx(k1, abs=1e-7)
    assert float(kl_k2(x)) == pytest.approx(k2, abs=1e-7)
    assert float(kl_k3(x)) == pytest.approx(k3, abs=1e-5 if d == 1.0 else 1e-7)


def test_expectations() -> None:
    d = P.log() - Q.log()
    assert float(kl_exact(P.log(), Q.log())) == pytest.approx(0.274887, abs=1e-6)
    assert float((P * kl_k1(d)).sum()) == pytest.approx(0.274887, abs=1e-6)
    assert float((P * kl_k3(d)).sum()) == pytest.approx(0.274887, abs=1e-6)
    assert float((P * kl_k2(d)).sum()) == pytest.approx(0.293856, abs=1e-6)


def test_the_exponent_is_bounded_and_counted() -> None:
    """Unbounded, d = -20 alone is 4.85e8, and d = -100 is infinite in fp32."""
    d = torch.tensor([0.0, 5.0, -9.9, -20.0, -100.0])
    k3 = kl_k3(d)
    assert torch.isfinite(k3).all() and (k3 >= 0).all()
    assert float(k3[3]) == pytest.approx(22026.47 - 11, abs=0.1)
    assert float(k3[2]) == pytest.approx(19930.37 - 1 - 9.9, abs=0.1)
    assert int(exponent_bounded(d)) == 2


def test_every_estimator_has_its_own_name() -> None:
    """No chain of ifs that falls through to the last one: an unknown name raises."""
    d = torch.tensor(1.0)
    values = {name: float(f(d)) for name, f in ESTIMATORS.items()}
    assert len(set(values.values())) == len(values) == 3
    with pytest.raises(KeyError):
        ESTIMATORS["k4"]
