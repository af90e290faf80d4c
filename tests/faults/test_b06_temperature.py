"""B06: the temperature of sampling is the temperature of scoring, in one function."""

import pytest
import torch

from tether.core.logprobs import log_softmax, pick

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])
TOP = torch.tensor(0)


def test_hand_computed_log_probs() -> None:
    assert float(pick(log_softmax(LOGITS, 0.5), TOP)) == pytest.approx(-0.14508, abs=1e-5)
    assert float(pick(log_softmax(LOGITS), TOP)) == pytest.approx(-0.44019, abs=1e-5)


def test_mixing_temperatures_would_move_ratios_before_any_update() -> None:
    mixed = pick(log_softmax(LOGITS, 1.0), TOP) - pick(log_softmax(LOGITS, 0.5), TOP)
    assert float(mixed.exp()) == pytest.approx(0.7444, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_no_temperature_that_is_no_distribution(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"temperature must be > 0.*greedy"):
        log_softmax(LOGITS, temperature)
