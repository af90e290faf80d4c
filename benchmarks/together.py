"""`step`, `overhead` and `memory` in one go: all processes compile side by side, then one at a time
is timed. Writes the same files as the three programs, in a few minutes less.

    python -m benchmarks.together
    python -m benchmarks.render
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import memory, overhead, step
from benchmarks.measuring import ROOT, Results, given
from benchmarks.workers import Worker, one_after_the_other

PROGRAMS: dict[str, Any] = {"step": step, "overhead": overhead, "memory": memory}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.together",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks/results", help="folder")
    p.add_argument("--commit", default=None, help="default: of the working tree")
    p.add_argument("--keep", action="store_true", help="rows of other commits stay in the files")
    p.add_argument("--only", nargs="+", metavar="PROGRAM:ROW", help="default: everything")
    p.add_argument("--tiny", action="store_true", help="does the program run?")
    return p


def chosen(only: Sequence[str] | None) -> dict[str, list[str]]:
    """Program -> its rows."""
    found: dict[str, list[str]] = {}
    for name, module in PROGRAMS.items():
        rows = [r for r in module.every_row() if only is None or f"{name}:{r}" in only]
        if rows:
            found[name] = rows
    return found


def main(words: Sequence[str] | None = None) -> None:
    args = given(parser(), words)
    more = [*(["--tiny"] if args.tiny else []), *args.settings]
    results: dict[str, Results] = {}
    of: dict[Worker, str] = {}
    for name, rows in chosen(args.only).items():
        results[name] = Results(
            name, args.out / f"{name}.json", args.commit, PROGRAMS[name].TABLES, keep=args.keep
        )
        of |= dict.fromkeys(PROGRAMS[name].workers(rows, more), name)

    def add(worker: Worker, row: dict[str, Any]) -> None:
        name = of[worker]
        if name == "memory":
            memory.add(results[name], row)
        else:
            results[name].add(row, PROGRAMS[name].every_row())

    if failed := one_after_the_other(list(of), add):
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
