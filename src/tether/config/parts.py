"""Mappings -> checked values -> objects, and back.

A part is `{kind: ..., **settings}`. `check` reads it by the class's description (no import for
ours), `build` constructs the object, `dump` is the inverse of `build`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tether.config.catalog import (
    CATALOG,
    address_of,
    family_of,
    kind_of,
    kinds,
    load,
    load_object,
    unknown_reward,
)
from tether.config.describe import (
    SETTINGS_MODULE,
    Description,
    describe,
    part_description,
    paths,
    plain,
    settings_description,
)
from tether.config.errors import SettingError, UserError
from tether.config.nearest import nearest, unknown
from tether.config.types_as_text import (
    DictType,
    ListType,
    PartType,
    SettingsType,
    TupleType,
    UnionType,
    describe_type,
    leaf,
    members,
    resolve,
)

DEFAULT_KIND = {
    "algorithm": "ppo",
    "environment": "single_turn",
    "engine": "hf",
    "reward": "",
    "task": "",
    "tether": "",
}
"""Kind of a part that does not say one, where there is an obvious one."""


@dataclass(frozen=True)
class Place:
    """Where a value stands: dotted path, and the file or command that brought it."""

    path: str
    source: str

    def at(self, name: str | int) -> Place:
        return Place(f"{self.path}.{name}" if self.path else str(name), self.source)

    def __str__(self) -> str:
        return " of ".join(p for p in (self.path, self.source) if p)


def build(family: str, part: Mapping[str, Any] | str, where: str = "") -> Any:
    """Construct the dataclass of one part, nested parts included.

    Raises UserError (one line) for an unknown kind or key, a wrong value, or what the class itself
    refuses in `__post_init__`.
    """
    return _part(PartType(family), part, Place(where, ""), construct=True)


def check(family: str, part: Mapping[str, Any] | str, where: str = "") -> dict[str, Any]:
    """The part with every setting filled in, as plain values; constructs nothing."""
    value: dict[str, Any] = _part(PartType(family), part, Place(where, ""), construct=False)
    return value


def dump(instance: Any, family: str) -> dict[str, Any]:
    """Inverse of `build`: {kind, **all settings}."""
    if not dataclasses.is_dataclass(instance) or isinstance(instance, type):
        raise UserError(f"a {family} must be an instance of a dataclass, not {instance!r}")
    values = plain(instance)
    return {"kind": kind_of(family, type(instance)), **values}


LARGEST = 2**63 - 1
"""Of whole numbers: what counts and indices are computed with."""


def convert(hint: Any, value: Any, place: Place, construct: bool = False) -> Any:
    """One value by its resolved type. Raises UserError naming the place."""
    if callable(value) and not isinstance(value, type) and str in members(hint):
        return value if construct else address_of(value)
    if isinstance(hint, UnionType):
        return _union(hint, value, place, construct)
    if isinstance(hint, PartType):
        return _part(hint, value, place, construct)
    if isinstance(hint, SettingsType):
        return _settings(hint.name, value, place)
    if isinstance(hint, DictType):
        if not isinstance(value, Mapping):
            raise _wrong(hint, value, place)
        return {
            leaf(str, k) if isinstance(k, str) else str(k): convert(
                hint.item, v, place.at(k), construct
            )
            for k, v in value.items()
        }
    if isinstance(hint, ListType | TupleType):
        return _sequence(hint, value, place, construct)
    try:
        found = leaf(hint, value)
    except ValueError as e:
        raise _wrong(hint, value, place) from e
    if isinstance(found, int) and abs(found) > LARGEST:
        where = f" in {place.source}" if place.source else ""
        raise UserError(f"{place.path or 'the value'}{where} is {found}, must be below 2^63")
    return found


def _sequence(hint: ListType | TupleType, value: Any, place: Place, construct: bool) -> Any:
    if not isinstance(value, list | tuple):
        raise _wrong(hint, value, place)
    if isinstance(hint, ListType):
        return [convert(hint.item, v, place.at(i), construct) for i, v in enumerate(value)]
    items = hint.items * len(value) if hint.repeated else hint.items
    if len(items) != len(value):
        raise _wrong(hint, value, place)
    return tuple(
        convert(h, v, place.at(i), construct)
        for i, (h, v) in enumerate(zip(items, value, strict=True))
    )


def _union(hint: UnionType, value: Any, place: Place, construct: bool) -> Any:
    """The first member that takes the value; exact types go before those that convert."""
    if value is None and None in hint.members:
        return None
    exact = [m for m in hint.members if m in (int, float, str, bool) and type(value) is m]
    first: UserError | None = None
    for m in [*exact, *hint.members]:
        if m is None:
            continue
        try:
            return convert(m, value, place, construct)
        except UserError as e:
            deep = isinstance(m, PartType | SettingsType) and isinstance(value, Mapping)
            if deep or (isinstance(m, PartType) and isinstance(value, str)):
                first = first or e
    raise first or _wrong(hint, value, place)


def _wrong(hint: Any, value: Any, place: Place) -> UserError:
    literals = [a for m in members(hint) if get_origin(m) is Literal for a in get_args(m)]
    guess = nearest(value, [str(a) for a in literals]) if isinstance(value, str) else None
    mend = f"; did you mean '{guess}'?" if guess else ""
    where = f" in {place.source}" if place.source else ""
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    return UserError(
        f"{place.path or 'the value'}{where} is {shown}, not {describe_type(hint)}{mend}"
    )


def _fields(
    description: Description,
    value: Mapping[str, Any],
    place: Place,
    construct: bool,
    skip: str = "",
) -> dict[str, Any]:
    """Settings by their description: unknown keys, values, defaults, required ones."""
    fields = description["fields"]
    for key in value:
        if key != skip and key not in fields:
            known = [*fields, *([skip] if skip else [])]
            raise unknown("key", str(key), known, str(place), paths())
    out: dict[str, Any] = {}
    for name, entry in fields.items():
        if name not in value and "default" not in entry:
            doc = f" ({entry['doc']})" if entry["doc"] else ""
            raise UserError(f"{place.at(name).path}{_from(place)} is missing{doc}; give it a value")
        given = value[name] if name in value else entry["default"]
        usual = entry.get("default")
        if isinstance(given, Mapping) and isinstance(usual, Mapping) and "kind" in usual:
            # without a kind these are changes of the part that stands there, as --a.b.c makes them
            given = given if "kind" in given else {**usual, **given}
        out[name] = convert(resolve(entry["type"]), given, place.at(name), construct)
    return out


def _from(place: Place) -> str:
    return f" in {place.source}" if place.source else ""


def _settings(name: str, value: Any, place: Place) -> Any:
    cls = load_object(f"{SETTINGS_MODULE}:{name}")
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise _wrong(SettingsType(name), value, place)
    return cls(**_fields(settings_description(name), value, place, construct=False))


def _part(hint: PartType, value: Any, place: Place, construct: bool) -> Any:
    value = as_part(hint.family, value, place)
    kind = value.get("kind") or hint.kind or DEFAULT_KIND.get(hint.family, "")
    if not kind:
        raise UserError(f"{place.path}{_from(place)} says no kind; add kind: NAME or file.py:Class")
    if hint.kind is not None and kind != hint.kind:
        raise UserError(f"{place.path}{_from(place)} must be of kind '{hint.kind}', not '{kind}'")
    if kind in CATALOG[hint.family] and kind not in kinds(hint.family):
        raise UserError(
            f"{place.path}{_from(place)}: '{kind}' is measured from a model's scores, not from "
            f"texts; choose another {hint.family}"
        )
    if not construct:
        description = part_description(hint.family, kind, str(place))
        fields = _fields(description, value, place, False, skip="kind")
        return {"kind": kind, **plain(fields)}
    cls = load(hint.family, kind, str(place))
    if inspect.isfunction(cls):
        how = ", or give the function alone, FILE.py:NAME" if hint.family == "reward" else ""
        raise UserError(
            f"{place}: '{kind}' is a function; a kind is a class whose fields are its settings{how}"
        )
    fields = _fields(describe(cls, str(place)), value, place, True, skip="kind")
    if family_of(cls) not in (hint.family, None):
        raise UserError(f"{place}: '{kind}' is a {family_of(cls)}, not a {hint.family}")
    try:
        return cls(**fields)
    except SettingError as e:
        raise UserError(f"{place.at(e.setting)}: {e.why}") from e
    except UserError as e:
        raise UserError(f"{place}: {e}") from e
    except ValueError as e:
        raise UserError(f"{place}: {e}") from e


def as_part(family: str, value: Any, place: Place) -> dict[str, Any]:
    """What users and Python callers write for a part -> {kind, ...}: a mapping, the name of a kind,
    an instance, or (for a reward) a function."""
    if isinstance(value, str):
        return {"kind": value} if family != "reward" else reward_part(value, str(place))
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dump(value, family)
    if isinstance(value, type) and family_of(value) == family:
        return {"kind": kind_of(family, value)}
    if family == "reward" and callable(value):
        return {"kind": "function", "function": address_of(value, "reward")}
    raise _wrong(PartType(family), value, place)


def reward_part(text: str, where: str = "--reward") -> dict[str, Any]:
    """`--reward X`: a builtin's name; a function (`file.py:f`, `module:f`, TRL's `pkg.mod.f`); or
    the folder or hub id of a classifier. where: what an error names instead."""
    if ":" in text and not Path(text).exists():
        return {"kind": "function", "function": text}
    if text in CATALOG["reward"]:
        return {"kind": text}
    if Path(text).exists() or "/" in text:
        return {"kind": "classifier", "path": text}
    if "." in text and all(p.isidentifier() for p in text.split(".")):
        return {"kind": "function", "function": text}
    if where == "--reward":
        how = "--rewards.NAME.kind metric --rewards.NAME.metric {0}"
        raise unknown_reward(text, where, how)
    raise unknown_reward(text, where)
