"""Run settings <-> mappings: `parse` checks and fills in, `dump` writes all of it back.

`parse(dump(x), ...) == x`, also through YAML text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tether.config.checks import check_together
from tether.config.describe import plain
from tether.config.errors import UserError
from tether.config.layers import normalised
from tether.config.nearest import unknown
from tether.config.parts import Place, convert
from tether.config.run import ClassifierSettings, RunSettings
from tether.config.text_values import read_yaml
from tether.config.types_as_text import SettingsType

Settings = RunSettings | ClassifierSettings
JOBS = {"policy": RunSettings, "classifier": ClassifierSettings}


def parse(mapping: Mapping[str, Any], where: str = "") -> Settings:
    """Mapping -> settings with every part filled in (built-in parts without torch).

    Raises UserError, one line: unknown key (nearest name, or our word for another library's),
    wrong value, impossible combination.
    """
    if not isinstance(mapping, Mapping):
        raise UserError(f"{where or 'the configuration'} must be a mapping, not {mapping!r}")
    job = mapping.get("job", "policy")
    if job not in JOBS:
        raise unknown("job", str(job), JOBS, where)
    settings: Settings = convert(
        SettingsType(JOBS[job].__name__), _as_in_training(normalised(mapping)), Place("", where)
    )
    check_together(settings, where)
    return settings


def _as_in_training(mapping: dict[str, Any]) -> dict[str, Any]:
    """What `evaluation.sampling` does not say is as in training (B35)."""
    evaluation, sampling = mapping.get("evaluation"), mapping.get("sampling")
    own = evaluation.get("sampling") if isinstance(evaluation, Mapping) else None
    if not isinstance(own, Mapping) or not isinstance(sampling, Mapping):
        return mapping
    return {**mapping, "evaluation": {**evaluation, "sampling": {**sampling, **own}}}  # type: ignore[dict-item]


def dump(settings: Settings) -> dict[str, Any]:
    """Settings -> plain mapping for YAML and JSON; inverse of `parse`."""
    return {f.name: plain(getattr(settings, f.name)) for f in dataclasses.fields(settings)}


def read(path: str | Path) -> Settings:
    """`config.yaml` of a run folder (or a folder that holds one) -> settings."""
    path = Path(path)
    path = path / "config.yaml" if path.is_dir() else path
    found = read_yaml(path)
    if not found:
        raise UserError(f"{path} is empty: restore it, since a run cannot be read without it")
    return parse(_as_it_ran(found), str(path))


def _as_it_ran(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """A run without `model.lora.dtype` is from before it could be chosen: its adapter was fp32."""
    model = found.get("model")
    adapter = model.get("lora") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(adapter, Mapping) or "dtype" in adapter:
        return found
    return {**found, "model": {**model, "lora": {**adapter, "dtype": BEFORE}}}


def method_of(settings: RunSettings) -> str:
    """Name of the method in tables and plots: as set, else the algorithm and its tethers."""
    if settings.method:
        return settings.method
    parts = [str(settings.algorithm["kind"]), *(k for k, p in settings.tethers.items() if p)]
    return " + ".join(parts)


PLACE_ONLY = ("name", "root")
"""What may differ between equal runs."""
BEFORE = "float32"
"""`model.lora.dtype` of runs from before there was that setting."""


def fingerprint(mapping: Mapping[str, Any] | Settings) -> str:
    """16 hex digits of the settings, but for the run's name and folder."""
    full = dump(mapping) if isinstance(mapping, RunSettings | ClassifierSettings) else mapping
    kept = {k: plain(v) for k, v in full.items() if k not in PLACE_ONLY}
    model = kept.get("model")
    adapter = model.get("lora") if isinstance(model, Mapping) else None
    if isinstance(adapter, Mapping) and adapter.get("dtype") == BEFORE:  # as in records of then
        other = {k: v for k, v in adapter.items() if k != "dtype"}
        kept["model"] = {**model, "lora": other}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
