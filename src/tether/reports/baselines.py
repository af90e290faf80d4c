"""What costs no training, as layers of the frontier chart and tables of the page: the oracle
frontier (dashed, its valid range only), best-of-n (squares at their KL bound), interpolation
(triangles on a dotted line)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tether.analysis.frontier import at
from tether.analysis.oracle import least_drift
from tether.records import BaselinePoint, setting_of
from tether.reports.encodings import INK, Spec, colour, short, where_picked, x_axis, y_axis
from tether.reports.methods import Study
from tether.reports.points import baselines
from tether.reports.runs import Run
from tether.reports.tables import NONE, Cell

Point = tuple[Run, BaselinePoint]
Curve = list[BaselinePoint]

TOOLTIP = [
    {"field": "m", "title": "method"},
    {"field": "t", "title": "setting"},
    {"field": "x", "title": "drift (nats)", "format": ".3~f"},
    {"field": "y", "title": "reward", "format": ".4~f"},
]


def drawn(study: Study) -> list[Point]:
    """Valid points, of validation prompts where there are any: the other marks are theirs."""
    valid = [(r, p) for r, p in baselines(study) if p.valid]
    validation = [(r, p) for r, p in valid if p.split == "validation"]
    return validation or valid


def curves(study: Study, kind: str) -> list[Curve]:
    """Best-of-n or oracle points run by run; runs of one study share an initial model, and equal
    curves are one."""
    by_run: dict[int, Curve] = {}
    for run, p in drawn(study):
        if p.baseline == kind:
            by_run.setdefault(id(run), []).append(p)
    found: dict[Any, Curve] = {}
    for mine in by_run.values():
        mine.sort(key=lambda p: p.drift)
        found.setdefault(tuple((short(p.drift), short(p.reward)) for p in mine), mine)
    return list(found.values())


def layers(study: Study, names: Sequence[str]) -> list[Spec]:
    """Behind the checkpoints first: the curve, then the marks. Empty without such points."""
    return [
        *_oracle(curves(study, "oracle")),
        *_best_of_n(curves(study, "best_of_n")),
        *_interpolation([x for x in drawn(study) if x[1].baseline == "interpolation"], names),
    ]


def subtitle(study: Study) -> list[str]:
    """What the marks are, and how far the oracle is to be trusted."""
    said = []
    if found := curves(study, "oracle"):
        n = found[0][0].samples
        said.append(
            f"dashed: oracle frontier ({n} samples a prompt, valid to {math.log(n) - 1:.1f} nats)"
        )
    if curves(study, "best_of_n"):
        said.append("squares: best-of-n at its KL bound")
    if any(p.baseline == "interpolation" for _, p in drawn(study)):
        said.append("dotted: initial-to-final interpolation")
    if not said:
        return []
    text = "; ".join(said)
    return [f"Without training, {text}."]


def _value(p: BaselinePoint, method: str) -> Spec:
    return {"m": method, "t": setting_of(p), "x": short(p.drift), "y": short(p.reward)}


def _oracle(found: Sequence[Curve]) -> list[Spec]:
    if not found:
        return []
    values = [
        _value(p, "oracle frontier") | {"c": i} for i, curve in enumerate(found) for p in curve
    ]
    last = [_value(c[-1], "oracle frontier") | {"l": "oracle"} for c in found]
    at_ = {"x": x_axis(), "y": y_axis()}
    return [
        {"name": "oracle", "data": {"values": values},
         "mark": {"type": "line", "color": INK, "strokeDash": [6, 4], "strokeWidth": 1.5},
         "encoding": at_ | {"detail": {"field": "c"}, "order": _order("x")}},
        {"data": {"values": last}, "encoding": at_ | {"text": {"field": "l"}},
         "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 6, "dy": 2,
                  "color": INK, "fontSize": 11}},
    ]  # fmt: skip


def _order(field: str) -> Spec:
    return {"field": field, "type": "quantitative"}


def _best_of_n(found: Sequence[Curve]) -> list[Spec]:
    if not found:
        return []
    values = [
        _value(p, "best-of-n") | {"l": f"n={p.at:.0f}" if p.at != 1 else ""}
        for curve in found
        for p in curve
    ]
    at_ = {"x": x_axis(), "y": y_axis()}
    return [
        {"name": "best_of_n", "data": {"values": values},
         "mark": {"type": "point", "shape": "square", "filled": False, "fill": "white",
                  "color": INK, "size": 42, "strokeWidth": 1.4},
         "encoding": at_ | {"tooltip": TOOLTIP}},
        {"data": {"values": values}, "encoding": at_ | {"text": {"field": "l"}},
         "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 5, "dy": 4,
                  "color": INK, "fontSize": 10}},
    ]  # fmt: skip


def _interpolation(points: Sequence[Point], names: Sequence[str]) -> list[Spec]:
    if not points:
        return []
    values = [
        _value(p, r.method) | {"c": f"{r.name} {p.how}", "o": p.at}
        for r, p in points
        if r.method in names
    ]
    data = {"values": values}
    shared = {"x": x_axis(), "y": y_axis(), "color": colour(names)}
    return [
        {"name": "interpolation_lines", "data": data,
         "mark": {"type": "line", "strokeDash": [1, 3], "strokeWidth": 1.4},
         "encoding": shared | {"detail": {"field": "c"}, "order": _order("o"),
                               "opacity": where_picked(0.8, 0.2)}},
        {"name": "interpolation", "data": data,
         "mark": {"type": "point", "shape": "triangle-right", "filled": True, "size": 48},
         "encoding": shared | {"tooltip": TOOLTIP, "opacity": where_picked(0.9, 0.3)}},
    ]  # fmt: skip


def table(study: Study) -> tuple[list[str], list[list[Cell]]] | None:
    """Best-of-n and the oracle in numbers, judges included; None where there is neither."""
    found = [*curves(study, "best_of_n"), *curves(study, "oracle")]
    points = [p for curve in found for p in curve]
    if not points:
        return None
    judges = sorted({j for p in points for j in p.judges})
    rows = [
        [
            Cell(p.baseline.replace("_", "-")),
            Cell(setting_of(p)),
            Cell(f"{'≤ ' if p.drift_is == 'bound' else ''}{p.drift:.2f}"),
            Cell(f"{p.reward:.3f}"),
            *(NONE if p.judges.get(j) is None else Cell(f"{p.judges[j]:.3f}") for j in judges),
        ]
        for p in points
    ]
    return ["Without training", "Setting", "Drift", "Reward", *judges], rows


def waste(study: Study) -> tuple[list[str], list[list[Cell]]] | None:
    """What a method drifts more than the oracle needs for the same validation reward, within the
    primary budget; None without one oracle."""
    found = curves(study, "oracle")
    if len(found) != 1:
        return None
    curve = [(p.drift, p.reward) for p in found[0]]
    rows = []
    for method in study.methods:
        chosen = [at(s.shown, study.primary_budget) for s in method.seeds]
        needed = [(c.drift, least_drift(curve, c.chosen_by)) for c in chosen]
        known = [(drift, least) for drift, least in needed if least is not None]
        if not known:
            rows.append([Cell(method.name), NONE, NONE, NONE])
            continue
        drifts, least = (math.fsum(x) / len(known) for x in zip(*known, strict=True))
        cells = [Cell(f"{x:.2f}") for x in (drifts, least, drifts - least)]
        rows.append([Cell(method.name), *cells])
    head = [f"Within {study.primary_budget:g} nats", "Drift", "Oracle at that reward", "Wasted"]
    return head, rows
