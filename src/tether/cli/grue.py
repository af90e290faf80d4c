"""`tether grue run | report`: the benchmark of seven tasks."""

from __future__ import annotations

import argparse
from pathlib import Path

from tether.cli.actions import Actions, act
from tether.cli.helping import console
from tether.cli.parsing import Parser, positive
from tether.cli.studies import budgets, own_words
from tether.config.errors import UserError

STEPS = ("best_of_n", "oracle", "interpolate")
"""What --after turns on, as the settings call it."""


def grue(words: list[str]) -> int:
    """The second word says what."""
    actions: Actions = {
        "run": (run, "tasks x methods x seeds: train, measure, report; the same command goes on"),
        "report": (report, "leaderboard, frontiers and tables of what has finished"),
    }
    return act("grue", actions, words)


def run(words: list[str]) -> int:
    """Train what is not finished, measure it, report. 1 where a cell failed."""
    p = Parser(
        "grue run",
        "The benchmark: every cell (task x method x seed) is a run in a worker process; finished\n"
        "ones are not repeated. A method is a recipe (ppo, nlpo, elastic-reset ...), a\n"
        "tether beside PPO (kl), zero-shot, or A+B: B from the final weights of A. Overrides\n"
        "(--a.b.c VALUE) hold for all cells; by task and method they stand in a settings file\n"
        "(docs: grue).",
    )
    p.add_argument("--tasks", type=_names, default=(), help="default: the seven of GRUE")
    p.add_argument(
        "--methods",
        type=_names,
        default=(),
        help="default: zero-shot,supervised,ppo,nlpo,supervised+ppo,supervised+nlpo",
    )
    p.add_argument("--seeds", type=positive, default=1, help="seeds 0 to n - 1 (default 1)")
    p.add_argument("--model", default="", help="hub id or folder; default: that of the task")
    p.add_argument("--data", type=Path, default=None, help="folder with a set for each task")
    p.add_argument("--mini", action="store_true", help="bundled model, 64 generated rows a task")
    p.add_argument("--out", type=Path, default=None, help="default: runs/grue (runs/grue-mini)")
    p.add_argument("--settings", type=Path, default=None, help="YAML: settings by task and method")
    p.add_argument("--rewards", type=_names, default=(), help="metrics; train on each alone")
    p.add_argument(
        "--kl-reference",
        type=_names,
        default=(),
        dest="references",
        help="raw,supervised: repeat with the KL penalty to each",
    )
    p.add_argument("--budgets", type=budgets, default=(), help="nats a completion: 1,2,4,8,16")
    p.add_argument(
        "--primary",
        default="",
        help="comparisons declared beforehand: nlpo:ppo,supervised+nlpo:supervised+ppo",
    )
    p.add_argument(
        "--margin",
        type=float,
        default=None,
        help="of their equivalence, on the scale of the score (default .01)",
    )
    p.add_argument(
        "--after",
        type=_steps,
        default=(),
        help=f"what costs no training, in the frontiers: {','.join(STEPS)}, or all",
    )
    _processes(p)
    own, overrides = own_words(p, words)
    given = p.parse(own)
    from tether.studies.grue.planning import Asked
    from tether.studies.grue.run import main

    folder, whole = main(
        Asked(
            tasks=given.tasks,
            methods=given.methods,
            seeds=given.seeds,
            model=given.model,
            data=given.data,
            mini=given.mini,
            out=given.out,
            settings=given.settings,
            rewards=given.rewards,
            references=given.references,
            budgets=given.budgets,
            primary=given.primary,
            margin=given.margin,
            after=given.after,
            overrides=overrides,
        ),
        workers=given.workers,
        per_device=given.per_device,
        retry=given.retry,
        console=console(),
    )
    _show(folder)
    return 0 if whole else 1


def _processes(p: Parser) -> None:
    p.add_argument("--workers", type=positive, default=None, help="default: one a core or device")
    p.add_argument("--per-device", type=positive, default=1, help="runs that share one GPU")
    p.add_argument("--retry", action="store_true", help="repeat cells that failed")


def report(words: list[str]) -> int:
    """The files of what has finished."""
    p = Parser(
        "grue report",
        "Leaderboard (HTML, Markdown, CSV), reward against drift by task, scores, anchors, tests\n"
        "of what has finished. `tether grue run` measures; a running benchmark can be reported.",
    )
    p.add_argument("folder", type=Path, help="--out of `tether grue run`")
    given = p.parse(words)
    if not given.folder.is_dir():
        raise UserError(f"there is no folder '{given.folder}' of a benchmark")
    _show(given.folder)
    return 0


def _show(folder: Path) -> None:
    from tether.reports.grue.write import notes, summary, write
    from tether.reports.parts import terminal

    written = write(folder)
    out = console()
    for part in summary(written.results):
        out.print(terminal(part))
    for note in notes(written.results):
        out.print(note, style="yellow", markup=False)
    for path in written.paths:
        out.print(str(path), markup=False, soft_wrap=True)


def _names(text: str) -> tuple[str, ...]:
    found = tuple(t.strip() for t in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty name; write a,b,c")
    return found


def _steps(text: str) -> tuple[str, ...]:
    if text == "all":
        return STEPS
    found = _names(text)
    if not set(found) <= set(STEPS):
        raise argparse.ArgumentTypeError(f"'{text}' is not all, and none of {', '.join(STEPS)}")
    return found
