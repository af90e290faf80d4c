"""What the charts share: colours, fonts, axes, and what happens when a method is picked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tether.analysis.intervals import Summary

Spec = dict[str, Any]

IN_COLOUR = 4
"""Methods in colour; the others are grey until their legend entry is clicked."""
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#AA4499",
    "#B8860B",
    "#56B4E9",
    "#882255",
    "#44557A",
    "#999933",
    "#E07B91",
)
"""The first four are told apart with any colour vision (Okabe and Ito)."""
GREY = "#C4C7CC"
INK = "#24292F"
SOFT = "#6B7280"
WIDTH, HEIGHT = 720, 430
DRIFT_TITLE = "Drift: KL to the initial model (nats per completion)"

CONFIG: Spec = {
    "font": "Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif",
    "background": "white",
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT,
        "titleColor": INK,
        "titleFontWeight": "normal",
        "titleFontSize": 13,
        "labelFontSize": 12,
        "titlePadding": 10,
        "gridColor": "#F0F1F3",
        "domainColor": "#9CA3AF",
        "tickColor": "#9CA3AF",
    },
    "legend": {"labelFontSize": 12, "labelColor": INK, "labelLimit": 260, "symbolSize": 110},
    "title": {
        "anchor": "start",
        "fontSize": 15,
        "fontWeight": 600,
        "color": INK,
        "subtitleColor": SOFT,
        "subtitleFontSize": 12,
        "subtitlePadding": 5,
        "offset": 14,
    },
}


TOOLTIP = [
    {"field": "m", "title": "method"},
    {"field": "r", "title": "run"},
    {"field": "u", "title": "update"},
    {"field": "x", "title": "drift (nats)", "format": ".3~f"},
    {"field": "y", "title": "reward", "format": ".4~f"},
]


def summary_fields(s: Summary) -> Spec:
    out = {"y": short(s.mean)}
    if s.low is not None and s.high is not None:
        out |= {"lo": short(s.low), "hi": short(s.high)}
    return out


def short(value: float) -> float:
    return float(f"{value:.5g}")


def x_axis(right: float | None = None, field: str = "x") -> Spec:
    ticks = [0.0, 0.5] + [float(2**k) for k in range(12)]
    x: Spec = {"field": field, "type": "quantitative", "title": DRIFT_TITLE}
    if right is not None:
        x["scale"] = {"type": "symlog", "constant": 1, "domain": [0, right], "nice": False}
        x["axis"] = {"values": [t for t in ticks if t <= right], "grid": False, "format": "~g"}
    return x


def y_axis(field: str = "y") -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": "Reward (mean over prompts)",
        "scale": {"zero": False, "nice": True},
        "axis": {"tickCount": 7},
    }


def colour(names: Sequence[str]) -> Spec:
    """Colour of a picked method, grey otherwise. Everything shares one legend."""
    return {
        "condition": {
            "param": "picked",
            "empty": False,
            "field": "m",
            "type": "nominal",
            "scale": {"domain": list(names), "range": palette(len(names))},
            "legend": {
                "title": None,
                "orient": "bottom",
                "direction": "horizontal",
                "columns": 4,
                "symbolType": "circle",
                "symbolStrokeWidth": 0,
                "symbolOpacity": 1,
                "offset": 14,
            },
        },
        "value": GREY,
    }


def palette(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def where_picked(picked: float, other: float) -> Spec:
    return {"condition": {"param": "picked", "empty": False, "value": picked}, "value": other}
