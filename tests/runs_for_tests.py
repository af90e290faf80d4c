"""A whole run on a tiny random model in a temporary folder: seconds, no hub."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from tests.models_for_tests import byte_tokenizer, tiny_module
from tether.config.layers import merge
from tether.config.run import RunSettings
from tether.config.settings import parse
from tether.distributed.total import total
from tether.train.build import build_agent, build_parts, check_data
from tether.train.collect import collect
from tether.train.run import _numbers, fingerprint, train
from tether.train.update import PolicyLearner
from tether.types import Clock

PROMPTS = ["the film", "a", "an actor of", "this", "we", "it is not", "no one knows", "she said so"]

REWARDS = str(Path(__file__).with_name("rewards_for_tests.py"))

SETTINGS: dict[str, Any] = {
    "updates": 6,
    "threads": 1,
    "data": {"reference": "reference", "validation_rows": 4},
    "model": {"device": "cpu", "dtype": "float32"},
    "sampling": {"max_new_tokens": 5},
    "batch": {"prompts": 4, "microbatch": 4},
    "algorithm": {"kind": "ppo", "lr": 1e-3, "epochs": 2, "minibatches": 2},
    "rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:noisy"}},
    "evaluation": {"every": 2, "prompts": 4, "human_rows": 2, "human_tokens": 16, "samples": 2},
    "checkpoint": {"every": 2, "export": False},
}
"""PPO; `MAIN` adds what exact resume must carry."""

MAIN: dict[str, Any] = {
    "tethers": {
        "kl": {"kind": "kl", "coef": 0.1, "reference": "ema", "controller": {"kind": "rl4lms"}},
        "elastic_reset": {
            "kind": "elastic_reset",
            "reset": {"kind": "every", "n": 3},
            "average": {"kind": "every", "n": 1, "unit": "epoch"},
            "decay": 0.8,
        },
    }
}
"""KL to the average with an adaptive coefficient, and Elastic Reset."""


def make_world(folder: Path, kind: str = "gpt2", rows: int = 16, **options: Any) -> Path:
    """`model/` and `prompts.jsonl` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {"sharp": 2.0, **options}
    module = tiny_module(kind, **options)
    module.save_pretrained(folder / "model")
    byte_tokenizer().save_pretrained(folder / "model")
    with open(folder / "prompts.jsonl", "w", encoding="utf-8") as f:
        for i in range(rows):
            row = {"prompt": f"{PROMPTS[i % len(PROMPTS)]} {i}", "reference": f" was good {i}"}
            f.write(json.dumps(row) + "\n")
    return folder


def mapping(world: Path, *changes: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Settings of a run in `world`, as a mapping; later changes win."""
    here = {
        "model": {"path": str(world / "model")},
        "data": {"path": str(world / "prompts.jsonl")},
        "root": str(world / "runs"),
    }
    out: dict[str, Any] = merge(SETTINGS, here, *changes, values)
    return out


def settings(world: Path, *changes: dict[str, Any], **values: Any) -> RunSettings:
    found = parse(mapping(world, *changes, **values), "a test")
    assert isinstance(found, RunSettings)
    return found


def quiet(_: str) -> None:
    """Says nothing."""


def run(chosen: RunSettings, **options: Any) -> Path:
    return train(chosen, say=quiet, **options)


def agent_of(chosen: RunSettings) -> Any:
    """The agent of a run that is not started."""
    parts = build_parts(chosen)
    check_data(chosen, parts)
    return build_agent(chosen, parts)


def config_of(chosen: RunSettings) -> str:
    return fingerprint(_numbers(chosen))


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "record.jsonl").read_text(encoding="utf-8")
    return [json.loads(x) for x in text.splitlines()]


def metrics(folder: Path) -> list[dict[str, float]]:
    return [x["metrics"] for x in lines(folder) if x["kind"] == "update"]


def final_state(folder: Path) -> bytes:
    """Bytes of the newest checkpoint's tensors: weights of every set, moments, critic."""
    newest = sorted((folder / "checkpoints").glob("update_*"))[-1]
    return (newest / "tensors.safetensors").read_bytes()


def numbers_of(folder: Path) -> dict[str, bytes]:
    """Everything that must be equal for two equal runs, bit for bit."""
    return {
        "record": (folder / "record.jsonl").read_bytes(),
        "samples": (folder / "samples.jsonl").read_bytes(),
        "weights": final_state(folder),
    }


def collected(agent: Any, update: int = 0, seed: int = 0) -> Any:
    """One experience of an agent that is not in a run."""
    with ThreadPoolExecutor(1) as pool:
        return collect(agent, agent.algorithm.at(update), update, seed, {}, pool, {})


def gradients(agent: Any, experience: Any, targets: Any = None) -> dict[str, Any]:
    """What one optimizer step over all rows would see: name -> fp32 gradient."""
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], Clock, 0)
    agent.optimizer.zero()
    targets = targets or agent.algorithm.advantages(experience, total)
    learner.accumulate(learner.whole(experience, targets))
    agent.optimizer.gather_gradients()
    agent.optimizer.sum_over_ranks()
    out = {}
    for group in ("policy", "critic"):
        for n, p in agent.sets.sets.get(group, {}).items():
            out[f"{group}/{n}"] = torch.zeros_like(p) if p.grad is None else p.grad.clone()
    agent.optimizer.zero()
    return out
