"""JSON Schema (draft 2020-12) of a configuration file, for completion and checks in editors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tether.config.catalog import kinds as configurable
from tether.config.describe import schema
from tether.config.types_as_text import (
    DictType,
    ListType,
    PartType,
    SettingsType,
    TupleType,
    UnionType,
    resolve,
)

_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", Path: "string"}
_ROOT = {"policy": "RunSettings", "classifier": "ClassifierSettings"}


def json_schema(job: str = "policy") -> dict[str, Any]:
    """Everything the shipped schema knows; a part may also be a user's class with any keys."""
    shipped = schema()
    definitions: dict[str, Any] = {
        name: _object(d["fields"], d["summary"]) for name, d in shipped["settings"].items()
    }
    for family, kinds in shipped["parts"].items():
        if family == "recipe":
            continue
        users = {"properties": {"kind": {"type": "string", "pattern": ":"}}, "required": ["kind"]}
        choices = [_part(kind, kinds[kind]) for kind in configurable(family)]
        definitions[f"part_{family}"] = {"anyOf": [*choices, users]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tether run configuration",
        "$ref": f"#/$defs/{_ROOT[job]}",
        "$defs": definitions,
    }


def _object(fields: dict[str, Any], summary: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, entry in fields.items():
        properties[name] = {**_type(resolve(entry["type"])), "description": entry["doc"]}
        if "default" in entry:
            properties[name]["default"] = entry["default"]
    return {
        "type": "object",
        "description": summary,
        "properties": properties,
        "additionalProperties": False,
    }


def _part(kind: str, description: dict[str, Any]) -> dict[str, Any]:
    out = _object(description["fields"], description["summary"])
    out["properties"] = {"kind": {"const": kind}, **out["properties"]}
    return out


def _type(hint: Any) -> dict[str, Any]:
    if isinstance(hint, UnionType):
        return {"anyOf": [_type(m) for m in hint.members]}
    if hint is None:
        return {"type": "null"}
    if isinstance(hint, SettingsType):
        return {"$ref": f"#/$defs/{hint.name}"}
    if isinstance(hint, PartType):
        return {"$ref": f"#/$defs/part_{hint.family}"}
    if isinstance(hint, DictType):
        inner = _type(hint.item)
        droppable = {"anyOf": [inner, {"type": "null"}]} if inner else {}
        return {"type": "object", "additionalProperties": droppable or True}
    if isinstance(hint, ListType):
        return {"type": "array", "items": _type(hint.item)}
    if isinstance(hint, TupleType):
        if hint.repeated:
            return {"type": "array", "items": _type(hint.items[0])}
        inside = [_type(i) for i in hint.items]
        return {"type": "array", "prefixItems": inside, "minItems": len(inside), "items": False}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    return {"type": _TYPES[hint]} if hint in _TYPES else {}
