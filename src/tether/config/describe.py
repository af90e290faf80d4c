"""What a class accepts: its settings with type, default and documentation.

The shipped `schema.json` holds this for every class of the catalog and of `tether.config.run`, so
help, listing and checks need no torch; for a user's class the same is read from the class.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
import typing
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tether.config.catalog import CATALOG, address_of, family_of, kind_of, load, load_object
from tether.config.errors import UserError
from tether.config.run import ClassifierSettings, RunSettings
from tether.config.types_as_text import render

Description = dict[str, Any]
"""{"source": address, "summary": first line of the docstring, "fields": {name: {"type", "doc",
"default"}}}; no "default" = required."""
SCHEMA = Path(__file__).with_name("schema.json")
SETTINGS_MODULE = "tether.config.run"


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The shipped schema: {"settings": {class: Description}, "parts": {family: {kind: ...}}}."""
    return json.loads(SCHEMA.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@cache
def settings_description(name: str) -> Description:
    """Of a settings class, read from the class: it is as cheap as the file and never stale."""
    return describe(load_object(f"{SETTINGS_MODULE}:{name}"))


def part_description(family: str, kind: str, where: str = "") -> Description:
    """Of one part: from the shipped schema for ours, from the class for a user's."""
    shipped = schema()["parts"].get(family, {}).get(kind) if SCHEMA.exists() else None
    return shipped if shipped is not None else describe(load(family, kind, where), where)


_FAULT = re.compile(r" \(B\d\d(?:, B\d\d)*\)")
"""Numbers of known faults, which docstrings cite for those who read the source."""


def describe(cls: Any, where: str = "") -> Description:
    """Read a dataclass (its fields and docs) or, for a recipe, a function's docstring."""
    source = f"{cls.__module__}:{cls.__qualname__}"
    summary = summary_of(cls)
    if inspect.isfunction(cls):
        return {"source": source, "summary": summary, "fields": {}}
    if not (inspect.isclass(cls) and dataclasses.is_dataclass(cls)):
        place = f" in {where}" if where else ""
        raise UserError(f"{source}{place} must be a dataclass: its fields are its settings")
    if cls.__doc__ and cls.__doc__.startswith(f"{cls.__name__}("):
        summary = ""  # what `dataclass` writes where there is no docstring
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as e:
        raise UserError(f"{source}: an annotation names what is not imported: {e}") from e
    docs = {k: _FAULT.sub("", v) for k, v in field_docs(cls).items()}
    fields: dict[str, Any] = {}
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        entry: dict[str, Any] = {"type": render(hints[f.name]), "doc": docs.get(f.name, "")}
        default = _default(f)
        if default is not dataclasses.MISSING:
            entry["default"] = plain(default)
        fields[f.name] = entry
    return {"source": source, "summary": summary, "fields": fields}


def summary_of(thing: Any) -> str:
    """What a docstring says first: its first paragraph without sources."""
    doc = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
    first = inspect.cleandoc(doc or "").split("\n\n")[0]
    return _FAULT.sub("", " ".join(first.split()).split(" Source:")[0])


def _default(f: Any) -> Any:
    if f.default is not dataclasses.MISSING:
        return f.default
    if f.default_factory is not dataclasses.MISSING:
        return f.default_factory()
    return dataclasses.MISSING


def field_docs(cls: type) -> dict[str, str]:
    """The string literal under each field, own fields over inherited ones."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            docs |= _own_docs(base)
    return docs


@lru_cache(maxsize=1024)
def _own_docs(base: type) -> dict[str, str]:
    """Of one class: reading its source takes longer than all else at the start of a run."""
    docs: dict[str, str] = {}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
    except (OSError, TypeError, SyntaxError):
        return docs  # a class typed into an interpreter has no source: no docs, all else works
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for before, after in itertools.pairwise(statements):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            docs[before.target.id] = " ".join(after.value.value.split())
    return docs


def plain(value: Any) -> Any:
    """A setting as YAML and JSON hold it: parts as {kind, ...}, tuples as lists, paths as text.

    Raises UserError for a value that a file cannot hold.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(v) for v in value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        family = family_of(type(value))
        own = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return own if family is None else {"kind": kind_of(family, type(value)), **own}
    if callable(value):
        return address_of(value, "function")
    raise UserError(f"a setting cannot be written to a file: {value!r}")


def paths() -> list[str]:
    """Dotted paths of the keys of a run, with those of our algorithms and of the KL tether: where a
    key that was put in the wrong place belongs."""
    shipped = schema()["parts"] if SCHEMA.exists() else {}
    out = [
        f"algorithm.{n}" for kind in shipped.get("algorithm", {}).values() for n in kind["fields"]
    ]
    out += _paths(settings_description(RunSettings.__name__)["fields"], "")
    for kind, part in shipped.get("tether", {}).items():
        out += [f"tethers.{kind}.{name}" for name in part["fields"]]
    return list(dict.fromkeys(out))


def _paths(fields: dict[str, Any], prefix: str) -> list[str]:
    out: list[str] = []
    for name, entry in fields.items():
        out.append(prefix + name)
        for inner in re.findall(r"^Settings\['(\w+)'\]", entry["type"]):
            out += _paths(settings_description(inner)["fields"], f"{prefix}{name}.")
    return sorted(out, key=lambda p: p.count("."))


def generate() -> dict[str, Any]:
    """The content of `schema.json`; needs every class of the catalog, and so torch."""
    parts = {
        family: {kind: describe(load(family, kind)) for kind in kinds}
        for family, kinds in CATALOG.items()
    }
    waiting, settings = [RunSettings.__name__, ClassifierSettings.__name__], {}
    while waiting:
        name = waiting.pop(0)
        if name not in settings:
            settings[name] = settings_description(name)
            text = " ".join(f["type"] for f in settings[name]["fields"].values())
            waiting += re.findall(r"Settings\['(\w+)'\]", text)
    return {"settings": settings, "parts": parts}
