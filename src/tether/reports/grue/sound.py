"""Whether files of a benchmark are as it wrote them: what a report would else stumble over, or take
for numbers. Everything here raises ValueError, TypeError, LookupError or AttributeError, which the
readers turn into one line that names the file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tether.analysis.grue import Anchor
from tether.analysis.jackknife import groups


def check_declared(content: Mapping[str, Any]) -> None:
    """Of `grue.json`: lists and numbers where they are read, and names that are declared."""
    for key in ("rows", "anchors"):
        if not isinstance(content[key], dict):
            raise TypeError(f"'{key}' is no mapping")
    for key in ("tasks", "seeds", "budgets", "cells", "primary"):
        if not isinstance(content[key], list):
            raise TypeError(f"'{key}' is no list")
    if not content["budgets"] or not all(_number(b) and b > 0 for b in content["budgets"]):
        raise ValueError("'budgets' are no numbers above 0")
    if not all(isinstance(s, int) for s in content["seeds"]):
        raise ValueError("'seeds' are no whole numbers")
    if not (_number(content["margin"]) and content["margin"] > 0):
        raise ValueError("'margin' is no number above 0")
    for cell in content["cells"]:
        if cell["label"] not in content["rows"] or cell["task"] not in content["tasks"]:
            raise ValueError(f"the cell {cell['name']} is of no row or task")
    for a, b in content["primary"]:
        lost = next((x for x in (a, b) if x not in content["rows"]), None)
        if lost is not None:
            raise ValueError(f"'primary' names '{lost}', which is no row")


def check_weights(found: Mapping[str, Any]) -> None:
    """Of one entry of `scores.json`."""
    if not all(isinstance(n, str) for n in found["names"]):
        raise TypeError("'names' are no texts")
    for key in ("drift", "reward", "perplexity"):
        if found[key] is not None and not _number(found[key]):
            raise ValueError(f"'{key}' is no number")
    for name, value in found["values"].items():
        if not _number(value):
            raise ValueError(f"the value of {name} is missing or no number")
    for name, values in found["left_out"].items():
        if not isinstance(values, list) or not all(map(_number, values)):
            raise ValueError(f"a value of {name} without some examples is missing or no number")
    for name, parts in found.get("parts", {}).items():
        if not all(v is None or _number(v) for v in parts.values()):
            raise ValueError(f"a part of {name} is no number")


def check_metrics(
    values: Mapping[str, float],
    left_out: Mapping[str, Sequence[float]],
    perplexity: float | None,
    anchors: Sequence[Anchor],
    examples: int,
) -> None:
    """Of one set of weights: metrics that have anchors, as many groups of examples as there are, a
    perplexity above 0."""
    known = {a.metric: a for a in anchors}
    lost = next((n for n in (*values, *left_out) if n not in known), None)
    if lost is not None:
        raise ValueError(f"the metric {lost} has no anchor")
    if any(known[n].is_perplexity and not v > 0 for n, v in values.items()):
        raise ValueError("a perplexity is not above 0")
    if perplexity is not None and not perplexity > 0:
        raise ValueError("'perplexity' is not above 0")
    there = len(groups(examples))
    for name, parts in left_out.items():
        if len(parts) not in (0, there):
            raise ValueError(f"{name} without some examples has {len(parts)} values, not {there}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
