"""The two texts of an import: a run configuration with the old keys in comments, and the report."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tether.config.text_values import to_yaml
from tether.integrations.rl4lms_draft import Note, Status

WIDTH = 100
HEADS: dict[Status, str] = {
    "carried": "carried",
    "changed": "carried with a changed meaning",
    "none": "no counterpart",
    "ignored": "ignored, because it has no effect here",
}


def run_yaml(settings: Mapping[str, Any], comments: Mapping[str, str], head: Sequence[str]) -> str:
    """YAML text; parts of a part (`{kind: ...}` below a setting) stand on one line."""
    out = [f"# {line}".rstrip() for line in head]
    _lines(settings, comments, "", 0, out)
    return "\n".join(out) + "\n"


def _lines(
    block: Mapping[str, Any], comments: Mapping[str, str], path: str, depth: int, out: list[str]
) -> None:
    pad = "  " * depth
    for name, value in block.items():
        here = f"{path}.{name}" if path else name
        comment = comments.get(here, "")
        if isinstance(value, Mapping) and value and here not in comments:
            out.append(f"{pad}{name}:")
            _lines(value, comments, here, depth + 1, out)
            continue
        line = f"{pad}{name}: {_flow(value)}"
        if len(line) + len(comment) + 4 > WIDTH:
            room = WIDTH - len(pad) - 2
            out += [f"{pad}# {x}" for x in textwrap.wrap(comment, room)]
            comment = ""
        out.append(f"{line}  # {comment}" if comment else line)


def _flow(value: Any, inside: bool = False) -> str:
    """One line of YAML. inside: within brackets, where commas and brackets must be quoted."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_flow(v, True)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(v, True) for v in value) + "]"
    text = to_yaml({"x": value})[3:].strip()
    if "\n" in text or (inside and isinstance(value, str) and set(value) & set(",[]{}:#")):
        return json.dumps(value, ensure_ascii=False)
    return text


def report(notes: Sequence[Note]) -> str:
    """Every key and what became of it, by what became of it."""
    out: list[str] = []
    for status, head in HEADS.items():
        mine = [n for n in notes if n.status == status]
        if not mine:
            continue
        out += [f"{head} ({len(mine)})", ""]
        for n in mine:
            left = f"  {n.key}: {_short(n.value)}" + ("" if n.given else " (default)")
            out.append(left + (f" -> {n.to}" if n.to else ""))
            out += textwrap.wrap(n.why, WIDTH, initial_indent="      ", subsequent_indent="      ")
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def _short(value: Any) -> str:
    text = _flow(value)
    return text if len(text) <= 60 else text[:57] + "..."
