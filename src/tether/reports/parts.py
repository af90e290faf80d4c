"""A table with a title and, where needed, a sentence: for a terminal, a page and Markdown alike."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from rich import box
from rich.console import Group
from rich.markup import escape as plain
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Part:
    """A table with its title and, where needed, a sentence."""

    title: str
    head: list[str]
    rows: list[list[str]]
    note: str = ""


def terminal(part: Part) -> Group:
    """One part for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for i, name in enumerate(part.head):
        table.add_column(plain(name), justify="right" if i else "left", overflow="fold")
    for row in part.rows:
        table.add_row(*(plain(c) for c in row))
    note = [Text(part.note, style="dim")] if part.note else []
    return Group(Text(part.title, style="bold"), *note, table)


def html(part: Part) -> str:
    """One part of a page; every text is escaped."""
    head = "".join(f"<th>{escape(h)}</th>" for h in part.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in part.rows
    )
    note = f"<p class='sub'>{escape(part.note)}</p>" if part.note else ""
    return (
        f"<h3>{escape(part.title)}</h3>{note}<div class='wide'><table><thead><tr>{head}</tr>"
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def markdown(part: Part) -> str:
    """One part as a section with a pipe table."""
    rule = ["---", *["---:"] * (len(part.head) - 1)]
    lines = [_pipes(part.head), _pipes(rule), *map(_pipes, part.rows)]
    note = f"{part.note}\n\n" if part.note else ""
    return f"### {part.title}\n\n{note}" + "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |"
