"""Reward against drift of one task: the methods that share a start and a reward, and beside them
what costs no training from the same weights (best-of-n, the oracle, interpolation)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tether.records import BaselinePoint, setting_of
from tether.reports import baselines, charts, points
from tether.reports.grue.results import Free, Results, Row, Task
from tether.reports.grue.tables import nats
from tether.reports.methods import Study, study
from tether.reports.parts import Part
from tether.reports.runs import Run, read_run, settings

APART = (
    "Best-of-n and the oracle are of sampled completions; methods and interpolation are evaluated "
    "with another sampling (evaluation.sampling), so their rewards are no measure of each other."
)


@dataclass(frozen=True)
class Frontier:
    """Methods that share a start and a reward."""

    task: str
    start: str
    """Method whose final weights they start from; empty = the model as it is."""
    reward: str
    """The one metric that they are trained on; empty = the task's reward."""
    study: Study
    sampled_apart: bool = False
    """Best-of-n and the oracle are of completions that were sampled otherwise than those that the
    methods are evaluated on (a task is evaluated on the likeliest token)."""

    @property
    def whose(self) -> str:
        """`from supervised, reward chrf`."""
        reward = f", reward {self.reward}" if self.reward else ""
        return f"from {self.start or 'the model as it is'}{reward}"


def frontiers(r: Results, task: Task) -> list[Frontier]:
    """In order of the rows; only what has finished."""
    groups: dict[tuple[str, str], list[tuple[Row, Run]]] = {}
    for row in r.rows:
        if row.tuned:
            for cell in task.cells.get(row.label, {}).values():
                run = read_run(cell.folder)
                groups.setdefault((row.start, row.trained_on), []).append((row, run))
    found = []
    for (start, reward), pairs in groups.items():
        mine = [f for f in r.free if (f.task, f.start, f.trained_on) == (task.name, start, reward)]
        runs = _with_baselines(pairs, mine)
        shown = study(runs, budgets=r.budgets, apart=("model.path",))
        sampled = {_sampling(read_run(f.folder)) for f in mine if f.finished}
        apart = bool(sampled) and len(sampled | {_sampling(run) for run in runs}) > 1
        found.append(Frontier(task.name, start, reward, shown, apart))
    return found


def _sampling(run: Run) -> str:
    """How a run is evaluated, as text."""
    return repr((settings(run).get("evaluation") or {}).get("sampling"))


def _with_baselines(pairs: Sequence[tuple[Row, Run]], free: Sequence[Free]) -> list[Run]:
    """The runs, of which the first from the same weights has their baselines besides."""
    runs = [run for _, run in pairs]
    for f in free:
        if not f.finished:
            continue
        for i, (row, run) in enumerate(pairs):
            same = not f.start or run.seed == f.seed
            if same and f.reference in ("", row.reference):
                more = read_run(f.folder, run.agent).baselines
                runs[i] = replace(runs[i], baselines=(*runs[i].baselines, *more))
                break
    return runs


def chart(f: Frontier) -> dict[str, Any]:
    """As a Vega-Lite dict."""
    spec = charts.frontier(f.study, points.rows(f.study))
    text = f"Reward within a drift budget, {f.whose}"
    spec["title"] = {**spec["title"], "text": text}
    if f.sampled_apart and baselines.drawn(f.study):
        spec["title"]["subtitle"] = [*spec["title"]["subtitle"], APART]
    return spec


def without_training(f: Frontier) -> Part | None:
    """Reward of each baseline at its drift, mean over the sets of initial weights; None where none
    was measured."""
    rows = [*_best_of_n(f), *_oracle(f), *_interpolation(f)]
    if not rows:
        return None
    apart = f" {APART} There is no table of drift beyond the oracle." if f.sampled_apart else ""
    return Part(
        f"{f.task}: without training, {f.whose}",
        ["Baseline", "Setting", "Drift", "Reward"],
        rows,
        f"Reward and not score, on {_prompts(f)}; drift in nats per "
        "completion. Best-of-n at its KL bound; the oracle frontier at each budget within its "
        "range. Early stopping is every checkpoint of the chart, reset to the start its origin."
        f"{apart}",
    )


def _prompts(f: Frontier) -> str:
    """`64 validation prompts`; where baselines have other numbers of them, those of each."""
    drawn = [p for _, p in baselines.drawn(f.study)]
    by_kind: dict[str, dict[int, None]] = {}
    for p in drawn:
        by_kind.setdefault(p.baseline.replace("_", "-"), {})[p.prompts] = None
    counts = {k: " or ".join(map(str, sorted(v))) for k, v in by_kind.items()}
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} {drawn[0].split} prompts"
    each = ", ".join(f"{n} ({k})" for k, n in counts.items())
    return f"{drawn[0].split} prompts: {each}"


def _best_of_n(f: Frontier) -> list[list[str]]:
    by_n: dict[str, list[BaselinePoint]] = {}
    for curve in baselines.curves(f.study, "best_of_n"):
        for p in curve:
            by_n.setdefault(setting_of(p), []).append(p)
    return [_line("best-of-n", name, found, "≤ ") for name, found in by_n.items()]


def _line(kind: str, name: str, found: Sequence[BaselinePoint], bound: str = "") -> list[str]:
    drift, reward = (_mean([getattr(p, x) for p in found]) for x in ("drift", "reward"))
    return [kind, name, f"{bound}{drift:.2f}", f"{reward:.3f}"]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _oracle(f: Frontier) -> list[list[str]]:
    """At the budgets that every curve reaches."""
    curves = baselines.curves(f.study, "oracle")
    if not curves:
        return []
    reach = min(c[-1].drift for c in curves)
    return [
        ["oracle", f"within {nats(b)}", f"{b:.2f}", f"{_mean([_at(c, b) for c in curves]):.3f}"]
        for b in f.study.budgets
        if b <= reach
    ]


def _at(curve: Sequence[BaselinePoint], budget: float) -> float:
    """Reward at a drift within the curve: linear between its points, which are close together."""
    for a, b in itertools.pairwise(curve):
        if a.drift <= budget <= b.drift and b.drift > a.drift:
            share = (budget - a.drift) / (b.drift - a.drift)
            return a.reward + share * (b.reward - a.reward)
    return curve[0].reward if budget <= curve[0].drift else curve[-1].reward


def _interpolation(f: Frontier) -> list[list[str]]:
    """By method and share, mean over its seeds."""
    found: dict[tuple[str, str], list[BaselinePoint]] = {}
    for run, p in baselines.drawn(f.study):
        if p.baseline == "interpolation":
            found.setdefault((run.method, setting_of(p)), []).append(p)
    return [_line(f"interpolation, {m}", name, ps) for (m, name), ps in found.items()]


def waste(f: Frontier) -> Part | None:
    """Drift of each method beyond what the oracle needs for its reward; None without one oracle, or
    where it is of other completions than the rewards that would be looked up in it."""
    found = None if f.sampled_apart else baselines.waste(f.study)
    if found is None:
        return None
    head, rows = found
    title = f"{f.task}: drift beyond the oracle, {f.whose}"
    return Part(title, head, [[c.main for c in row] for row in rows])
