"""Reward and drift over the updates, as a Vega-Lite dict."""

from __future__ import annotations

from collections.abc import Sequence

from tether.analysis.intervals import mean_curve
from tether.reports.encodings import CONFIG, Spec, palette, summary_fields
from tether.reports.methods import Study
from tether.reports.runs import drift


def history(study: Study) -> Spec:
    """Reward and drift over updates, mean over seeds (bands from 5 seeds), first setting each."""
    names = [m.name for m in study.methods if m.seeds]
    values: list[Spec] = []
    for method in study.methods:
        if not method.seeds:
            continue
        first = [s.runs[0].validation() for s in method.seeds]
        for key, pick in (("reward", lambda p: p.reward), ("drift", drift)):
            for u, s in mean_curve([{p.update: pick(p) for p in points} for points in first]):
                values.append({"m": method.name, "k": key, "x": u, **summary_fields(s)})
    return {
        "hconcat": [
            _history_panel(values, names, "reward", "Reward (validation prompts)"),
            _history_panel(values, names, "drift", "Drift (nats per completion)"),
        ],
        "config": CONFIG,
    }


def _history_panel(values: Sequence[Spec], names: Sequence[str], kind: str, title: str) -> Spec:
    mine = [v for v in values if v["k"] == kind]
    colour: Spec = {
        "field": "m",
        "type": "nominal",
        "scale": {"domain": list(names), "range": palette(len(names))},
        "legend": {"title": None, "orient": "bottom", "columns": 4, "symbolType": "circle",
                   "symbolStrokeWidth": 0, "symbolOpacity": 1},
    }  # fmt: skip
    x = {"field": "x", "type": "quantitative", "title": "Updates", "axis": {"grid": False}}
    y: Spec = {"type": "quantitative", "title": title, "scale": {"zero": kind == "drift"}}
    band: Spec = {
        "data": {"values": [v for v in mine if "lo" in v]},
        "mark": {"type": "area", "opacity": 0.16},
        "encoding": {"x": x, "y": y | {"field": "lo"}, "y2": {"field": "hi"}, "color": colour},
    }
    return {
        "width": 330,
        "height": 210,
        "layer": [
            *([band] if band["data"]["values"] else []),
            {
                "data": {"values": mine},
                "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 18}},
                "encoding": {"x": x, "y": y | {"field": "y"}, "color": colour},
            },
        ],
    }  # fmt: skip
