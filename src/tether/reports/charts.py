"""The charts as Vega-Lite dicts: the same dict gives the PNG, the SVG and the interactive page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tether.analysis.frontier import Step, mean_steps
from tether.analysis.intervals import SEEDS_FOR_INTERVAL, summarise
from tether.reports import baselines
from tether.reports.encodings import (
    CONFIG,
    HEIGHT,
    IN_COLOUR,
    INK,
    SOFT,
    TOOLTIP,
    WIDTH,
    Spec,
    colour,
    short,
    summary_fields,
    where_picked,
    x_axis,
    y_axis,
)
from tether.reports.methods import Method, Study
from tether.reports.points import Row
from tether.reports.runs import drift


def frontier(study: Study, table: Sequence[Row]) -> Spec:
    """Reward against drift: budgets, bands, every seed, the mean, checkpoints, resets."""
    names = [m.name for m in study.methods if m.seeds]
    drawn = [r for r in table if r.checkpoint or r.reset]
    free = [p.drift for _, p in baselines.drawn(study)]
    right = _right_end([*(r.drift for r in drawn), *free])
    curves = [c for m in study.methods if m.seeds for c in _curves(m, right)]
    crowded = any(len(m.seeds) >= SEEDS_FOR_INTERVAL for m in study.methods)
    layers = [
        *_budget_rules(study, right),
        _band(curves, names),
        _seed_lines(curves, names),
        _mean_line(curves, names),
        *baselines.layers(study, names),
        _checkpoints(drawn, names, crowded),
        *_resets(drawn, names, crowded),
        *_tested(study, names, right),
        *_start(study),
    ]
    return {
        "title": {"text": "Reward within a drift budget", "subtitle": _subtitle(study)},
        "width": WIDTH,
        "height": HEIGHT,
        "layer": [x for x in layers if "data" not in x or x["data"]["values"]],
        "config": CONFIG,
    }


def _subtitle(study: Study) -> list[str]:
    seeds = {len(m.seeds) for m in study.methods if m.seeds}
    count = str(seeds.pop()) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    bands = any(s.low is not None for m in study.methods if m.seeds for s in [m.final_reward()])
    unit = "seed" if count == "1" else "seeds"
    spread = "95 % t-interval" if bands else "thin lines: each seed"
    lines = [f"Best validation checkpoint within the budget; mean of {count} {unit}, {spread}."]
    marks = ["Points: checkpoints, strong where non-dominated"]
    if any(m.recoveries() for m in study.methods):
        marks.append("triangles: before (open) and after (filled) a reset")
    if study.split == "test":
        marks.append("diamonds: test prompts")
    return [*lines, "; ".join(marks) + ".", *baselines.subtitle(study)]


def _right_end(drifts: Sequence[float]) -> float:
    """A budget-like end of the axis (1, 2, 4, ...) just above the largest drift."""
    return float(2 ** max(0, math.ceil(math.log2(max([*drifts, 0.5]) * 1.04))))


def _curves(method: Method, right: float) -> list[Spec]:
    """Mean and single seeds of the drawn f, up to the largest drift that the method reached."""
    functions = [s.shown for s in method.seeds]
    reached = max(drift(p) for s in method.seeds for r in s.runs for p in r.validation())
    out: list[Spec] = []
    mean = [(b, summarise(v)) for b, v in mean_steps(functions)]
    for b, s in [*mean, (min(reached, right), mean[-1][1])]:
        out.append({"m": method.name, "s": "mean", "x": short(b), **summary_fields(s)})
    for seed, function in zip(method.seeds, functions, strict=True):
        out += _one_seed(method.name, seed.seed, function, reached)
    return out


def _one_seed(name: str, seed: int, function: Sequence[Step], reached: float) -> list[Spec]:
    corners = [(s.start, s.checkpoint.reward) for s in function]
    return [
        {"m": name, "s": str(seed), "x": short(x), "y": short(y)}
        for x, y in [*corners, (reached, corners[-1][1])]
    ]


def _budget_rules(study: Study, right: float) -> list[Spec]:
    inside = [b for b in study.budgets if b <= right]
    if not inside:
        return []
    data = {"values": [{"x": b, "t": _budget_label(b, inside)} for b in inside]}
    return [
        {
            "name": "budgets",
            "data": data,
            "mark": {"type": "rule", "color": "#D9DCE1", "strokeWidth": 1},
            "encoding": {"x": x_axis(right)},
        },
        {
            "data": data,
            "mark": {"type": "text", "baseline": "bottom", "dy": -3, "color": SOFT, "fontSize": 11},
            "encoding": {"x": x_axis(right), "y": {"value": 0}, "text": {"field": "t"}},
        },
    ]


def _budget_label(budget: float, inside: Sequence[float]) -> str:
    if budget != inside[-1]:
        return f"{budget:g}"
    return f"{budget:g} nats"


def _band(curves: Sequence[Spec], names: Sequence[str]) -> Spec:
    return {
        "name": "bands",
        "data": {"values": [c for c in curves if "lo" in c]},
        "mark": {"type": "area", "interpolate": "step-after", "tooltip": False},
        "encoding": {
            "x": x_axis(),
            "y": y_axis("lo"),
            "y2": {"field": "hi"},
            "color": colour(names),
            "opacity": where_picked(0.16, 0.0),
        },
    }


def _seed_lines(curves: Sequence[Spec], names: Sequence[str]) -> Spec:
    with_band = {c["m"] for c in curves if "lo" in c}
    values = [c for c in curves if c["s"] != "mean" and c["m"] not in with_band]
    return {
        "name": "seeds",
        "data": {"values": values},
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1},
        "encoding": {
            "x": x_axis(),
            "y": y_axis(),
            "detail": [{"field": "m"}, {"field": "s"}],
            "color": colour(names),
            "opacity": where_picked(0.4, 0.25),
        },
    }


def _mean_line(curves: Sequence[Spec], names: Sequence[str]) -> Spec:
    return {
        "name": "means",
        "data": {"values": [c for c in curves if c["s"] == "mean"]},
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.6},
        "encoding": {
            "x": x_axis(),
            "y": y_axis(),
            "detail": {"field": "m"},
            "color": colour(names),
            "opacity": where_picked(1.0, 0.7),
        },
    }


def _value(row: Row) -> Spec:
    return {
        "m": row.run.method,
        "s": row.run.seed,
        "r": row.run.name,
        "u": row.point.update,
        "x": short(row.drift),
        "y": short(row.point.reward),
    }


def _checkpoints(drawn: Sequence[Row], names: Sequence[str], crowded: bool) -> Spec:
    big = 26 if crowded else 46
    values = [_value(r) | {"n": int(r.non_dominated)} for r in drawn if r.checkpoint]
    return {
        "name": "checkpoints",
        "data": {"values": values},
        "params": [
            {
                "name": "picked",
                "select": {"type": "point", "fields": ["m"], "toggle": "true"},
                "bind": "legend",
                "value": [{"m": name} for name in names[:IN_COLOUR]],
            }
        ],
        "mark": {"type": "point", "filled": True, "strokeWidth": 0},
        "encoding": {
            "x": x_axis(),
            "y": y_axis(),
            "color": colour(names),
            "size": {"condition": {"test": "datum.n == 1", "value": big}, "value": 18},
            "opacity": {
                "condition": [
                    {"test": {"and": [{"param": "picked", "empty": False}, "datum.n == 1"]},
                     "value": 0.95},
                    {"param": "picked", "empty": False, "value": 0.28},
                ],
                "value": 0.3,
            },
            "tooltip": TOOLTIP,
        },
    }  # fmt: skip


def _resets(drawn: Sequence[Row], names: Sequence[str], crowded: bool) -> list[Spec]:
    """Both sides of every weight event, joined by a thin dashed line."""
    sides = [_value(r) | {"k": r.reset} for r in drawn if r.reset]
    if not sides:
        return []
    links = [
        {**a, "x2": b["x"], "y2": b["y"]}
        for a in sides
        for b in sides
        if a["k"] == "before" and b["k"] == "after" and (a["r"], a["u"]) == (b["r"], b["u"])
    ]
    return [
        {
            "name": "jumps",
            "data": {"values": links},
            "mark": {"type": "rule", "strokeDash": [3, 3], "strokeWidth": 1},
            "encoding": {
                "x": x_axis(),
                "y": y_axis(),
                "x2": {"field": "x2"},
                "y2": {"field": "y2"},
                "color": colour(names),
                "opacity": where_picked(0.3 if crowded else 0.55, 0.15),
            },
        },
        _side(sides, names, "before", "triangle-down"),
        _side(sides, names, "after", "triangle-up"),
    ]


def _side(sides: Sequence[Spec], names: Sequence[str], side: str, shape: str) -> Spec:
    mark: Spec = {"type": "point", "shape": shape, "size": 75, "strokeWidth": 1.4}
    mark |= {"filled": True} if side == "after" else {"filled": False, "fill": "white"}
    return {
        "name": f"resets_{side}",
        "data": {"values": [s for s in sides if s["k"] == side]},
        "mark": mark,
        "encoding": {
            "x": x_axis(),
            "y": y_axis(),
            "color": colour(names),
            "opacity": where_picked(1.0, 0.5),
            "tooltip": TOOLTIP,
        },
    }


def _tested(study: Study, names: Sequence[str], right: float) -> list[Spec]:
    """Mean test reward at each budget, where the study has test prompts."""
    if study.split != "test":
        return []
    values = [
        {"m": m.name, "x": b, **summary_fields(m.reward_at(b))}
        for m in study.methods
        if m.seeds
        for b in study.budgets
        if b <= right
    ]
    return [
        {
            "name": "tested",
            "data": {"values": values},
            "mark": {"type": "point", "shape": "diamond", "size": 110, "strokeWidth": 1.8,
                     "filled": False, "fill": "white"},
            "encoding": {
                "x": x_axis(),
                "y": y_axis(),
                "color": colour(names),
                "opacity": where_picked(1.0, 0.35),
                "tooltip": [
                    {"field": "m", "title": "method"},
                    {"field": "x", "title": "budget (nats)"},
                    {"field": "y", "title": "test reward, mean", "format": ".4~f"},
                ],
            },
        }
    ]  # fmt: skip


def _start(study: Study) -> list[Spec]:
    points = [p for r in study.runs for p in r.validation() if p.update == 0]
    reward = math.fsum(p.reward for p in points) / len(points)
    data = {"values": [{"x": 0, "y": short(reward), "t": "initial model"}]}
    at = {"x": x_axis(), "y": y_axis()}
    return [
        {"name": "initial", "data": data, "encoding": at,
         "mark": {"type": "point", "shape": "cross", "filled": True, "size": 90, "color": INK}},
        {"data": data, "encoding": at | {"text": {"field": "t"}},
         "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 7, "dy": 5,
                  "color": INK, "fontSize": 11}},
    ]  # fmt: skip
