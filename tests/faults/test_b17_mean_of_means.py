"""B17: the denominator is that of the whole optimizer step, all microbatches, all ranks."""

import pytest
import torch

from tests.contracts.examples import numbers
from tether.core.masking import token_weights

MASK = torch.tensor([[1, 0, 0], [1, 1, 1]], dtype=torch.bool)
LOSS = torch.tensor([[3.0, 99.0, 99.0], [1.0, 1.0, 1.0]])


def test_one_token_and_three() -> None:
    weights = token_weights(MASK, "tokens")
    pieces = [float((weights[i] * LOSS[i]).sum()) for i in range(2)]
    assert sum(pieces) == pytest.approx(1.5)
    per_sequence = token_weights(MASK, "sequences")
    assert float((per_sequence * LOSS).sum()) == pytest.approx(2.0)


@pytest.mark.parametrize("average", ["tokens", "sequences"])
def test_weights_sum_to_one_over_ranks(average: str) -> None:
    whole = token_weights(MASK, average)  # type: ignore[arg-type]
    units = {"tokens": 4.0, "sequences": 2.0}[average]
    ranks = [
        token_weights(MASK[i : i + 1], average, lambda x: torch.tensor(units))  # type: ignore[arg-type]
        for i in range(2)
    ]
    assert torch.allclose(torch.cat(ranks), whole)
    assert float(whole.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("average", ["tokens", "sequences"])
def test_gradient_does_not_depend_on_the_cut(average: str) -> None:
    mask = torch.arange(6) < torch.tensor([1, 6, 3, 2, 6, 4, 1, 5])[:, None]
    features, target = numbers(0, 8, 6, 5), numbers(1, 8, 6)
    weights = token_weights(mask, average)  # type: ignore[arg-type]
    found = []
    for size in (8, 4, 1):
        w = numbers(2, 5).requires_grad_()
        for rows in torch.arange(8).split(size):
            error = (features[rows] @ w - target[rows]).square()
            (weights[rows] * error).sum().backward()
        found.append(w.grad)
    for other in found[1:]:
        assert torch.allclose(found[0], other, atol=1e-6)  # type: ignore[arg-type]


def test_an_unknown_average_is_refused() -> None:
    with pytest.raises(ValueError, match="'tokens' or 'sequences', not 'mean'"):
        token_weights(MASK, "mean")  # type: ignore[arg-type]
