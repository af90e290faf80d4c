"""Studies on the bundled model: from their records to `benchmarks/results/<name>.json`.

    tether compare benchmarks/toy_methods.yaml
    python -m benchmarks.collect_methods runs/toy_methods --date 2026-01-31 --commit 0123abc
    python -m benchmarks.render

The folder's study says which one it is. No torch; every number is one of `tether.reports`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.collect_imdb import GAUGES, ROOT, of_point, summary
from tether.analysis.intervals import summarise
from tether.recipes.toy import BUDGETS
from tether.reports.methods import Method, study
from tether.reports.runs import Run, find_runs, settings

PAGES = {"toy_methods": "docs/methods.md", "toy_nlpo": "docs/results.md"}
"""study -> its page"""
SHOWN = ("perplexity", "entropy", "distinct_2", "common_4grams")
TABLES: list[dict[str, Any]] = [
    {
        "title": "Reward and drift",
        "rows": ["method"],
        "columns": {
            "method": "Method",
            "reward_test": "Final reward",
            "drift_test": "Final drift",
            **{f"at_{b:g}": f"{b:g} nats" for b in BUDGETS},
            "area": "Area 0 to 16 nats",
            "failed_runs": "Failed runs",
        },
        "text": "Reward on the test prompts, drift in nats per completion: the mean over seeds, "
        "each seed in parentheses, the 95 % t-interval. At each budget: the best "
        "validation checkpoint with at most that drift.",
    },
    {
        "title": "What it cost",
        "rows": ["method"],
        "columns": {
            "method": "Method",
            "perplexity": "Perplexity",
            "entropy": "Entropy",
            "distinct_2": "Distinct-2",
            "common_4grams": "Common 4-grams",
            "resets": "Resets",
            "reward_validation": "Validation reward",
            "reward_sampled": "under its mask",
        },
        "text": "Final weights on validation prompts; perplexity of the policy on human text. "
        "With a mask there are two policies: the exported one, which all columns show, and the one "
        "under its mask, which samples in training.",
    },
]


def row_of(method: Method, runs: Sequence[Run]) -> dict[str, Any]:
    """One method over its seeds."""
    mine = [r for r in runs if r.method == method.name]
    row: dict[str, Any] = {
        "kind": "method",
        "method": method.name,
        "seeds": [s.seed for s in method.seeds],
        "reward_test": summary(method.final_reward()),
        "drift_test": summary(method.final_drift()),
        "area": summary(method.area(16.0)),
        "failed_runs": method.failed(),
        "resets": len(method.recoveries()),
        **{f"at_{b:g}": summary(method.reward_at(b)) for b in BUDGETS},
    }
    last = [of_point(points[-1]) for r in mine if (points := r.validation())]
    row["reward_validation"] = summary(summarise([r.validation()[-1].reward for r in mine]))
    masked = [p for r in mine if (p := _masked(r)) is not None]
    row["reward_sampled"] = summary(summarise(masked)) if masked else None
    for column in SHOWN:
        assert column in GAUGES
        values = [p[column] for p in last if p[column] is not None]
        row[column] = summary(summarise(values)) if values else None
    return row


def _masked(run: Run) -> float | None:
    """Reward of the final weights as they sample in training, where a mask makes that another
    policy."""
    found = [
        p for p in run.points
        if p.policy == "constrained" and p.split == "validation" and p.update == run.updates
    ]  # fmt: skip
    return found[-1].reward if found else None


def collect(folder: Path, *, date: str, commit: str) -> dict[str, Any]:
    """The result file's content. Raises UserError for a folder without runs."""
    runs, _ = find_runs([folder])
    shown = study(list(runs), None, BUDGETS)
    made = next(r.environment for r in runs if r.environment)
    name = json.loads((folder / "study.json").read_text(encoding="utf-8"))["name"]
    command = f"tether compare benchmarks/{name}.yaml"
    rows = [
        row_of(m, runs) | {"command": command, "card": made["device"], "date": date}
        for m in shown.methods
    ]
    first = settings(next(r for r in runs if settings(r)))
    notes = [
        f"{len(runs)} runs of {first['updates']} updates of 48 completions, one CPU thread each. "
        "Five seeds: a picture, no verdict.",
        *shown.notes,
    ]
    versions = {k: v for k, v in made["versions"].items() if v and k != "tether-rl"}
    return {
        "name": name, "page": PAGES[name], "date": date, "card": made["device"],
        "commit": commit, "versions": versions, "notes": notes, "tables": TABLES, "rows": rows,
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.collect_methods")
    p.add_argument("records", type=Path, help="folder of the study")
    p.add_argument("--date", required=True, help="day of the runs, YYYY-MM-DD")
    p.add_argument("--commit", required=True, help="commit of the code that ran")
    p.add_argument("--out", type=Path, default=None, help="default: the result file of that name")
    given = p.parse_args(words)
    found = collect(given.records, date=given.date, commit=given.commit)
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    out = given.out or ROOT / "benchmarks" / "results" / f"{found['name']}.json"
    out.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {out}: {len(found['rows'])} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
