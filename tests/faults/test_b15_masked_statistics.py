"""B15: statistics are over the mask and all ranks; one written rule for the variance."""

import pytest
import torch

from tether.core.masking import masked_mean, whiten

X = torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]])
MASK = torch.tensor([[1, 1, 1, 0, 0, 0]], dtype=torch.bool)
ROOT = 1.2247449


def test_population_variance_by_hand() -> None:
    out = whiten(X, MASK)
    assert out[0].tolist() == pytest.approx([-ROOT, 0, ROOT, 0, 0, 0], abs=1e-6)


@pytest.mark.parametrize("pad", [1e9, -1e9, float("nan"), float("inf")])
def test_what_stands_in_pads_changes_nothing(pad: float) -> None:
    x = torch.where(MASK, X, pad)
    assert torch.equal(whiten(x, MASK), whiten(X, MASK))
    assert float(masked_mean(x, MASK)) == 2.0


def test_without_the_mask_it_would_be_wrong() -> None:
    everything = torch.ones_like(MASK)
    sample = (X - X.mean()) / X.std()
    assert sample[0].tolist() == pytest.approx([0, 0.79, 1.58, -0.79, -0.79, -0.79], abs=0.005)
    assert not torch.allclose(whiten(X, everything), whiten(X, MASK))


def test_statistics_are_those_of_all_ranks() -> None:
    """Two ranks with 1 and 2 tokens, added by a `total` that knows the other rank's share."""
    rows = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
    mask = torch.tensor([[1, 0], [1, 1]], dtype=torch.bool)
    whole = whiten(rows, mask)

    def rank(i: int) -> torch.Tensor:
        n, m, v = 3.0, 6.0, 2.0  # tokens, sum, squared deviations over both ranks
        answers = iter([n, m, n, v])
        return whiten(rows[i : i + 1], mask[i : i + 1], lambda x: torch.tensor(next(answers)))

    assert torch.allclose(torch.cat([rank(0), rank(1)]), whole, atol=1e-6)


def test_one_token_and_no_token_are_zero() -> None:
    one = torch.tensor([[1, 0, 0, 0, 0, 0]], dtype=torch.bool)
    assert not whiten(X, one).any()
    assert not whiten(X, torch.zeros_like(one)).any()
    assert float(masked_mean(X, torch.zeros_like(one))) == 0


def test_equal_values_do_not_become_noise() -> None:
    """.1 is not exact in fp32: an epsilon outside the root would blow the rounding error up."""
    x = torch.full((1, 999), 0.1)
    assert float(whiten(x, torch.ones_like(x, dtype=torch.bool)).abs().max()) < 1e-2
