"""Layers of a configuration: recipe < YAML files < `--a.b.c VALUE`; the later one wins."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tether.config.catalog import CATALOG
from tether.config.describe import part_description, paths, settings_description
from tether.config.errors import UserError
from tether.config.nearest import unknown
from tether.config.parts import DEFAULT_KIND, Place, as_part, reward_part
from tether.config.run import ClassifierSettings, RunSettings
from tether.config.text_values import from_text
from tether.config.types_as_text import (
    DictType,
    ListType,
    PartType,
    SettingsType,
    TupleType,
    UnionType,
    describe_type,
    resolve,
    without_none,
)

NAMED = {"tethers": "tether", "rewards": "reward", "judges": "reward"}
"""Fields that hold parts by name; null drops one, and a name of the catalog is its own kind."""
SINGLE = {"algorithm": "algorithm", "environment": "environment", "engine": "engine"}
SHORT = {"model": "model.path", "data": "data.path", "reward": "rewards.reward"}
"""Short forms on the command line."""


def normalised(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Parts as {kind, ...} mappings, lists of tethers as mappings by name, dropped ones gone."""
    out = _with_kinds(mapping)
    for name in (*NAMED, "domains"):
        if isinstance(out.get(name), dict):
            out[name] = {k: v for k, v in out[name].items() if v is not None}
    return out


def _with_kinds(mapping: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(mapping)
    for name, family in NAMED.items():
        if name in out and out[name] is None:
            out[name] = {}  # `--tethers null` drops all of them
        parts = out.get(name)
        if isinstance(parts, list | tuple):
            parts = _by_name(parts, family, name)
        if isinstance(parts, Mapping):
            out[name] = {k: _named(family, k, v, f"{name}.{k}") for k, v in parts.items()}
    for name, family in SINGLE.items():
        if out.get(name) is not None and not isinstance(out[name], Mapping):
            out[name] = as_part(family, out[name], Place(name, ""))
    data = out.get("data")
    if isinstance(data, Mapping) and isinstance(data.get("task"), str):
        out["data"] = {**data, "task": {"kind": data["task"]}}
    return out


def _named(family: str, name: str, value: Any, path: str) -> Any:
    if value is None:
        return None
    part = as_part(family, value, Place(path, ""))
    if "kind" not in part and name in CATALOG[family]:
        part = {"kind": name, **part}
    return part


def _by_name(parts: Sequence[Any], family: str, field: str) -> dict[str, Any]:
    """A Python list of parts -> mapping; each is called by its kind, a second one gets a number."""
    out: dict[str, Any] = {}
    for i, value in enumerate(parts):
        part = as_part(family, value, Place(f"{field}.{i}", ""))
        kind = str(part.get("kind", f"{family}_{i}"))
        base = kind.split(":")[-1].split(".")[-1].lower()
        name, n = base, 2
        while name in out:
            name, n = f"{base}_{n}", n + 1
        out[name] = part
    return out


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge, later layers win. A part whose kind changes starts afresh: settings of the former
    kind do not carry over. null drops all parts of a field, also where what is merged here is a
    layer of something else; an empty mapping adds none."""
    out: dict[str, Any] = {}
    for layer in layers:
        dropped = {name: None for name in NAMED if name in layer and layer[name] is None}
        out = _merge(out, {k: v for k, v in _with_kinds(layer).items() if k not in dropped})
        out |= dropped
    return out


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(dict(lower))
    for key, value in upper.items():
        below = out.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict):
            default = DEFAULT_KIND.get(SINGLE.get(key, ""), None)
            kind, old = value.get("kind"), below.get("kind", default)
            if kind is not None and kind != old:
                out[key] = copy.deepcopy(dict(value))
            else:
                out[key] = _merge(below, value)
        else:
            out[key] = copy.deepcopy(value)
    return out


def apply_overrides(
    mapping: Mapping[str, Any], overrides: Sequence[str], where: str = "the command line"
) -> dict[str, Any]:
    """`["--tethers.kl.coef", ".05", "--model.lora.rank=8", "--model.random_weights"]` on top of a
    mapping. Texts are read by the type of the field they set. Raises UserError."""
    out = _with_kinds(copy.deepcopy(dict(mapping)))
    pairs = [(SHORT.get(path, path), text) for path, text in split(overrides)]
    whole = {p for p, _ in pairs if any(q.startswith(f"{p}.") for q, _ in pairs)}
    # a section is set before what is in it, then a kind, which decides which keys there are
    pairs.sort(key=lambda p: (p[0] not in whole, not p[0].endswith(".kind")))
    for path, text in pairs:
        if path == "rewards.reward" and not text.lstrip().startswith("{"):
            given = None if text.lower() in ("null", "none") else reward_part(text)
            out["rewards"] = {**(out.get("rewards") or {}), "reward": given}
            continue
        job = out.get("job", "policy")
        cls = ClassifierSettings if job == "classifier" else RunSettings
        out = _set(SettingsType(cls.__name__), out, path.split("."), text, Place("", where))
    return out


def split(overrides: Sequence[str]) -> list[tuple[str, str]]:
    """Command-line words -> (dotted path, text); an option without a value is `true`."""
    pairs: list[tuple[str, str]] = []
    words = list(overrides)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise UserError(f"'{word}' is not an option; overrides are written --a.b.c VALUE")
        path, equals, text = word[2:].partition("=")
        if not equals:
            text = words.pop(0) if words and not _option(words[0]) else "true"
        head, *rest = path.split(".")
        keys = [head.replace("-", "_"), *rest]
        if head in SINGLE or head in NAMED or not rest:
            pairs.append((".".join(keys), text))
        else:
            pairs.append((path.replace("-", "_"), text))
    return pairs


def _option(word: str) -> bool:
    return word.startswith("--") and word[2:3].isalpha()


def _set(hint: Any, value: Any, keys: list[str], text: str, place: Place) -> Any:
    """`value` with the text at `keys` set; containers on the way are copied, and made where
    absent."""
    if not keys:
        return _whole(hint, value, text, place)
    hint, key = without_none(hint), keys[0]
    if isinstance(hint, UnionType):
        hint = next((m for m in hint.members if not isinstance(m, type)), hint)
    if isinstance(hint, SettingsType):
        fields = settings_description(hint.name)["fields"]
        return _set_field(fields, dict(value or {}), keys, text, place)
    if isinstance(hint, PartType):
        return _set_part(hint, dict(value or {}), keys, text, place)
    if isinstance(hint, DictType):
        out = dict(value or {})
        out[key] = _set(hint.item, out.get(key), keys[1:], text, place.at(key))
        return out
    if isinstance(hint, ListType | TupleType) and key.isdigit():
        items = list(value or [])
        if int(key) >= len(items):
            raise UserError(f"{place.at(key)}: there are only {len(items)} entries, from 0")
        item = (
            hint.item
            if isinstance(hint, ListType)
            else hint.items[-1 if hint.repeated else int(key)]
        )
        items[int(key)] = _set(item, items[int(key)], keys[1:], text, place.at(key))
        return items
    raise UserError(f"{place} is {describe_type(hint)}: there is no '{key}' inside it")


def _set_field(
    fields: dict[str, Any], out: dict[str, Any], keys: list[str], text: str, place: Place
) -> dict[str, Any]:
    key = keys[0]
    if key not in fields:
        raise unknown("key", key, fields, str(place), paths())
    entry = fields[key]
    below = out[key] if key in out else copy.deepcopy(entry.get("default"))
    out[key] = _set(resolve(entry["type"]), below, keys[1:], text, place.at(key))
    return out


def _set_part(
    hint: PartType, out: dict[str, Any], keys: list[str], text: str, place: Place
) -> dict[str, Any]:
    name = place.path.split(".")[-1]
    default = name if name in CATALOG[hint.family] else DEFAULT_KIND.get(hint.family)
    kind = out.get("kind") or hint.kind or default
    if keys == ["kind"]:
        return {"kind": text} if text != kind else {**out, "kind": kind}
    if not kind:
        raise UserError(
            f"there is no {hint.family} named '{name}' yet; add --{place.path}.kind KIND "
            f"(one of {', '.join(CATALOG[hint.family])}, or file.py:Class)"
        )
    fields = part_description(hint.family, kind, str(place))["fields"]
    return {"kind": kind, **_set_field(fields, out, keys, text, place)}


def _whole(hint: Any, value: Any, text: str, place: Place) -> Any:
    """A text for a whole field: by its type; a part takes the name of a kind."""
    inner = without_none(hint)
    if isinstance(inner, PartType) and not text.lstrip().startswith("{"):
        if text.lower() in ("null", "none"):
            return None
        if text.lower() == "true":
            text = place.path.split(".")[-1]  # `--tethers.min_length` alone adds it
        if inner.family == "reward":
            return reward_part(text, str(place))
        return value if isinstance(value, dict) and value.get("kind") == text else {"kind": text}
    if isinstance(inner, SettingsType):
        if text.lower() in ("null", "none", "false") and hint is not inner:
            return None
        if text.lower() == "true" and hint is not inner:
            return {}
        if not text.lstrip().startswith("{"):
            raise UserError(f"{place} is a mapping; set its parts: --{place.path}.KEY VALUE")
    return from_text(text, hint, str(place))
