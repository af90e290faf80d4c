"""`grue.json`: what a benchmark consists of, and what was declared before its first result.

The folder of a benchmark may grow: a later call with other tasks, methods or seeds adds to what is
declared. The comparisons that get a verdict stay as they were before the first result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tether.analysis.comparisons import PRIMARY_AT_MOST, TESTED_AT_MOST, distinct
from tether.config.errors import UserError
from tether.config.json_file import read_mapping
from tether.config.settings import dump
from tether.config.whole_file import write_whole
from tether.reports.grue.results import REDECLARE
from tether.reports.grue.sound import check_declared
from tether.studies.grue.cells import Cell, Plan, tuned
from tether.studies.grue.primary import pairs_of
from tether.studies.grue.scoring import completions_trained
from tether.studies.workers import Job

DECLARED = "grue.json"
MARGIN = 0.01
"""Default equivalence margin of the primary comparisons, on the scale of the aggregate."""


def declare(
    plan: Plan,
    made: Sequence[tuple[Cell, Job]],
    stamps: Mapping[str, str],
    primary: Sequence[tuple[str, str]] | str = (),
    margin: float | None = None,
    free: Sequence[Cell] = (),
) -> dict[str, Any]:
    """Write grue.json, with what it held before. Returns what it holds now.

    Args:
        stamps: task -> hash of its anchors.
        primary: pairs, or the text of `--primary`; none = as declared before.
        margin: of their equivalence; None = as declared before, else .01.
        free: runs that measure what costs no training.
    Raises:
        UserError: as `checked`.
    """
    content = checked(plan, made, primary, margin)
    more = {"anchors": dict(stamps), "free": [_free(c) for c in free]}
    content = grown(declared(plan.folder), {**content, **more})
    write_whole(plan.folder / DECLARED, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return content


def checked(
    plan: Plan,
    made: Sequence[tuple[Cell, Job]],
    primary: Sequence[tuple[str, str]] | str = (),
    margin: float | None = None,
) -> dict[str, Any]:
    """What is declared together with what was, but for the anchors; nothing is written.

    Raises:
        UserError: a primary comparison of no method, more than 6, any with more than 20 seeds,
            other ones (or another margin) than before the first result, a margin that is not above
            0, or a folder that holds a benchmark with other budgets or of another kind.
    """
    file = plan.folder / DECLARED
    old = declared(plan.folder)
    content = grown(old, _content(plan, made))
    for key in ("mini", "budgets"):
        if old and old[key] != content[key]:
            raise UserError(
                f"{file} is of a benchmark with {key} {old[key]}, not {content[key]}; take another "
                "--out FOLDER"
            )
    once = [list(p) for p in distinct(old.get("primary", []))]
    before = {"primary": once, "margin": old.get("margin")}
    given = distinct(pairs_of(primary, content["rows"]))
    pairs = [list(p) for p in given] or before["primary"]
    margin = old.get("margin", MARGIN) if margin is None else margin
    if not 0 < margin < math.inf:
        raise UserError(f"--margin must be a number above 0, not {margin}")
    if len(pairs) > PRIMARY_AT_MOST:
        raise UserError(f"--primary declares at most {PRIMARY_AT_MOST} comparisons")
    if pairs and len(content["seeds"]) > TESTED_AT_MOST:
        raise UserError(
            f"--primary takes at most {TESTED_AT_MOST} seeds, up to which the test is exact, not "
            f"{len(content['seeds'])}: take fewer, or declare no comparison"
        )
    fixed = {"primary": pairs, "margin": margin}
    if old and before != fixed and any(plan.folder.glob("*/*/record.jsonl")):
        raise UserError(
            f"{file} declares other primary comparisons or another margin, and there are results "
            "already; take another --out FOLDER"
        )
    return {**content, **fixed}


def declared(folder: Path) -> dict[str, Any]:
    """What `grue.json` of a folder holds; empty where there is none. Raises UserError."""
    file = folder / DECLARED
    keys = ("mini", "tasks", "rows", "seeds", "budgets", "anchors", "cells", "primary", "margin")
    if not file.is_file():
        return {}
    found = read_mapping(file, REDECLARE, *keys)
    try:
        check_declared(found)
    except (LookupError, TypeError, ValueError, AttributeError) as e:
        raise UserError(f"{file} is damaged ({type(e).__name__}: {e}): {REDECLARE}") from e
    return found


def grown(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What two declarations of one benchmark hold together; in what both have, the new one
    counts."""
    return {
        **new,
        "tasks": list(dict.fromkeys([*old.get("tasks", []), *new["tasks"]])),
        "seeds": sorted({*old.get("seeds", []), *new["seeds"]}),
        "rows": {**old.get("rows", {}), **new["rows"]},
        "anchors": {**old.get("anchors", {}), **new["anchors"]},
        "cells": _by_name([*old.get("cells", []), *new["cells"]]),
        "free": _by_name([*old.get("free", []), *new.get("free", [])]),
    }


def _by_name(listed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({x["name"]: x for x in listed}.values())


def _free(cell: Cell) -> dict[str, Any]:
    return {
        "name": cell.name,
        "task": cell.task,
        "start": cell.method.start,
        "seed": cell.seed,
        "trained_on": cell.reward,
        "reference": cell.reference,
    }


def _content(plan: Plan, made: Sequence[tuple[Cell, Job]]) -> dict[str, Any]:
    rows = {
        c.label: {
            "method": c.method.name,
            "start": c.method.start,
            "tuned": tuned(plan, c.task, c.method),
            "trained_on": c.reward,
            "reference": c.reference,
        }
        for c, _ in made
    }
    cells = [
        {
            "name": c.name,
            "task": c.task,
            "label": c.label,
            "seed": c.seed,
            "completions": completions_trained(dump(j.settings)),
        }
        for c, j in made
    ]
    return {
        "mini": plan.mini,
        "tasks": list(plan.tasks),
        "rows": rows,
        "seeds": list(plan.seeds),
        "budgets": made[0][1].settings.evaluation.budgets,
        "anchors": {},
        "cells": cells,
    }
