"""`tether train RECIPE [overrides]`, `tether train --config run.yaml`, `tether resume RUN`."""

from __future__ import annotations

import inspect

from tether.cli.helping import DOCS, console, print_keys, print_pairs
from tether.cli.parsing import Parser
from tether.cli.progress import showing
from tether.cli.runs import run_folder
from tether.config.catalog import CATALOG, load
from tether.config.checks import check_complete
from tether.config.compose import compose, layered, recipe
from tether.config.describe import summary_of
from tether.config.errors import UserError
from tether.config.folder import refuse_taken
from tether.config.settings import JOBS, Settings, dump
from tether.config.text_values import read_yaml, to_yaml


def divide(words: list[str]) -> tuple[str | None, list[str], bool, list[str]]:
    """Words of the command -> (recipe, configuration files, dry run, overrides)."""
    name, rest = None, list(words)
    if rest and not rest[0].startswith("-"):
        name = rest.pop(0)
    files, overrides, dry = [], [], False
    while rest:
        word = rest.pop(0)
        if word == "--dry-run":
            dry = True
        elif word == "--config" or word.startswith("--config="):
            if "=" not in word and (not rest or rest[0].startswith("--")):
                raise UserError("--config needs a file: --config run.yaml")
            files.append(word.partition("=")[2] or rest.pop(0))
        else:
            overrides.append(word)
    return name, files, dry, overrides


def train(words: list[str]) -> int:
    """Settings are checked, and a folder with another run refused, before torch is imported."""
    if "-h" in words or "--help" in words:
        return _help([w for w in words if w not in ("-h", "--help")])
    name, files, dry, overrides = divide(words)
    if name is None and not files:
        raise UserError(
            f"train needs a recipe or --config FILE; recipes: {', '.join(CATALOG['recipe'])}"
        )
    settings = compose(name, files, overrides)
    check_complete(settings)
    if dry:
        print(to_yaml(dump(settings)), end="")
        return 0
    refuse_taken(settings)
    return _start(settings)


def _start(settings: Settings) -> int:
    from tether.train.run import train as run

    with showing() as (progress, say):
        folder = run(settings, progress=progress, say=say)
    print(f"done: {folder}")
    return 0


def resume(words: list[str]) -> int:
    """Go on where the newest complete checkpoint stands."""
    p = Parser("resume", "Go on with an interrupted run, exactly as if it had never stopped.")
    p.add_argument("run", help="folder of the run, e.g. runs/ppo-seed0")
    folder = run_folder(p.parse(words).run)
    from tether.train.run import resume as go_on

    with showing() as (progress, say):
        go_on(folder, progress=progress, say=say)
    print(f"done: {folder}")
    return 0


def _help(words: list[str]) -> int:
    out = console()
    name, files, _, overrides = divide(words)
    if name is None and not files:
        out.print("usage: tether train RECIPE [--a.b.c VALUE ...]", markup=False)
        out.print("       tether train --config run.yaml [--a.b.c VALUE ...]\n", markup=False)
        out.print(
            "--model X, --data X, --reward X are short for --model.path, --data.path and "
            "--rewards.reward (file.py:function, a classifier's folder or hub id, or a built-in). "
            "--dry-run prints the resolved configuration and stops.\n",
            markup=False,
        )
        out.print("[bold]recipes[/]")
        print_pairs(out, [(n, summary_of(load("recipe", n))) for n in CATALOG["recipe"]])
        out.print("\ntether train RECIPE --help lists every key with its value in that recipe.")
        return 0
    layers = [recipe(name)] if name else []
    mapping = layered([*layers, *map(read_yaml, files)], overrides)
    if name:
        out.print(inspect.getdoc(load("recipe", name)) or "", markup=False)
        out.print("")
    print_keys(out, mapping, JOBS[mapping.get("job", "policy")].__name__)
    out.print(f"\n{DOCS}", markup=False)
    return 0
