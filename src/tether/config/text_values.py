"""YAML text <-> values, and the text of one `--a.b.c VALUE` read by the type of its field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml

from tether.config.errors import UserError
from tether.config.types_as_text import (
    DictType,
    ListType,
    PartType,
    SettingsType,
    TupleType,
    members,
)
from tether.config.whole_file import write_whole


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML 1.1 with two mends: 1e-4 is a number, and a key that stands twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key}' stands twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes exactly the texts that `_Loader` would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """PyYAML folds the line breaks U+0085, U+2028 and U+2029 unless they are escaped."""
    style = None if text.replace("\n", "").isprintable() else '"'
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Dumper.add_representer(str, _text)
for _side in (_Loader, _Dumper):
    _side.yaml_implicit_resolvers = {
        k: [(tag, rx) for tag, rx in v if tag != "tag:yaml.org,2002:timestamp"]
        for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+0123456789."),
    )


def parse_yaml(text: str, where: str) -> Any:
    """YAML text -> values. Raises UserError with line and column."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        spot = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(e, "problem", None) or str(e)
        raise UserError(f"{where}{spot}: not valid YAML: {problem}") from e


def read_yaml(path: str | Path) -> dict[str, Any]:
    """One configuration file. Raises UserError where it is missing or no mapping."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"there is no configuration file '{path}'") from None
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"cannot read the configuration file '{path}': {e}") from e
    value = parse_yaml(text, str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a mapping (key: value lines), not {_kind(value)}")
    return value


def to_yaml(mapping: dict[str, Any]) -> str:
    """Mapping -> YAML text that reads back as the same values."""
    text: str = yaml.dump(mapping, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def write_yaml(path: str | Path, mapping: dict[str, Any]) -> None:
    """Raises OSError that names the file."""
    write_whole(Path(path), to_yaml(mapping))


def refuse_cut(path: Path) -> None:
    """Of a run's `config.yaml`, which `write_yaml` ended with a line's end. Raises UserError where
    that is not there: the rest is not there either, and its settings are no other ones."""
    if not path.read_bytes().endswith(b"\n"):
        raise UserError(
            f"{path} is damaged (it was cut): restore it from `configs/`, or delete {path.parent} "
            "to train its run again"
        )


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", bool: "a truth value"}.get(type(value), "a number")


_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def from_text(text: str, hint: Any, where: str) -> Any:
    """Command-line text -> value, by the type of the field: `007` stays text for a name."""
    kinds = members(hint)
    if text.lower() in ("null", "none", "~") and None in kinds:
        return None
    listed = any(isinstance(k, ListType | TupleType) for k in kinds)
    nested = any(isinstance(k, DictType | PartType | SettingsType) for k in kinds)
    bracketed = text.strip()[:1] in ("[", "{")
    if bracketed and (listed or nested):
        return parse_yaml(text, where)
    for k in kinds:
        if get_origin(k) is Literal and text in get_args(k):
            return text
    if bool in kinds and text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    if (int in kinds or float in kinds) and _number(text) is not None:
        return _number(text)
    if str in kinds or Path in kinds:
        return text
    if listed:
        item = next(k for k in kinds if isinstance(k, ListType | TupleType))
        inner = item.item if isinstance(item, ListType) else item.items[0]
        return [from_text(t.strip(), inner, where) for t in text.split(",") if t.strip()]
    if any(isinstance(k, PartType) for k in kinds):
        return {"kind": text}
    if int in kinds or float in kinds or any(get_origin(k) is Literal for k in kinds):
        value = parse_yaml(text, where)
        return value if isinstance(value, int | float) else text
    return parse_yaml(text, where)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
