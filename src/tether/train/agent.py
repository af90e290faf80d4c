"""One policy and everything that pulls, holds and measures it. A run has a list of agents: one, or
the two of a translation game."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.config.run import EvaluationSettings, SamplingSettings
from tether.models.allowed import FoundAgain
from tether.models.critic import Critic
from tether.models.language_model import LanguageModel
from tether.models.weight_sets import WeightSets
from tether.rewards.combine import RewardSet
from tether.rollout.engine import Engine
from tether.tasks.environment import Environment
from tether.tasks.task import Task
from tether.tethers.base import Tether, triggers
from tether.train.optimizer import MasterOptimizer
from tether.train.own_texts import OwnTexts
from tether.types import Measured, Rollout, Sequences

DRIFTS = ("drift/", "kl/initial")
"""Names of what is measured against the initial model along training completions."""


@dataclass
class Agent:
    """Model, tasks, algorithm, tethers, weight sets, optimizer and engine under one name."""

    name: str
    lm: LanguageModel
    tasks: dict[str, Task]
    rewards: RewardSet
    judges: RewardSet | None
    algorithm: Algorithm
    tethers: dict[str, Tether]
    engine: Engine
    sampling: SamplingSettings
    evaluation: EvaluationSettings
    sets: WeightSets
    optimizer: MasterOptimizer
    prompts: int
    microbatch: int
    old_logprobs: Literal["scored", "sampled"] = "scored"
    critic: Critic | None = None
    critic_lr: float | None = None
    environment: Environment | None = None
    """None = single turn."""
    data: Callable[[dict[str, Rollout], Tensor], Sequences] | None = None
    """Completions that nobody samples and no dataset holds (the other agent's messages)."""
    human: Any = None
    """Fixed human texts of the drift gauges (`evaluate.HumanText`)."""
    draws: dict[str, OwnTexts] = field(default_factory=dict)
    """Tether -> its own texts (`Tether.own_data`)."""
    version: int = 0
    not_taken: int = 0
    """Optimizer steps that early stops left out, since the start of the run."""
    measured: Measured = field(default_factory=Measured)

    def __post_init__(self) -> None:
        reads = [(n, d) for t in self.tethers.values() for n, d in t.reads().items()]
        self.constraints = [t for t in self.tethers.values() if "sampling" in t.acts_on]
        self.companions = sorted({n for n, d in reads if d == "sampling"} - {"policy"})
        self.exact = sorted({n for n, d in reads if d == "distribution"})
        self.token_reads = sorted({n for n, d in reads if d == "tokens"})
        self.follows_drift = any(
            str(getattr(part, "metric", "")).startswith(DRIFTS)
            for t in self.tethers.values()
            for _, part in triggers(t)
        )
        self.found_again = self._found_again()

    def _found_again(self) -> FoundAgain | None:
        """Who finds allowed sets again beyond `sampling.allowed_bytes`; None where nothing is to be
        found, or where it would be another set than the one that sampled."""
        s, tethers = self.sampling, self.tethers.values()
        found = bool(self.constraints) and all(t.recomputable() for t in self.constraints)
        if not found or s.scored == "full" or s.top_k > 0 or s.top_p < 1.0:
            return None
        if self.environment is not None or any(t.remembers_texts for t in tethers):
            return None
        models = {k: self.sets.residents[k] for k in self.companions}
        return FoundAgain(self.constraints, models, self.lm.stops, s.min_new_tokens)

    def references(self, update: int) -> list[str]:
        """Sets whose log-probs of this update's (0-based) tokens are wanted. The initial model's in
        the first update whatever the settings say: its self-check."""
        every = self.evaluation.drift_every
        due = self.version == 0 or self.follows_drift or (every > 0 and update % every == 0)
        return sorted({*self.token_reads, *(["initial"] if due else [])})

    @property
    def evaluation_sampling(self) -> SamplingSettings:
        return self.evaluation.sampling or self.sampling

    def state_dict(self) -> dict[str, Any]:
        return {
            "sets": self.sets.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "tethers": {k: t.state_dict() for k, t in self.tethers.items()},
            "version": self.version,
            "not_taken": self.not_taken,
            "measured": {k: list(v) for k, v in self.measured.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Every part is checked: a name too many or missing is an error, never ignored."""
        if set(state["tethers"]) != set(self.tethers):
            raise UserError(
                f"the checkpoint has tethers {sorted(state['tethers'])}, the configuration"
                f" {sorted(self.tethers)}; resume with the configuration it was written with"
            )
        self.sets.load_state_dict(state["sets"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.algorithm.load_state_dict(state["algorithm"])
        for k, t in self.tethers.items():
            t.load_state_dict(state["tethers"][k])
        self.version, self.not_taken = state["version"], state["not_taken"]
        self.measured = Measured({k: (v[0], v[1]) for k, v in state["measured"].items()})


def check_sets(tethers: dict[str, Tether], writers: list[str]) -> None:
    """One keeper a weight set, and every set that is read or writes has one."""
    owner: dict[str, str] = {}
    known = {"initial", "policy", "data"}
    for name, t in tethers.items():
        for s in t.keeps():
            if s in owner:
                raise UserError(
                    f"tethers.{name}: tethers.{owner[s]} already moves the weight set '{s}';"
                    " give one of them another set or drop it"
                )
            owner[s] = name
        known |= set(t.keeps()) | set(t.sources())
    wanted = [(f"tethers.{n}", s) for n, t in tethers.items() for s in t.reads()]
    wanted += [("algorithm.writer", w) for w in writers]
    for where, s in wanted:
        if s not in known:
            raise UserError(
                f"{where}: nothing keeps a weight set '{s}'; add a tether that does (elastic_reset"
                f" keeps 'ema') or use one of {', '.join(sorted(known - {'data'}))}"
            )


def device_of(lm: LanguageModel) -> torch.device:
    return next(lm.module.parameters()).device
