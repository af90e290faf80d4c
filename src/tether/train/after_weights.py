"""The weights that a finished run has left behind: its last checkpoint (fp32 masters), else what it
exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.config.settings import read
from tether.core.weights import fingerprint, lerp_, local, trainable
from tether.models import lora
from tether.models.language_model import LanguageModel
from tether.models.loading import load_beside
from tether.models.weight_sets import WeightSets
from tether.train import checkpoint
from tether.train.run import complete


def finished(folder: Path) -> RunSettings:
    """Settings of a finished policy run. Raises UserError for any other folder."""
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder} is not the folder of a run: it holds no config.yaml")
    settings = read(folder)
    if not isinstance(settings, RunSettings):
        raise UserError(f"{folder} is a classifier, not a policy run")
    if not complete(folder):
        raise UserError(f"{folder} is not finished; to go on: tether resume {folder}")
    return settings


def last_checkpoint(folder: Path, settings: RunSettings) -> Path | None:
    """The usable checkpoint of the last update."""
    path, _ = checkpoint.newest(folder / "checkpoints")
    return path if path is not None and path.name == checkpoint.name_of(settings.updates) else None


def has_weights(folder: Path, settings: RunSettings) -> None:
    """Raises UserError where nothing of the final weights is left; asked before a model loads."""
    kept = [folder / "policy", *([folder / "adapter"] if settings.model.lora else [])]
    if last_checkpoint(folder, settings) is None and not all(k.is_dir() for k in kept):
        raise UserError(
            f"{folder} has no weights left (no policy/, no checkpoint of its last update); a run "
            "can measure this before it ends: --after.interpolate true"
        )


@torch.no_grad()
def load_final(folder: Path, settings: RunSettings, lm: LanguageModel, sets: WeightSets) -> None:
    """Fills the sets of a freshly built model: `policy` with the final weights, and from a
    checkpoint `initial` too, bit for bit.

    Raises UserError for weights of another model, base or adapter.
    """
    path = last_checkpoint(folder, settings)
    if path is not None:
        agents = checkpoint.load(path)["agents"]
        _from_checkpoint(path, next(iter(agents.values()))["sets"], sets)
    elif lora.is_adapted(lm.module):
        _from_adapter(folder / "adapter", lm, sets)
    else:
        theirs = trainable(load_beside(str(folder / "policy"), lm).module)
        _fill(folder / "policy", theirs, sets, "policy")
    sets.publish("policy")


def _from_checkpoint(path: Path, state: dict[str, Any], sets: WeightSets) -> None:
    if state["base"] != sets.base_fingerprint():
        raise UserError(f"{path} is of an adapter on another base model (its hash differs)")
    for name in ("initial", "policy"):
        theirs = {
            k.removeprefix(f"{name}/"): t
            for k, t in state["tensors"].items()
            if k.startswith(f"{name}/")
        }
        _fill(path, theirs, sets, name)


def _from_adapter(folder: Path, lm: LanguageModel, sets: WeightSets) -> None:
    from peft.utils import load_peft_weights, set_peft_model_state_dict

    base = json.loads((folder / "base.json").read_text(encoding="utf-8"))["fingerprint"]
    if base != sets.base_fingerprint():
        raise UserError(f"{folder} is of an adapter on another base model (its hash differs)")
    before = {n: local(t).clone() for n, t in sets.working["policy"].items()}
    set_peft_model_state_dict(lm.module, load_peft_weights(str(folder), device="cpu"))
    theirs = {n: local(t).clone() for n, t in sets.working["policy"].items()}
    if all(torch.equal(before[n], t) for n, t in theirs.items()):
        raise UserError(f"{folder}: no tensor of this adapter belongs to the model")
    _fill(folder, theirs, sets, "policy")


def _fill(place: Path, theirs: dict[str, Any], sets: WeightSets, name: str) -> None:
    try:
        lerp_(sets.sets[name], theirs)
    except ValueError as e:
        raise UserError(f"{place} does not fit the model of the run's config.yaml: {e}") from e


def same_start(folder: Path, lm: LanguageModel, sets: WeightSets) -> None:
    """Raises UserError where the initial model is not what the run began with (files or code have
    changed since); of another dtype nothing can be said."""
    facts = environment(folder)
    known, dtype = facts.get("initial_weights"), facts.get("model", {}).get("dtype")
    if known and dtype == lm.facts["dtype"] and known != fingerprint(sets.sets["initial"]):
        raise UserError(
            f"{folder}: the model of its config.yaml is not the one it began with (the hash of the "
            "weights in environment.json differs)"
        )


def environment(folder: Path) -> dict[str, Any]:
    """environment.json of a run; empty where there is none."""
    file = folder / "environment.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found
