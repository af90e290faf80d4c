"""Interpolation and NLPO on IMDB: from the records to `benchmarks/results/imdb_methods.json`.

    python -m benchmarks.collect_imdb_methods RECORDS --date 2026-01-31 --commit 0123abc
    python -m benchmarks.render

RECORDS holds `methods/<run>/` as `benchmarks.imdb_methods` packs it, or is what
`benchmarks.archive` made of it. No torch; every number is one of the records or of
`tether.reports`.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.collect_imdb import (
    BUDGETS,
    ROOT,
    cards,
    one,
    opened,
    study_command,
    summary,
    write,
)
from benchmarks.collect_methods import row_of
from tether.analysis.intervals import summarise
from tether.records import read_lines
from tether.reports.runs import Run, find_runs, settings

NAME = "imdb_methods"
_BUDGETS = {f"at_{b:g}": f"{b:g} nat{'s' if b > 1 else ''}" for b in BUDGETS}
TABLES: list[dict[str, Any]] = [
    {
        "title": "Weights between the initial and PPO's final ones",
        "rows": ["interpolation"],
        "columns": {"how": "How", "at": "Share of the way", "reward": "Reward", "drift": "Drift"},
        "text": "Validation prompts, drift in nats per completion; no training beyond the one PPO "
        "run of each seed.",
    },
    {
        "title": "NLPO beside PPO",
        "rows": ["method"],
        "columns": {
            "method": "Method",
            "reward_test": "Final reward",
            "drift_test": "Final drift",
            **_BUDGETS,
            "reward_validation": "Validation reward",
            "reward_sampled": "under its mask",
        },
        "text": "Test prompts, but for the last two columns. Budgets as in the study above. With a "
        "mask there are two policies: the exported one, which all columns show, and the one under "
        "its mask, which samples in training.",
    },
]


def interpolations(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per way and share: the mean over seeds, each seed beside it."""
    found: dict[tuple[str, float], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for run in runs:
        for x in read_lines(run.folder / "record.jsonl"):
            if x["kind"] == "baseline" and x["baseline"] == "interpolation":
                found[x["how"], x["at"]].append((run.seed, x))
    rows = []
    for (how, at), lines in found.items():
        lines.sort(key=lambda pair: pair[0])
        rows.append({
            "kind": "interpolation", "how": how, "at": at, "seeds": [s for s, _ in lines],
            "reward": summary(summarise([x["reward"] for _, x in lines])),
            "drift": summary(summarise([x["drift"] for _, x in lines])),
        })  # fmt: skip
    return rows


def collect(folder: Path, *, date: str, commit: str) -> dict[str, Any]:
    """The result file's content. Raises UserError for a folder without runs."""
    runs, _ = find_runs([folder / "methods"])
    first = settings(runs[0])
    shown = one(runs)
    rows = interpolations(runs)
    for method in shown.methods:
        row = row_of(method, runs)
        row |= {f"at_{b:g}": summary(method.reward_at(b)) for b in BUDGETS}
        rows.append(row)
    command = study_command(first).replace("benchmarks.imdb_first", f"benchmarks.{NAME}")
    made = runs[0].environment
    assert made is not None
    card = cards(runs)
    seeds = sorted({r.seed for r in runs})
    e = first["evaluation"]
    return {
        "name": NAME,
        "page": "docs/results.md",
        "date": date,
        "card": card,
        "commit": commit,
        "versions": {k: v for k, v in made["versions"].items() if v and k != "tether-rl"},
        "notes": [
            f"{len(runs)} runs on the base of the study above, with its settings; "
            f"{e['prompts']:,} validation and {e['test_prompts']:,} test prompts. NLPO: PPO inside "
            "the top-p set (.9) of a copy of itself, refreshed every 5 updates, no KL penalty.",
            f"{len(seeds)} seeds: no interval and no verdict. Every seed's value stands in "
            "parentheses behind the mean.",
            *shown.notes,
        ],
        "tables": TABLES,
        "rows": [r | {"command": command, "card": card, "date": date} for r in rows],
    }


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.collect_imdb_methods")
    p.add_argument("records", type=Path, help="folder with methods/, or an archive of it")
    p.add_argument("--date", required=True, help="day of the runs, YYYY-MM-DD")
    p.add_argument("--commit", required=True, help="commit of the code that ran")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{NAME}.json")
    given = p.parse_args(words)
    with opened(given.records) as records:
        write(collect(records, date=given.date, commit=given.commit), given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
