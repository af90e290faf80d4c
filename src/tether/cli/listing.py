"""`tether list`, `tether recipes show NAME`, `tether schema`: what there is, without torch."""

from __future__ import annotations

import json

from tether.cli.parsing import Parser
from tether.config.catalog import CATALOG
from tether.config.describe import schema as shipped
from tether.config.errors import UserError
from tether.config.nearest import unknown


def plural(family: str) -> str:
    return family + "s"


def contents() -> dict[str, dict[str, dict[str, str]]]:
    """{"algorithms": {name: {"source", "summary"}}, "tethers": ..., ...}."""
    parts = shipped()["parts"]
    return {
        plural(family): {
            name: {"source": source, "summary": parts[family].get(name, {}).get("summary", "")}
            for name, source in names.items()
        }
        for family, names in CATALOG.items()
    }


def show_list(words: list[str]) -> int:
    """Everything that a configuration can name."""
    p = Parser("list", "Algorithms, tethers, triggers, rewards, recipes: what can be named.")
    p.add_argument("family", nargs="?", help=f"one of {', '.join(map(plural, CATALOG))}")
    p.add_argument("--json", action="store_true", help="for programs")
    given = p.parse(words)
    found = contents()
    if given.family is not None:
        if given.family not in found:
            raise unknown("family", given.family, found, "tether list")
        found = {given.family: found[given.family]}
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    from rich.markup import escape
    from rich.table import Table

    from tether.cli.helping import console

    out = console()
    for family, names in found.items():
        table = Table(box=None, show_header=False, padding=(0, 1))
        table.add_column(no_wrap=True)
        for name, entry in names.items():
            table.add_row(f"  {escape(name)}", escape(entry["summary"]))
        out.print(f"[bold]{family}[/]")
        out.print(table)
    out.print("\nYour own class: kind: file.py:Class. `tether train RECIPE --help` lists its keys.")
    return 0


def recipes(words: list[str]) -> int:
    """`recipes` lists them, `recipes show NAME` prints one as YAML: edit it, `train --config`;
    `recipes eject NAME DIR` writes one as a folder with its loop, algorithm and tethers."""
    p = Parser(
        "recipes",
        "recipes: list them. recipes show NAME: one as YAML, ready to edit.\n"
        "recipes eject NAME DIR: one as a folder of your own: settings, loop, algorithm, tethers.",
    )
    p.add_argument("action", nargs="?", choices=["list", "show", "eject"], default="list")
    p.add_argument("name", nargs="?")
    p.add_argument("folder", nargs="?", help="of eject: new or empty")
    given = p.parse(words)
    if given.action == "list":
        return show_list(["recipes"])
    if not given.name:
        names = ", ".join(CATALOG["recipe"])
        raise UserError(f"recipes {given.action} needs a name: one of {names}")
    if given.action == "eject":
        return _eject(given.name, given.folder)
    if given.folder is not None:
        raise UserError(f"recipes show takes one name, not also '{given.folder}'")
    from tether.config.catalog import load
    from tether.config.compose import recipe
    from tether.config.text_values import to_yaml

    mapping = recipe(given.name)
    for line in (load("recipe", given.name).__doc__ or "").strip().splitlines():
        print(f"# {line.strip()}".rstrip())
    print(to_yaml(mapping), end="")
    return 0


def _eject(name: str, folder: str | None) -> int:
    if folder is None:
        raise UserError(f"recipes eject needs a folder: tether recipes eject {name} DIR")
    from tether.studies.eject import eject

    for path in eject(name, folder):
        print(path)
    print(f"next: python {folder}/run.py --help; {folder}/README.md says what each file is")
    return 0


def schema(words: list[str]) -> int:
    """JSON schema of a configuration file."""
    p = Parser("schema", "JSON schema of run.yaml, for editors; put it beside the file.")
    p.add_argument("--job", choices=["policy", "classifier"], default="policy")
    given = p.parse(words)
    from tether.config.json_schema import json_schema

    print(json.dumps(json_schema(given.job), indent=1))
    return 0
