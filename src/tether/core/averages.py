"""What a running average of weights keeps; plain numbers.

`decay` d means ema <- d * ema + (1 - d) * weights. The same d on another clock is another method:
.995 averaged 17 times between resets keeps 4 % of a linear drift, averaged 1,700 times 88 %.
"""

from __future__ import annotations


def half_life_decay(half_life: float, steps: float) -> float:
    """Decay of one averaging so that half is forgotten after `half_life` optimizer steps.

        d = 2^(-steps / half_life)

    Args:
        half_life: optimizer steps, > 0.
        steps: optimizer steps since the previous averaging, >= 0.
    """
    return float(2.0 ** (-steps / half_life))


def trajectory_weight(decay: float, averagings: int) -> float:
    """Weight of everything after the start in the average: 1 - d^n."""
    return 1.0 - decay**averagings


def kept_fraction(decay: float, averagings: int) -> float:
    """Share of a linear drift that a reset to the average keeps.

        1 - d / (1 - d) * (1 - d^n) / n

    n = 17, d = .995 keeps 4.4 %: there, Elastic Reset is nearly a reset to the start.
    Args:
        decay: d in [0, 1].
        averagings: n >= 1 averagings between two resets.
    """
    if decay >= 1.0:
        return 0.0
    return 1.0 - decay / (1.0 - decay) * trajectory_weight(decay, averagings) / averagings


def average_problem(decay: float, half_life: float | None, default: float) -> str | None:
    """What is wrong with the two settings of an average, or None. `decay` left at its default
    says nothing, so `half_life` may stand beside it."""
    if not 0 <= decay <= 1:
        return f"decay must be in [0, 1], not {decay:g}"
    if half_life is None:
        return None
    if decay != default:
        return "decay or half_life, not both: leave one out"
    if half_life <= 0:
        return f"half_life must be > 0 optimizer steps, not {half_life:g}"
    return None
