"""How a KL coefficient changes. Parts of `KLPenalty`, without memory: the coefficient itself is
remembered by the tether that uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tether.config.errors import UserError
from tether.core import controllers
from tether.types import Measured, Remembers


@dataclass
class Controller(Remembers):
    """Base of all controllers. Source: the seams of tether itself."""

    unit: ClassVar[str] = ""
    """Which k1 reading of the reference it follows: `per_seq`, `per_token`, or none."""

    def metric(self, reference: str) -> str | None:
        """Name of the measurement that it reads for a reference set; None = it reads nothing."""
        return f"kl/{reference}.k1_nats_{self.unit}" if self.unit else None

    def next(self, coef: float, kl: float, measured: Measured) -> float:
        """The next coefficient from the present one and a new reading of `metric`."""
        raise NotImplementedError


@dataclass
class Fixed(Controller):
    """The coefficient stays as it is. Source: plain KL-regularised RL."""

    def next(self, coef: float, kl: float, measured: Measured) -> float:
        return coef


@dataclass
class RL4LMs(Controller):
    """At most 2 % an update towards a target per token.

        coef <- coef (1 + 0.1 clip((kl - target) / target, -.2, .2))

    Source: allenai/RL4LMs@97df0bd; Elastic Reset's IMDB runs use the same rule.
    """

    target: float = 0.1
    """Nats per token, k1 on the rollout (RL4LMs' IMDB config .1; Elastic Reset's 1.0)."""

    unit: ClassVar[str] = "per_token"

    def __post_init__(self) -> None:
        if self.target <= 0:
            raise UserError(f"rl4lms.target must be > 0 nats per token, not {self.target:g}")

    def next(self, coef: float, kl: float, measured: Measured) -> float:
        return controllers.rl4lms(coef, kl, self.target)


@dataclass
class Ziegler(Controller):
    """Proportional control towards a target per sequence.

        coef <- coef (1 + clip(kl / target - 1, -.2, .2) n / horizon)

    with n sequences in the update, over all ranks. Source: Ziegler et al. 2019, arXiv 1909.08593.
    """

    target: float = 6.0
    """Nats per sequence, k1 on the rollout (lm-human-preferences, TRL)."""
    horizon: float = 10_000
    """Sequences (lm-human-preferences, TRL); more than a fifth of the sequences of an update."""

    unit: ClassVar[str] = "per_seq"

    def __post_init__(self) -> None:
        if self.target <= 0:
            raise UserError(f"ziegler.target must be > 0 nats per sequence, not {self.target:g}")
        if self.horizon <= 0:
            raise UserError(f"ziegler.horizon must be > 0 sequences, not {self.horizon:g}")

    def next(self, coef: float, kl: float, measured: Measured) -> float:
        n = measured["rollout/sequences"][0]
        if controllers.STEP * n >= self.horizon:
            raise UserError(
                f"ziegler.horizon {self.horizon:g} is too short for {n:g} sequences an update (the"
                f" coefficient could reach 0): take more than {controllers.STEP * n:g}"
            )
        return controllers.ziegler(coef, kl, self.target, n, self.horizon)
