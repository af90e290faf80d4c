"""Are the result files of the performance benchmarks what they should be, and does the page show
nothing else?

    python -m benchmarks.check              # files that are there, and the page
    python -m benchmarks.check --complete   # and every file and every row has to be there

Of a file: card (no CPU, no tiny mode), date, versions, commit, a spread in every row, and a command
that the program it names can read. Of docs/performance.md: its generated places are what the files
give, and what stands around them has no figure. No torch, no GPU, no network.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import io
import math
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import PAGE, TINY, given
from benchmarks.render import PLACE, RESULTS, ROOT, Wrong, pages, read

NAMES = ("rollout", "update", "sharing", "step", "memory", "overhead", "vs_trl", "imdb_graph")
NEEDED = ("python", "torch", "transformers")
FIGURE = re.compile(
    r"\d[\d.,]*\s*(?:%|×|(?:ms|s|seconds|[GMTK]i?B|times|TFLOP/s|tokens a second|x faster)\b)"
)


def problems(root: Path, complete: bool = False) -> Iterator[str]:
    """One line each."""
    for name in NAMES:
        file = root / RESULTS / f"{name}.json"
        if not file.exists():
            if complete:
                yield f"{file.name}: not yet run"
            continue
        try:
            result = read(file)
        except Wrong as e:
            yield str(e)
            continue
        yield from _of_file(name, result)
        if complete:
            yield from _absent(name, result)
    yield from _of_page(root)


def _of_file(name: str, result: Mapping[str, Any]) -> Iterator[str]:
    here = f"{name}.json"
    if result["page"] != PAGE:
        yield f"{here}: its page is {result['page']}, not {PAGE}"
    yield from _of_commit(here, result["commit"])
    if lacking := [p for p in NEEDED if p not in result["versions"]]:
        yield f"{here}: versions lack {', '.join(lacking)}"
    if result["date"] > datetime.date.today().isoformat():
        yield f"{here}: date {result['date']} is to come"
    yield from _of_card(here, result["card"])
    seen: set[str] = set()
    for row in result["rows"]:
        where = f"{here}, row {row.get('row', '?')}"
        if "row" not in row or row["row"] in seen:
            yield f"{where}: each row needs a name of its own"
        seen.add(row.get("row", ""))
        yield from _of_card(where, row["card"])
        yield from _of_commit(where, row.get("commit", result["commit"]))
        yield from _of_spread(where, row)
        yield from _of_command(where, name, row["command"])


def _of_commit(where: str, commit: str) -> Iterator[str]:
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        yield f"{where}: commit '{commit}' is no hash of a clean tree"


def _of_card(where: str, card: str) -> Iterator[str]:
    if card == TINY or re.search(r"\b(cpu|none)\b", card, re.IGNORECASE):
        yield f"{where}: measured on '{card}', which says nothing about speed"


def _of_spread(where: str, row: Mapping[str, Any]) -> Iterator[str]:
    found = {k: v for k, v in row.items() if "spread" in k}
    if not found:
        yield f"{where}: no spread"
    for key, values in found.items():
        good = isinstance(values, list) and len(values) in (2, 4)
        good = good and all(isinstance(v, int | float) and math.isfinite(v) for v in values)
        if not good or values != sorted(values):
            yield f"{where}: {key} must be smallest, (quartiles,) largest, not {values}"


def _of_command(where: str, name: str, text: str) -> Iterator[str]:
    words = shlex.split(text)
    if words[:3] != ["python", "-m", f"benchmarks.{name}"]:
        yield f"{where}: command '{text}' is not one of python -m benchmarks.{name}"
        return
    if "--tiny" in words:
        yield f"{where}: command '{text}' is of tiny shapes"
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            given(importlib.import_module(f"benchmarks.{name}").parser(), words[3:])
    except SystemExit:
        why = said.getvalue().strip().splitlines()[-1:]
        yield f"{where}: command '{text}' cannot be read: {''.join(why)}"


def _absent(name: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Rows that the program would write and the file has not."""
    module = importlib.import_module(f"benchmarks.{name}")
    there = {r.get("row") for r in result["rows"]}
    for row in module.every_row():
        if row not in there:
            yield f"{name}.json: row {row} is not yet run"


def _of_page(root: Path) -> Iterator[str]:
    try:
        wanted = pages(root).get(root / PAGE)
    except Wrong as e:
        yield str(e)
        return
    if wanted is None:
        yield f"{PAGE}: it has no generated place"
        return
    text = (root / PAGE).read_text(encoding="utf-8")
    if text != wanted:
        yield f"{PAGE} differs from its result files: run python -m benchmarks.render"
    for found in FIGURE.finditer(PLACE.sub("", text)):
        yield f"{PAGE}: '{found.group(0)}' stands outside the generated places"


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--complete", action="store_true", help="every file and row has to be there")
    p.add_argument("--root", type=Path, default=ROOT, help="repository")
    args = p.parse_args(words)
    found = list(problems(args.root, args.complete))
    for line in found:
        print(f"check: {line}", file=sys.stderr)
    if not found:
        there = [n for n in NAMES if (args.root / RESULTS / f"{n}.json").exists()]
        print(f"check: {PAGE} and {len(there)} of {len(NAMES)} files are as they should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
