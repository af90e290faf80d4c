"""What the recipes of GRUE share: RL4LMs' tables as settings of a run.

RL4LMs counts tokens: an iteration is 10 environments of n_steps tokens, a minibatch 64 tokens, each
its own training row. Here an update is a number of prompts and a minibatch holds whole completions:
the nearest numbers, as `tether import` finds them. Its squared value error is not halved, so .5 of
it is vf_coef 1.0. What is sampled is scored as it was sampled; RL4LMs scores the whole vocabulary
(`--sampling.scored full`).

Source: allenai/RL4LMs@97df0bd, scripts/training/task_configs; Ramamurthy et al., arXiv 2210.01241.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

T5 = "google-t5/t5-base"
GPT2 = "openai-community/gpt2"
STEPS = 4
"""Optimizer steps of one update of supervised training."""


@dataclass(frozen=True, kw_only=True)
class Reinforced:
    """One row of RL4LMs' tables. Reward, prompts and decoding are the task's own where nothing else
    is said."""

    task: str
    model: str
    prompts: int
    minibatches: int
    updates: int
    lr: float
    kl: float
    """Coefficient of the KL penalty at the start."""
    target: float
    """Of the penalty's controller, nats per token."""
    every: int
    """Updates between evaluations."""
    ent_coef: float = 0.0
    top_p: float | None = None
    """Of NLPO's mask; None = PPO."""
    refresh: int = 20
    """Updates between refreshes of the mask (mu)."""
    data: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def recipe(self) -> dict[str, Any]:
        """The mapping of a run."""
        tethers: dict[str, Any] = {
            "kl": {
                "kind": "kl",
                "coef": self.kl,
                "controller": {"kind": "rl4lms", "target": self.target},
            }
        }
        if self.top_p is not None:
            tethers["nlpo_mask"] = {
                "kind": "nlpo_mask",
                "mask": "copy",
                "top_p": self.top_p,
                "refresh": {"kind": "every", "n": self.refresh, "unit": "update"},
            }
        out: dict[str, Any] = {
            "updates": self.updates,
            "model": {"path": self.model},
            "data": {"task": {"kind": self.task}, **self.data},
            "batch": {"prompts": self.prompts},
            "algorithm": {
                "kind": "ppo",
                "lr": self.lr,
                "epochs": 5,
                "minibatches": self.minibatches,
                "gamma": 0.99,
                "gae_lambda": 0.95,
                "clip_range": 0.2,
                "vf_coef": 1.0,
                "ent_coef": self.ent_coef,
            },
            "optimizer": {"weight_decay": 1e-6, "max_grad_norm": 0.5},
            "tethers": tethers,
            "evaluation": {"every": self.every},
        }
        return {**out, "sampling": dict(self.sampling)} if self.sampling else out


@dataclass(frozen=True, kw_only=True)
class Demonstrated:
    """Supervised training: RL4LMs' passes over its number of training rows."""

    name: str
    """Of the run, where the recipes on the supervised model look for it."""
    task: str
    model: str
    rows: int
    """Training rows, each reference one of its own."""
    passes: int
    batch: int
    """Rows of an optimizer step."""
    lr: float
    weight_decay: float = 0.0
    schedule: str = "constant"
    part: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the task."""

    def recipe(self) -> dict[str, Any]:
        """The mapping of a run."""
        steps = -(-self.rows // self.batch) * self.passes
        updates = max(1, round(steps / STEPS))
        part = {"kind": self.task, "one_row_a_reference": True, **self.part}
        return {
            "name": self.name,
            "updates": updates,
            "model": {"path": self.model},
            "data": {"task": part},
            "batch": {"prompts": self.batch * STEPS},
            "algorithm": {
                "kind": "supervised",
                "lr": self.lr,
                "epochs": 1,
                "minibatches": STEPS,
            },
            "optimizer": {"weight_decay": self.weight_decay, "schedule": self.schedule},
            "evaluation": {"every": max(1, updates // 10)},
        }
