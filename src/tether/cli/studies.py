"""`tether quickstart`, `tether compare`, `tether frontier`: many runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from tether.cli.parsing import Parser, positive
from tether.config.errors import UserError


def quickstart(words: list[str]) -> int:
    """PPO, PPO + KL and PPO + Elastic Reset on the bundled model, offline."""
    p = Parser("quickstart", "Three methods on a bundled model: offline, two CPU cores, 3 minutes.")
    p.add_argument("--seeds", type=positive, default=3, help="seeds a method; intervals from 5 on")
    p.add_argument("--fresh", action="store_true", help="repeat what is complete")
    p.add_argument("--folder", type=Path, default=Path("runs/quickstart"))
    given = p.parse(words)
    from tether.studies.quickstart import main

    return int(main(seeds=given.seeds, fresh=given.fresh, folder=given.folder) or 0)


def compare(words: list[str]) -> int:
    """Recipes x seeds as worker processes; what is complete is not repeated."""
    p = Parser(
        "compare",
        "Methods x seeds as worker processes; finished runs are skipped, unfinished ones resumed.\n"
        "Overrides (--a.b.c VALUE) hold for all methods; several settings of one method, and\n"
        "comparisons declared beforehand, stand in a study file (docs: compare).",
    )
    p.add_argument("recipes", nargs="+", help="recipes, run.yaml files, or one study file")
    seeds = "seeds 0 to n - 1; default: as in the study file, else 3"
    p.add_argument("--seeds", type=positive, default=None, help=seeds)
    p.add_argument("--folder", type=Path, default=None, help="default: runs/compare-NAMES")
    p.add_argument("--workers", type=positive, default=None, help="default: one a core or device")
    p.add_argument("--per-device", type=positive, default=1, help="runs that share one GPU")
    p.add_argument("--retry", action="store_true", help="repeat runs that failed")
    own, overrides = own_words(p, words)
    given = p.parse(own)
    from tether.studies.compare import main

    return main(
        given.recipes,
        seeds=given.seeds,
        folder=given.folder,
        overrides=overrides,
        workers=given.workers,
        per_device=given.per_device,
        retry=given.retry,
    )


def own_words(p: Parser, words: list[str]) -> tuple[list[str], list[str]]:
    """Words of the command, and the overrides `--a.b.c VALUE` (or a short form) among them."""
    own: list[str] = []
    overrides: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        ours = word.split("=")[0] in p.options() or not word.startswith("--")
        (own if ours else overrides).append(word)
        if not ours and "=" not in word and rest and not rest[0].startswith("--"):
            overrides.append(rest.pop(0))
    return own, overrides


def frontier(words: list[str]) -> int:
    """Table, plots and report of finished runs."""
    p = Parser("frontier", "Reward against drift of finished runs: table, PNG, SVG, CSV, HTML.")
    p.add_argument("runs", nargs="+", help="run folders, or folders of run folders")
    p.add_argument("--folder", type=Path, default=None, help="where the files go")
    p.add_argument("--budgets", type=budgets, default=(), help="nats a completion, e.g. 1,2,4")
    given = p.parse(words)
    folders = [Path(text) for text in given.runs]
    missing = next((f for f in folders if not f.is_dir()), None)
    if missing is not None:
        raise UserError(f"there is no folder '{missing}' of runs")
    from tether.studies.frontier import main

    main(folders, given.folder, budgets=given.budgets)
    return 0


def budgets(text: str) -> tuple[float, ...]:
    """`1,2,4`: nats greater than 0."""
    try:
        found = tuple(float(t) for t in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(b > 0 for b in found):  # nan is none
        raise argparse.ArgumentTypeError(f"'{text}' is no list of nats greater than 0: 1,2,4")
    twice = next((b for b in found if found.count(b) > 1), None)
    if twice is not None:
        raise argparse.ArgumentTypeError(f"'{text}' names {twice:g} twice")
    return found
