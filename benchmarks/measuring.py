"""What the performance benchmarks share: progress lines, summaries, and a result file that is whole
after every row. No torch until a function needs it."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/performance.md"
PACKAGES = ("torch", "transformers", "triton", "peft")
TINY = "tiny shapes on a CPU"
"""Card of a row that shows that a program runs, and nothing else; `benchmarks.check` refuses it."""
_STARTED = time.perf_counter()


def say(text: str) -> None:
    """A progress line on stderr, with the seconds since the start of this process."""
    print(f"[{time.perf_counter() - _STARTED:7.1f} s] {text}", file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> list[float]:
    """[smallest, lower quartile, upper quartile, largest]."""
    if len(values) == 1:
        return [values[0]] * 4
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [min(values), low, high, max(values)]


def median_interval(values: Sequence[float]) -> list[float]:
    """[low, high] of the median at 95 %, or of as much as so few values allow: the narrowest pair
    of values, equally far from both ends, that a sign test at that level leaves. No distribution is
    assumed (Hahn and Meeker, Statistical Intervals, section 5.2)."""
    n, found = len(values), sorted(values)
    drop, outside = 0, 2.0 / 2**n  # of the interval that goes from the smallest to the largest
    while drop + 1 < n - drop - 1:
        outside += 2.0 * math.comb(n, drop + 1) / 2**n
        if outside > 0.05:
            break
        drop += 1
    return [found[drop], found[n - 1 - drop]]


def versions() -> dict[str, str]:
    """Of Python and of those packages that are here."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def card() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else TINY


def commit() -> str:
    """Of the working tree, `+` behind it where that differs; `unknown` outside a repository."""
    try:
        found = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def arguments(
    name: str, description: str | None, rows: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    p = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--out", type=Path, default=ROOT / f"benchmarks/results/{name}.json")
    p.add_argument("--commit", default=None, help="default: of the working tree")
    p.add_argument("--keep", action="store_true", help="rows of other commits stay in the file")
    if rows:
        p.add_argument("--only", nargs="+", choices=rows, metavar="ROW", help=", ".join(rows))
    p.add_argument(
        "--tiny", action="store_true", help="tiny shapes on the CPU: does the program run?"
    )
    return p


def given(parser: argparse.ArgumentParser, words: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for; `settings`: overrides of a run's settings (`--a.b.c VALUE`)."""
    args, rest = parser.parse_known_args(words)
    wrong = [w for w in rest[::2] if not (w.startswith("--") and "." in w)]
    wrong += rest[len(rest) // 2 * 2 :]
    if wrong:
        parser.error(f"{wrong[0]} is no option and no setting; settings are --a.b.c VALUE")
    args.settings = rest
    return args


def command(name: str, *words: str) -> str:
    """What makes a row again."""
    return shlex.join(["python", "-m", f"benchmarks.{name}", *words])


def _of_commit(note: str, commit: str) -> str:
    return note if note.startswith("At commit ") else f"At commit {commit}: {note}"


class Results:
    """A result file (`benchmarks.render` says what is in it), written anew after every row. Rows
    and notes that a file of the same commit has already stay, unless a row has its name: a run
    can be made in parts, and notes be written into the file. With `keep` those of another commit
    stay too, and each of them names it."""

    def __init__(
        self,
        name: str,
        out: Path,
        commit_: str | None,
        tables: list[dict[str, Any]],
        notes: Sequence[str] = (),
        keep: bool = False,
    ) -> None:
        self.name, self.out, self.commit = name, out, commit_ or commit()
        self.tables, self.notes = tables, list(notes)
        self.rows: list[dict[str, Any]] = []
        if out.exists():
            before = json.loads(out.read_text(encoding="utf-8"))
            if keep or before["commit"] == self.commit:
                known = {"commit": before["commit"], "versions": before["versions"]}
                other = {} if before["commit"] == self.commit else known
                self.rows = [other | r for r in before["rows"]]
                kept = [n for n in before["notes"] if n not in self.notes]
                self.notes += [_of_commit(n, before["commit"]) if other else n for n in kept]
            else:
                say(f"{out.name} is of commit {before['commit']}: begun anew")

    def add(self, row: dict[str, Any], order: Sequence[str] = ()) -> None:
        """order: names of rows in the order of the table."""
        date = datetime.date.today().isoformat()
        row = {"date": date, "card": card(), "seeds": [], **row}
        mine = row["row"]
        self.rows = [r for r in self.rows if r["row"] != mine] + [row]
        if order:
            self.rows.sort(key=lambda r: order.index(r["row"]))
        result = {
            "name": self.name, "page": PAGE, "date": date, "card": row["card"],
            "commit": self.commit, "versions": versions(), "notes": self.notes,
            "tables": self.tables, "rows": self.rows,
        }  # fmt: skip
        self.out.parent.mkdir(parents=True, exist_ok=True)
        part = self.out.with_name(f".{self.out.name}.{os.getpid()}.part")
        part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.out)
        say(f"{self.name}: {mine} written")


def synchronise() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(run: Callable[[int], object], n: int) -> list[float]:
    """Seconds of each of n runs, after one that is not counted."""
    out = []
    for k in range(n + 1):
        synchronise()
        start = time.perf_counter()
        run(k)
        synchronise()
        out.append(time.perf_counter() - start)
    return out[1:]
