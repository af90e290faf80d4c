"""The metrics of a task, built: by name from the task, with the settings that the name leaves open.

A metric that is also the task's reward has the reward's settings. One that cannot be computed here
(a package, a model or a file is not there) is left out, with the reason: it is then missing for all
methods, and the anchors, whose hash names the benchmark, say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tether.analysis.grue import FAMILIES, PERPLEXITY, Family
from tether.config.catalog import CATALOG, kinds, load
from tether.config.errors import UserError
from tether.config.nearest import unknown
from tether.config.parts import build
from tether.metrics.base import Metric
from tether.studies.grue.terms import Terms


@dataclass(frozen=True)
class Entry:
    """One metric of a task."""

    name: str
    family: Family
    metric: Metric | None
    """None = perplexity, or not to be had."""
    maximum: float
    """Best value that it can take: the ceiling where there is one reference only."""
    missing: str = ""
    """Why it cannot be computed."""

    @property
    def is_perplexity(self) -> bool:
        """Read from the run's record, whatever it is called."""
        return self.metric is None and not self.missing


def entries(task: str, terms: Terms, others: Sequence[str] = ()) -> list[Entry]:
    """All metrics of both families, and further ones that are measured only: the task's own and
    `others`.

    Raises UserError: a name that is no metric of texts.
    """
    definition = load("task", task)
    lists: dict[Family, Sequence[str]] = {
        "task": terms.metrics if terms.metrics is not None else definition.metrics,
        "naturalness": terms.naturalness
        if terms.naturalness is not None
        else definition.naturalness,
    }
    if not lists["task"]:
        raise UserError(
            f"'metrics' of {task} is empty, and the task score is their mean: name one at least, "
            "or leave the key out"
        )
    found: list[Entry] = []
    where = f"the metrics of {task}"
    for family in FAMILIES:
        for name in lists[family]:
            if any(e.name == name for e in found):
                raise UserError(f"the metric '{name}' of {task} is named twice")
            found.append(_entry(name, family, part_of(name, task, terms, where)))
    named = {e.name for e in found}
    more = dict.fromkeys(definition.beside, where) | dict.fromkeys(others, "--rewards")
    for name, place in more.items():
        if name not in named:
            found.append(_entry(name, "other", part_of(name, task, terms, place)))
    return found


def part_of(name: str, task: str, terms: Terms, where: str) -> dict[str, Any]:
    """A metric's settings: of the terms, of the task's reward, else its defaults.

    Raises UserError: no metric has the name.
    """
    if name in terms.parts:
        return dict(terms.parts[name])
    if name not in CATALOG["metric"]:
        raise unknown("metric", name, [*kinds("metric"), PERPLEXITY], where)
    for reward in load("task", task).rewards.values():
        if reward["kind"] == name:  # a classifier is a reward and a metric by the same name
            return {"kind": name, name: {k: v for k, v in reward.items() if k not in _OF_A_REWARD}}
        metric = reward.get("metric")
        if isinstance(metric, Mapping) and metric.get("kind") == name:
            return dict(metric)
    return {"kind": name}


_OF_A_REWARD = ("kind", "weight")


def _entry(name: str, family: Family, part: dict[str, Any]) -> Entry:
    if part["kind"] == PERPLEXITY:
        return Entry(name, family, None, math.inf)
    if part["kind"] in CATALOG["metric"] and part["kind"] not in kinds("metric"):
        raise UserError(
            f"the metric '{name}' is measured by a run, not on texts; only {PERPLEXITY} is"
        )
    stated = part.pop("maximum", None)
    metric: Metric = build("metric", part, f"the metric {name}")
    try:
        metric.check()
        metric.prepare()
    except (UserError, OSError, ImportError) as e:  # the libraries' own: no network, no such model
        return Entry(name, family, None, math.inf, " ".join(str(e).split())[:200])
    return Entry(name, family, metric, metric.best if stated is None else float(stated))
