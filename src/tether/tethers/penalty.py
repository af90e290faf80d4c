"""What the KL tethers share: a coefficient, who changes it, and KL as a cost on every token.

    r_t  <-  r_t - coef * k(log pi(a_t) - log home(a_t))

In the reward the value is not differentiated, so every estimator descends KL(policy || home) up to
its bias, unlike the same estimators as a loss (`tether.core.kl`). Log-probs are the free ones
(temperature 1, whole vocabulary): before the first update this KL is exactly 0, whatever the
sampling.

Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2; per token as in TRL's PPO and RL4LMs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tether.config.errors import SettingError, UserError
from tether.config.nearest import unknown
from tether.config.run import OF_REFERENCE, Source
from tether.core.kl import ESTIMATORS, exponent_bounded
from tether.tethers.base import Place, Tether
from tether.tethers.controllers import Controller, Fixed
from tether.types import Clock, Depth, Experience, Measured, Move, Total, Unit, WeightEvent


@dataclass
class Penalty(Tether, ABC):
    """KL to a named set of weights, times a coefficient. Source: arXiv 1909.08593, section 2.2."""

    coef: float = 0.05
    """Reward units per nat; the start where a controller adapts it (TRL's PPO .05)."""
    controller: Controller | None = None
    """How the coefficient changes: fixed, rl4lms or ziegler; null = fixed."""

    kind: ClassVar[str] = "penalty"
    """Name in the catalog, for messages."""

    def __post_init__(self) -> None:
        if self.coef < 0:
            raise UserError(
                f"{self.kind}.coef must be >= 0 (a negative one pays for drift), not {self.coef:g}"
            )
        adapts = self.controller is not None and not isinstance(self.controller, Fixed)
        if self.coef == 0 and adapts:
            raise UserError(
                f"{self.kind}.coef is 0: a controller multiplies it, so it stays 0; start above 0"
            )
        self.now = self.coef
        """The coefficient in force."""
        self.version = -1
        """Policy version of the last reading that the controller used."""

    @property
    @abstractmethod
    def home(self) -> str:
        """Name of the weight set that is the reference."""

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        return {"coef": self.now}

    def after(self, unit: Unit, clock: Clock, measured: Measured) -> Iterable[Move | WeightEvent]:
        if unit != "update" or self.controller is None:
            return ()
        metric = self.controller.metric(self.home)
        if metric is not None and (new := measured.newer(metric, self.version)) is not None:
            kl, self.version = new
            self.now = self.controller.next(self.now, kl, measured)
        return ()

    def restart(self) -> None:
        """Back to the starting coefficient (a weight event with `controllers = clear`)."""
        super().restart()
        self.now = self.coef


@dataclass
class RewardPenalty(Penalty):
    """KL(policy || home) as a cost on every token. Source: arXiv 1909.08593, section 2.2."""

    estimator: Literal["k1", "k2", "k3", "exact"] = "k1"
    """k1 (TRL, RL4LMs), k2, k3, or exact: over the whole vocabulary, which needs the reference as a
    second module in memory."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"reward"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in (*ESTIMATORS, "exact"):
            raise UserError(f"{self.kind}.estimator is k1, k2, k3 or exact, not '{self.estimator}'")

    def reads(self) -> Mapping[str, Depth]:
        return {self.home: "distribution" if self.estimator == "exact" else "tokens"}

    def reward(self, experience: Experience) -> Tensor | None:
        if self.estimator == "exact":
            kl = experience.old.exact_kl[self.home]
        else:
            kl = ESTIMATORS[self.estimator](self._log_ratio(experience))
        return torch.where(experience.mask, -self.now * kl, 0.0)

    def report(self, experience: Experience, total: Total) -> dict[str, float]:
        """coef; with k3 also how many tokens its exponent was bounded on (B10)."""
        out = super().report(experience, total)
        if self.estimator == "k3" and self.home in experience.references:
            out["exponent_bounded"] = float(total(exponent_bounded(self._log_ratio(experience))))
        return out

    def _log_ratio(self, experience: Experience) -> Tensor:
        """[B,T] log policy - log reference of the sampled tokens, 0 outside the mask."""
        reference = experience.references[self.home].free_logprobs
        d = experience.old.free_logprobs - reference
        return torch.where(experience.mask, d, 0.0)


@dataclass
class Follower(RewardPenalty):
    """KL in the reward to a set that follows the policy. Source: arXiv 1909.08593, section 2.2.

    With coefficient 0 the set is kept for another tether to read, and nothing is added here.
    """

    coef: float = 0.05
    """Reward units per nat; the start where a controller adapts it (TRL's PPO .05). 0: nothing is
    added, and another tether (`kl`, `kl_loss`) must read the set."""

    def keeps(self) -> tuple[str, ...]:
        return (self.home,)

    def reads(self) -> Mapping[str, Depth]:
        return super().reads() if self.coef > 0 else {}

    def reward(self, experience: Experience) -> Tensor | None:
        return super().reward(experience) if self.coef > 0 else None


@dataclass
class Referenced(Tether):
    """A tether whose home is a set by name or a model's weights. Source: tether."""

    reference: str = "initial"
    """Set of weights that is home: `initial`, a set that another tether keeps (`ema`), or, with
    `model`, the name for that model's weights (`reference` if left at `initial`)."""
    model: str | dict[str, Any] | None = None
    """Model folder or hub id with the policy's architecture, e.g. the supervised model; or a
    mapping of its `path` with `revision`, `gguf_file`, `adapter`, `trust_remote_code`."""

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        if isinstance(self.model, dict):
            _check_model(self.model)

    @property
    def home(self) -> str:
        """Name of the weight set that is the reference."""
        return "reference" if self.model and self.reference == "initial" else self.reference

    def keeps(self) -> tuple[str, ...]:
        return (self.home,) if self.model else ()

    def sources(self) -> Mapping[str, Source]:
        return {self.home: self.model} if self.model else {}


def _check_model(given: Mapping[str, Any]) -> None:
    """Raises UserError for settings of a reference's model that it does not have."""
    odd = next((k for k in given if k not in OF_REFERENCE), None)
    if odd is not None:
        raise SettingError("model", str(unknown("key", str(odd), OF_REFERENCE, "")))
    if not given.get("path"):
        raise SettingError("model.path", "it is empty; give a hub id or a folder")
    for key, value in given.items():
        kind = bool if key == "trust_remote_code" else str
        if value is not None and not isinstance(value, kind):
            wanted = "true or false" if kind is bool else "text"
            raise SettingError(f"model.{key}", f"it is {value!r:.60}, not {wanted}")
