"""Help: the list of commands, and every key of a recipe with its value, type and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from tether.config.describe import part_description, settings_description
from tether.config.types_as_text import (
    DictType,
    PartType,
    SettingsType,
    UnionType,
    resolve,
    without_none,
)

DOCS = "Every KEY of --help can be set: --a.b.c VALUE; null drops a tether."


def console(stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def root_help(commands: Mapping[str, tuple[str, str]]) -> None:
    """`tether --help`."""
    out = console()
    out.print("[bold]tether[/]: RL fine-tuning of language models, and what it costs the model\n")
    out.print("usage: tether COMMAND [...]     tether COMMAND --help says more\n")
    print_pairs(out, [(name, summary) for name, (_, summary) in commands.items()])
    out.print("\nstart here:  tether quickstart", markup=False)
    own = "your own:    tether train ppo-kl --model MODEL --data DATA --reward file.py:function"
    out.print(own, markup=False, soft_wrap=True)


def keys(mapping: Mapping[str, Any], settings: str) -> Iterator[tuple[str, Any, str, str]]:
    """(key, value, type, doc) of every setting of a configuration, parts opened by their kind."""
    yield from _fields(settings_description(settings)["fields"], mapping, "")


def _fields(
    fields: Mapping[str, Any], mapping: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Any, str, str]]:
    for name, entry in fields.items():
        value = mapping.get(name, entry.get("default"))
        yield from _value(resolve(entry["type"]), entry, value, f"{prefix}{name}")


def _value(hint: Any, entry: Any, value: Any, path: str) -> Iterator[tuple[str, Any, str, str]]:
    inner = without_none(hint)
    if isinstance(inner, SettingsType) and isinstance(value, Mapping):
        yield from _fields(settings_description(inner.name)["fields"], value, f"{path}.")
    elif isinstance(inner, PartType) and isinstance(value, Mapping):
        yield from _part(inner, entry, value, path)
    elif isinstance(inner, DictType) and isinstance(inner.item, PartType) and value:
        for name, part in value.items():
            yield from _part(inner.item, entry, part, f"{path}.{name}")
    else:
        yield path, value, short_type(hint), entry["doc"]


def _part(hint: PartType, entry: Any, value: Any, path: str) -> Iterator[tuple[str, Any, str, str]]:
    kind = value.get("kind", hint.kind)
    description = part_description(hint.family, kind)
    yield f"{path}.kind", kind, hint.family, description["summary"] or entry["doc"]
    yield from _fields(description["fields"], value, f"{path}.")


def short_type(hint: Any) -> str:
    """A resolved type for a help column."""
    if isinstance(hint, UnionType):
        return " | ".join(short_type(m) for m in hint.members)
    if hint is None:
        return "null"
    if isinstance(hint, PartType):
        return hint.family
    if isinstance(hint, SettingsType):
        return "mapping"
    if isinstance(hint, DictType):
        return f"name -> {short_type(hint.item)}"
    if hasattr(hint, "items"):
        return "list"
    if hasattr(hint, "item"):
        return f"list of {short_type(hint.item)}"
    args = getattr(hint, "__args__", None)
    if args and not isinstance(hint, type):
        return " | ".join(str(a) for a in args)
    return getattr(hint, "__name__", str(hint))


def print_keys(out: Console, mapping: Mapping[str, Any], settings: str) -> None:
    """Each key with its value and type, its meaning below."""
    section = ""
    for path, value, kind, doc in keys(mapping, settings):
        head = path.split(".")[0]
        if head != section and "." in path:
            out.print(f"\n[bold underline]{escape(head)}[/]")
        section = head
        shown = "''" if value == "" else _shown(value)
        out.print(f"[bold]--{escape(path)}[/] {escape(shown)}  [dim]({escape(kind)})[/]")
        if doc:
            out.print(Padding(escape(doc), (0, 0, 0, 6)))


def print_pairs(out: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Names with their descriptions, wrapped in their own column."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    for name, text in pairs:
        table.add_row(f"  [bold]{escape(name)}[/]", escape(text))
    out.print(table)


def _shown(value: Any) -> str:
    """A value as YAML and overrides write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
