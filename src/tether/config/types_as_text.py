"""Annotations as text. The text stands in the shipped schema, so that settings of classes that
need torch can be checked, read from a command line and shown without importing them.

Grammar: `int float str bool None Any Path`, `Literal[...]`, `list[X]`, `dict[str, X]`,
`tuple[X, Y]`, `tuple[X, ...]`, `X | Y`, `Part['family']`, `Part['family', 'kind']` (that class
only) and `Settings['Name']` (a class of `tether.config.run`).
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tether.config.catalog import family_of, kind_of
from tether.config.run import Family


@dataclass(frozen=True)
class PartType:
    """A nested {kind, ...} mapping."""

    family: str
    kind: str | None = None

    def __class_getitem__(cls, item: Any) -> PartType:
        return cls(*item) if isinstance(item, tuple) else cls(item)


@dataclass(frozen=True)
class SettingsType:
    """A nested settings class of `tether.config.run`."""

    name: str

    def __class_getitem__(cls, item: str) -> SettingsType:
        return cls(item)


@dataclass(frozen=True)
class UnionType:
    """One of several types, in order."""

    members: tuple[Any, ...]


_PLAIN = {int: "int", float: "float", str: "str", bool: "bool", Path: "Path", Any: "Any"}


def render(hint: Any) -> str:
    """An evaluated annotation -> text; what the grammar has no word for is `Any`."""
    if hint is None or hint is type(None):
        return "None"
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [m for m in args[1:] if isinstance(m, Family)]
        return f"Part[{marks[0].name!r}]" if marks else render(args[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if origin in (Union, types.UnionType):
        kept = [a for a in args if get_origin(a) is not Callable] or list(args)
        members = [render(a) for a in kept]  # a function given from Python is recorded as text
        return "Any" if "Any" in members else " | ".join(dict.fromkeys(members))
    if hint is list or origin is list:
        return f"list[{render(args[0])}]" if args else "list[Any]"
    if hint is dict or origin is dict:
        return f"dict[str, {render(args[1])}]" if args else "dict[str, Any]"
    if hint is tuple or origin is tuple:
        inner = ["..." if a is Ellipsis else render(a) for a in args] or ["Any", "..."]
        return f"tuple[{', '.join(inner)}]"
    if family := family_of(hint):
        kind = kind_of(family, hint)
        return f"Part[{family!r}]" if _is_base(hint) else f"Part[{family!r}, {kind!r}]"
    if dataclasses.is_dataclass(hint) and getattr(hint, "__module__", "") == "tether.config.run":
        return f"Settings[{hint.__name__!r}]"  # type: ignore[union-attr]
    return "Any"


def _is_base(cls: type) -> bool:
    from tether.config.catalog import BASES

    return f"{cls.__module__}:{cls.__qualname__}" in BASES


@cache
def resolve(text: str) -> Any:
    """Text of the grammar -> typing objects with `PartType`, `SettingsType` and `UnionType`."""
    import ast

    return _node(ast.parse(text, mode="eval").body)


def _node(n: Any) -> Any:
    import ast

    if isinstance(n, ast.BinOp):
        members: list[Any] = []
        for side in (_node(n.left), _node(n.right)):
            members += side.members if isinstance(side, UnionType) else [side]
        return UnionType(tuple(members))
    if isinstance(n, ast.Constant):
        return None if n.value is None else n.value
    if isinstance(n, ast.Name):
        return {v: k for k, v in _PLAIN.items()}[n.id]
    items = n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice]
    name = n.value.id
    if name in ("Literal", "Part", "Settings"):
        values = tuple(ast.literal_eval(i) for i in items)
        if name == "Literal":
            return Literal[values]
        return PartType(*values) if name == "Part" else SettingsType(*values)
    inner = [_node(i) for i in items]
    if name == "list":
        return ListType(inner[0])
    if name == "dict":
        return DictType(inner[1])
    if inner[-1] is Ellipsis:
        return TupleType(tuple(inner[:-1]), True)
    return TupleType(tuple(inner), False)


@dataclass(frozen=True)
class ListType:
    item: Any


@dataclass(frozen=True)
class DictType:
    item: Any


@dataclass(frozen=True)
class TupleType:
    items: tuple[Any, ...]
    repeated: bool
    """True: any number of `items[0]`."""


def members(hint: Any) -> tuple[Any, ...]:
    return hint.members if isinstance(hint, UnionType) else (hint,)


def without_none(hint: Any) -> Any:
    """The single member of an optional part or settings class."""
    rest = [m for m in members(hint) if m is not None]
    return rest[0] if len(rest) == 1 else hint


def describe_type(hint: Any) -> str:
    """The type in words, for one-line errors."""
    if isinstance(hint, UnionType):
        return " or ".join(describe_type(m) for m in hint.members)
    if hint is None:
        return "null"
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(a) for a in get_args(hint))
    if isinstance(hint, PartType):
        return f"a {hint.family} (a mapping with kind)"
    if isinstance(hint, SettingsType | DictType):
        return "a mapping"
    if isinstance(hint, ListType):
        return f"a list ({describe_type(hint.item)} each)"
    if isinstance(hint, TupleType):
        many = "a list" if hint.repeated else f"a list of {len(hint.items)}"
        return f"{many} ({describe_type(hint.items[0])} each)"
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return words.get(hint, "a path" if hint is Path else "a value")


@cache
def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def leaf(hint: Any, value: Any) -> Any:
    """A value of a scalar type, by pydantic. Raises ValueError where it is none.

    Stricter than pydantic's lax mode: true is not 1, NaN and infinity are no numbers.
    """
    if hint is Any:
        return value
    if hint is None:
        if value is None:
            return None
        raise ValueError("not null")
    if isinstance(value, bool) and hint in (int, float):
        raise ValueError("a truth value is no number")
    if hint is bool and not isinstance(value, bool):
        raise ValueError("not a truth value")
    out = _adapter(hint).validate_python(value)
    if isinstance(out, float) and not math.isfinite(out):
        raise ValueError("not finite")
    return out
