"""Preferences between two completions of a prompt: the Bradley-Terry model.

    P(a is preferred to b) = sigmoid((s_a - s_b) / T)

Source: Bradley and Terry 1952, Biometrika 39; as the loss of a reward model: Stiennon et al. 2020,
arXiv 2009.01325, section 3.4; Ouyang et al. 2022, arXiv 2203.02155, equation 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def bradley_terry_loss(chosen: Tensor, rejected: Tensor, margin: Tensor | None = None) -> Tensor:
    """Negative log-likelihood of each preference.

        loss = -log sigmoid(chosen - rejected - margin)

    Source: as above; margin: Touvron et al. 2023 (Llama 2), arXiv 2307.09288, equation 2.
    Args:
        chosen, rejected: [B] scores.
        margin: [B] by how much the chosen completion should win; None = 0.
    Returns:
        [B] nats; the gradient on `chosen` is -sigmoid(margin - (chosen - rejected)).
    """
    difference = chosen - rejected
    return -logsigmoid(difference if margin is None else difference - margin)


def preference_probability(a: float, b: float, temperature: float) -> float:
    """P(a is preferred to b) of a rater with noise.

    Args:
        temperature: of the noise, in units of the scores; 0 = the better one always, 1/2 for a tie.
    Raises:
        ValueError: a negative temperature, or a score that is not finite.
    """
    if temperature < 0 or not (math.isfinite(a) and math.isfinite(b)):
        raise ValueError(f"scores {a} and {b} at temperature {temperature} give no preference")
    if temperature == 0:
        return 0.5 if a == b else float(a > b)
    x = torch.tensor((a - b) / temperature, dtype=torch.float64)
    return float(x.sigmoid())
