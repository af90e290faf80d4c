"""The tables of the documentation, from the result files.

    python -m benchmarks.render            # write the generated part of every page
    python -m benchmarks.render --check    # verify that each is exactly what its file gives

A page holds `<!-- generated: NAME -->`, the generated part, `<!-- end -->`; NAME.json in
`benchmarks/results` says what stands there. A place whose file does not exist yet says so. The
place `goals` is a table over several files (`benchmarks/goals.py`).

A result file:

| key | what |
|---|---|
| `name`, `page` | the file's own name; page relative to the repository |
| `date`, `card`, `commit`, `versions` | ISO date, device, commit of the code, package -> version |
| `rows` | mappings; each has `command`, `card`, `date`, `seeds`, a `kind`, and values |
| `tables` | in order: {`title`, `rows`: kinds shown, `columns`: {key of a row: head}, `text`} |
| `notes` | sentences printed above the tables |

A row of another commit than the file's has `commit` and `versions` of its own.
A value is text, a number, null, a list of numbers, or {`mean`, `values`, `low`, `high`}. No torch,
no GPU, no network.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import goals

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "benchmarks/results"
FILE_KEYS = ("name", "page", "date", "card", "commit", "versions", "rows", "tables", "notes")
ROW_KEYS = ("command", "card", "date", "seeds", "kind")
TABLE_KEYS = ("title", "rows", "columns", "text")
PLACE = re.compile(r"<!-- generated: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)
MISSING = "Not yet run.\n"


class Wrong(ValueError):
    """A result file or a page that cannot be used; one line."""


def read(file: Path) -> dict[str, Any]:
    """One result file, checked. Raises Wrong, naming the file, the row and the field."""

    def not_a_number(text: str) -> None:
        raise Wrong(f"{file.name}: {text} is no JSON number; write null")

    try:
        found = json.loads(file.read_text(encoding="utf-8"), parse_constant=not_a_number)
    except json.JSONDecodeError as e:
        raise Wrong(f"{file.name}: not JSON: {e}") from e
    if not isinstance(found, dict):
        raise Wrong(f"{file.name}: must be a mapping")
    _fields(found, FILE_KEYS, file.name, exactly=True)
    if found["name"] != file.stem:
        raise Wrong(f"{file.name}: its name is '{found['name']}', not '{file.stem}'")
    _date(found["date"], file.name)
    _texts(found, ("page", "card", "commit"), file.name)
    if not isinstance(found["versions"], dict) or not found["versions"]:
        raise Wrong(f"{file.name}: versions must map packages to versions")
    if not isinstance(found["rows"], list) or not found["rows"]:
        raise Wrong(f"{file.name}: rows must be a list with at least one row")
    for t in found["tables"]:
        _fields(t, TABLE_KEYS, f"{file.name}, a table", exactly=True)
    for i, row in enumerate(found["rows"]):
        _check_row(row, found["tables"], f"{file.name}, row {i + 1}")
    return found


def _check_row(row: Any, tables: Sequence[Mapping[str, Any]], where: str) -> None:
    _fields(row, ROW_KEYS, where)
    _texts(row, ("command", "card"), where)
    _date(row["date"], where)
    if "commit" in row and not isinstance(row.get("versions"), dict):
        raise Wrong(f"{where}: of another commit, and without the versions of that time")
    seeds = row["seeds"]
    if not isinstance(seeds, list) or not all(type(s) is int for s in seeds):
        raise Wrong(f"{where}: seeds must be a list of whole numbers, not {seeds!r}")
    mine = [t for t in tables if row["kind"] in t["rows"]]
    if not mine:
        raise Wrong(f"{where}: no table shows the kind '{row['kind']}'")
    for table in mine:
        absent = [k for k in table["columns"] if k not in row]
        if absent:
            raise Wrong(f"{where}: '{table['title']}' has a column '{absent[0]}', the row has not")


def _fields(found: Any, wanted: Sequence[str], where: str, exactly: bool = False) -> None:
    if not isinstance(found, dict):
        raise Wrong(f"{where}: must be a mapping, not {found!r}")
    missing = [k for k in wanted if k not in found]
    if missing:
        raise Wrong(f"{where}: missing {', '.join(missing)}")
    more = [k for k in found if k not in wanted]
    if exactly and more:
        raise Wrong(f"{where}: unknown key '{more[0]}'")


def _texts(found: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    empty = [k for k in names if not isinstance(found[k], str) or not found[k].strip()]
    if empty:
        raise Wrong(f"{where}: {empty[0]} must be text, not {found[empty[0]]!r}")


def _date(value: Any, where: str) -> None:
    try:
        datetime.date.fromisoformat(value)
    except (TypeError, ValueError) as e:
        raise Wrong(f"{where}: date must be YYYY-MM-DD, not {value!r}") from e


def shown(value: Any) -> str:
    """A value as a cell: three decimals below 10, two below 1,000, then none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Wrong(f"a value is not finite: {value}")
        size = abs(value)
        return f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return " ".join(shown(v) for v in value) or "-"
    if isinstance(value, dict):
        text = shown(value["mean"])
        if value.get("low") is not None:
            text += f" [{shown(value['low'])}, {shown(value['high'])}]"
        each = shown(list(value["values"]))
        return f"{text} ({each})" if len(value["values"]) > 1 else text
    return str(value).replace("|", "\\|").replace("\n", " ")


def render(result: Mapping[str, Any]) -> str:
    """The generated part of a page, ending with a newline."""
    lines = [
        f"Measured on {result['card']}, {result['date']}, at commit {result['commit']}; "
        + ", ".join(f"{k} {v}" for k, v in sorted(result["versions"].items()))
        + "."
        + _elsewhere(result["rows"], result["versions"]),
        "",
    ]
    for note in result["notes"]:
        lines += [str(note), ""]
    commands: dict[str, list[str]] = {}
    for table in result["tables"]:
        rows = [r for kind in table["rows"] for r in result["rows"] if r["kind"] == kind]
        if not rows:
            continue
        lines += [f"### {table['title']}", ""]
        if table["text"]:
            lines += [table["text"], ""]
        heads = [*table["columns"].values(), "Seeds"]
        lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        for r in rows:
            cells = [shown(r[k]) for k in table["columns"]]
            lines.append("| " + " | ".join([*cells, ", ".join(map(str, r["seeds"]))]) + " |")
            about = f"{r['card']}, {r['date']}"
            about += f", commit {r['commit']}" if "commit" in r else ""
            known = commands.setdefault(r["command"], [])
            if about not in known:
                known.append(about)
        lines.append("")
    lines += ["<details><summary>Commands of the rows</summary>", "", "```text"]
    lines += [f"{c}\n    # {'; '.join(about)}" for c, about in commands.items()]
    lines += ["```", "", "</details>"]
    return "\n".join(lines) + "\n"


def _elsewhere(rows: Sequence[Mapping[str, Any]], versions: Mapping[str, str]) -> str:
    """Which rows another commit gave, and what was another version there."""
    found: dict[str, list[str]] = {}
    for r in rows:
        if "commit" in r:
            other = [f"{k} {v}" for k, v in sorted(r["versions"].items()) if versions.get(k) != v]
            about = f"{r['commit']} ({', '.join(other)})" if other else r["commit"]
            found.setdefault(about, []).append(str(r["row"]))
    told = {c: ", ".join(dict.fromkeys(names)) for c, names in found.items()}
    return "".join(f" At commit {c}: {names}." for c, names in told.items())


def pages(root: Path) -> dict[Path, str]:
    """Every page with a generated place -> its text with all places filled in.

    Raises Wrong for a file whose page or place does not exist, and for a place named twice.
    """
    results = [read(file) for file in sorted((root / RESULTS).glob("*.json"))]
    parts = {r["name"]: (r["page"], render(r)) for r in results}
    if (root / goals.PAGE).exists():
        parts[goals.NAME] = (goals.PAGE, goals.render(results, MISSING))
    out: dict[Path, str] = {}
    seen: dict[str, Path] = {}
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        text = page.read_text(encoding="utf-8")
        names = [m.group(1) for m in PLACE.finditer(text)]
        for name in names:
            if name in seen:
                raise Wrong(f"{page.relative_to(root)}: the place '{name}' stands twice")
            seen[name] = page
        if names:
            out[page] = PLACE.sub(lambda m: _filled(m.group(1), parts), text)
    for name, (page_name, _) in parts.items():
        if seen.get(name) != root / page_name:
            raise Wrong(f"{page_name} has no place `<!-- generated: {name} -->` ... `<!-- end -->`")
    return out


def _filled(name: str, parts: Mapping[str, tuple[str, str]]) -> str:
    body = parts[name][1] if name in parts else MISSING
    return f"<!-- generated: {name} -->\n{body}<!-- end -->"


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.render", description="see the module")
    p.add_argument("--check", action="store_true", help="write nothing; exit 1 where pages differ")
    p.add_argument("--root", type=Path, default=ROOT, help="repository")
    given = p.parse_args(words)
    try:
        wanted = pages(given.root)
    except Wrong as e:
        print(f"render: {e}", file=sys.stderr)
        return 1
    differ = [x for x, text in wanted.items() if x.read_text(encoding="utf-8") != text]
    for page in differ:
        name = page.relative_to(given.root)
        if given.check:
            print(f"render: {name} differs from its result files: run python -m benchmarks.render")
        else:
            page.write_text(wanted[page], encoding="utf-8")
            print(f"render: wrote {name}")
    if given.check and not differ:
        print(f"render: {len(wanted)} pages are what their result files give")
    return 1 if given.check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
