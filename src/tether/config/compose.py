"""Recipe < YAML files < overrides, in one call: what the command line and Python both use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tether.config.catalog import load
from tether.config.errors import UserError
from tether.config.layers import apply_overrides, merge
from tether.config.parts import Place, as_part
from tether.config.settings import Settings, parse
from tether.config.text_values import read_yaml


def recipe(name: str) -> dict[str, Any]:
    """The mapping of one recipe: a catalog name, or a user's `file.py:function`."""
    function = load("recipe", name)
    mapping = function()
    if not isinstance(mapping, dict):
        raise UserError(f"the recipe {name} must return a mapping, not {type(mapping).__name__}")
    return mapping


def compose(
    name: str | None = None,
    files: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings of a run. `values` is a last layer of Python values, under the overrides.

    A run that nobody named is called after its recipe (or file) and seed.
    """
    layers: list[Mapping[str, Any]] = [recipe(name)] if name else []
    layers += [read_yaml(f) for f in files]
    layers += [values] if values else []
    merged = layered(layers, overrides)
    if "name" not in merged:
        base = (name or (Path(files[0]).stem if files else "run")).replace(":", "-")
        merged["name"] = f"{Path(base).name}-seed{merged.get('seed', 0)}"
    parts = [f"the recipe {name}" if name else "", *map(str, files)]
    source = " + ".join(p for p in [*parts, "the command line" if overrides else ""] if p)
    return parse(merged, source)


def layered(layers: Sequence[Mapping[str, Any]], overrides: Sequence[str]) -> dict[str, Any]:
    """Layers and overrides on top of what the task of the data proposes, if there is one."""
    merged = apply_overrides(merge(*layers), overrides)
    proposed = proposal(merged)
    # an override fills its whole section with defaults: the task has to be there before
    return apply_overrides(merge(proposed, *layers), overrides) if proposed else merged


def proposal(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """What `data.task` of a mapping of settings proposes for everything that nobody says.

    Its hub id comes with configuration and revision only where no other path is given, its reward
    only where there is none at all.
    """
    data = mapping.get("data")
    data = data if isinstance(data, Mapping) else {}
    part = data.get("task")
    if part is None or mapping.get("job", "policy") != "policy":
        return {}
    part = as_part("task", part, Place("data.task", ""))
    task = load("task", str(part.get("kind", "")), "data.task")
    given = dict(task.data)
    if not data.get("path"):
        hub = {"path": task.hub, "name": task.hub_name, "revision": task.hub_revision}
        given |= {k: v for k, v in hub.items() if v is not None}
    out: dict[str, Any] = {"data": given, "sampling": dict(task.sampling)}
    if task.evaluation:
        out["evaluation"] = {"sampling": dict(task.evaluation)}
    if "rewards" not in mapping:
        out["rewards"] = {k: dict(v) for k, v in task.rewards.items()}
    return out


def from_python(
    values: Mapping[str, Any],
    *,
    model: Any = None,
    data: Any = None,
    reward: Any = None,
    tethers: Any = None,
) -> dict[str, Any]:
    """Keyword arguments of the Python face -> a layer. Functions and instances are recorded by
    name and settings, so the run can be dumped and resumed like any other."""
    layer: dict[str, Any] = {}
    for key, value in values.items():
        here = layer
        *heads, last = key.split(".")
        for head in heads:
            here = here.setdefault(head, {})
        here[last] = value
    for key, path in (("model", model), ("data", data)):
        if path is not None:
            if not isinstance(path, str | os.PathLike | Mapping):
                raise UserError(
                    f"{key} must be a folder, a file or a hub id, not a {type(path).__name__}; a"
                    " resumed run must find it again, so write it to a file"
                )
            given = path if isinstance(path, Mapping) else {"path": str(path)}
            layer[key] = {**layer.get(key, {}), **given}
    if reward is not None:
        part = as_part("reward", reward, Place("reward", "the call"))
        layer["rewards"] = {**layer.get("rewards", {}), "reward": part}
    if tethers is not None:
        layer["tethers"] = tethers if isinstance(tethers, Mapping) else list(tethers)
    return layer
