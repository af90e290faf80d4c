"""The picture of docs/grue.md: reward within a drift budget, a panel for each task.

    python -m benchmarks.plot_grue                 # docs/images/grue.png

Drawn from the archive of the real runs: the lines are means over seeds and the dots are seeds; the
dashed line is the supervised model from which the methods start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vl_convert

from benchmarks.collect_grue import NAME, NAMES
from benchmarks.collect_imdb import ROOT, opened
from tether.config.whole_file import write_whole
from tether.reports.encodings import COLOURS, CONFIG, SOFT, short
from tether.reports.grue.results import Results, read

START = "supervised"
METHODS = {
    "supervised+ppo": "PPO", "supervised+nlpo": "NLPO",
    "supervised+elastic-reset": "Elastic Reset",
}  # fmt: skip
"""Rows that are drawn; ablations, pilots and rows without a warm start are in the tables."""
SPAN = 0.06
"""Least length of a panel's axis, in units of the reward."""
Spec = dict[str, Any]


def values(r: Results) -> list[Spec]:
    """A value for each task, method, budget and seed: the reward on the test prompts of the best
    weights within the budget; of the start one for each task, the mean over its seeds."""
    out: list[Spec] = []
    for task in r.tasks:
        about = {"t": NAMES[task.name]}
        start = [w.reward for w in r.weights(task, r.row(START), None)]
        if start:
            out.append({**about, "start": short(sum(start) / len(start))})
        for label, name in METHODS.items():
            cells = task.cells.get(label, {})
            for seed, cell in sorted(cells.items()):
                for budget in r.budgets:
                    if (found := cell.at(f"budget:{budget:g}")) is not None:
                        mine = {"m": name, "s": seed, "x": budget, "y": short(found.reward)}
                        out.append(about | mine)
    return out


def panel(r: Results, title: str, mine: Sequence[Spec]) -> Spec:
    """One task."""
    names, budgets = list(METHODS.values()), sorted(r.budgets)
    x: Spec = {
        "field": "x", "type": "quantitative", "title": "Drift budget (nats per completion)",
        "scale": {"type": "log", "base": 2, "domain": [budgets[0], budgets[-1]], "padding": 8},
        "axis": {"values": budgets, "grid": False, "format": "~g"},
    }  # fmt: skip
    y = {
        "type": "quantitative", "title": "Reward", "axis": {"tickCount": 5},
        "scale": {"domain": domain([v.get("y", v.get("start")) for v in mine]), "nice": False},
    }  # fmt: skip
    colour = {
        "field": "m", "type": "nominal", "scale": {"domain": names, "range": list(COLOURS[:3])},
        "legend": {"title": None, "orient": "bottom", "symbolType": "circle"},
    }  # fmt: skip
    trained = [{"filter": "isValid(datum.m)"}]
    return {
        "title": {"text": title, "fontSize": 13, "anchor": "middle", "offset": 6},
        "data": {"values": list(mine)},
        "width": 250, "height": 180,
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.start)"}],
                "mark": {"type": "rule", "color": SOFT, "strokeDash": [4, 3]},
                "encoding": {"y": {**y, "field": "start"}},
            },
            {
                "transform": trained,
                "mark": {"type": "line", "strokeWidth": 2.5},
                "encoding": {"x": x, "y": {**y, "field": "y", "aggregate": "mean"},
                             "color": colour},
            },
            {
                "transform": trained,
                "mark": {"type": "circle", "size": 26, "opacity": 0.55},
                "encoding": {"x": x, "y": {**y, "field": "y"}, "color": colour},
            },
        ],
    }  # fmt: skip


def domain(rewards: Sequence[float]) -> list[float]:
    """Ends of a panel's axis: at least `SPAN` apart, so that chance does not fill it."""
    low, high = min(rewards), max(rewards)
    middle, half = (low + high) / 2, max(1.1 * (high - low), SPAN) / 2
    return [short(middle - half), short(middle + half)]


def chart(r: Results) -> Spec:
    """As a Vega-Lite dict."""
    found = values(r)
    by_task = {NAMES[t.name]: [v for v in found if v["t"] == NAMES[t.name]] for t in r.tasks}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": {
            "text": "Reward within a drift budget, from the supervised model",
            "subtitle": (
                "Line: mean over seeds; dots: each seed; dashed: the supervised model. Test "
                "prompts; the best weights within a budget are picked on validation prompts."
            ),
        },
        "concat": [panel(r, name, mine) for name, mine in by_task.items() if mine],
        "columns": 4,
        "config": CONFIG,
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.plot_grue")
    runs = ROOT / "benchmarks" / "records" / f"{NAME}.tgz"
    p.add_argument("runs", type=Path, nargs="?", default=runs, help="the archive, or a folder")
    p.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / f"{NAME}.png")
    given = p.parse_args(words)
    with opened(given.runs) as folder:
        spec = chart(read(folder))
    write_whole(given.out, vl_convert.vegalite_to_png(spec, scale=1.6))
    print(f"wrote {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
