"""From a benchmark's folder to leaderboard.html, leaderboard.md, leaderboard.csv and scores.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any

from tether.analysis.comparisons import TESTED_AT_MOST
from tether.analysis.grue import FAMILIES, on_scale
from tether.analysis.intervals import SEEDS_FOR_INTERVAL
from tether.config.whole_file import write_whole
from tether.reports.grue import tables
from tether.reports.grue.comparing import comparisons
from tether.reports.grue.frontiers import Frontier, chart, frontiers, waste, without_training
from tether.reports.grue.results import (
    FINAL,
    RETRY,
    ZERO_SHOT,
    Results,
    Task,
    Weights,
    of_a_run,
    read,
)
from tether.reports.page import document
from tether.reports.parts import Part, html, markdown

COLUMNS = (
    *("task", "method", "start", "trained_on", "kl_reference", "seed", "weights", "policy"),
    *("update", "drift_nats_per_completion", "reward", "family", "metric", "value", "floor"),
    *("ceiling", "mapped"),
)
BOARD = (
    *("method", "start", "weights", "score", "score_low", "score_high", "naturalness"),
    *("naturalness_low", "naturalness_high", "interval_over", "seeds", "tasks"),
)

STYLE = "<style>h3{margin:28px 0 4px}</style>"
SAME = 1.1
"""Ratio up to which numbers of completions count as equal: groups are not cut."""


@dataclass(frozen=True)
class Written:
    """The files, and what they show."""

    results: Results
    html: Path
    markdown: Path
    leaderboard: Path
    scores: Path

    @property
    def paths(self) -> list[Path]:
        return [self.html, self.markdown, self.leaderboard, self.scores]


def write(folder: Path) -> Written:
    """Read the folder and write the four files into it, each whole or not at all.

    Raises UserError: the folder is no benchmark's, or no cell has finished.
    """
    r = read(folder)
    done = Written(
        r,
        folder / "leaderboard.html",
        folder / "leaderboard.md",
        folder / "leaderboard.csv",
        folder / "scores.csv",
    )
    write_whole(done.scores, _csv(COLUMNS, _scores(r)))
    write_whole(done.leaderboard, _csv(BOARD, _board(r)))
    drawn = {t.name: frontiers(r, t) for t in r.tasks}
    write_whole(done.markdown, _markdown(r, drawn))
    write_whole(done.html, _page(r, drawn))
    return done


def summary(r: Results) -> list[Part]:
    """What a terminal shows: the tables over all tasks."""
    return [
        tables.leaderboard(r, r.budget),
        tables.by_task(r, r.budget),
        *tables.matrix(r),
        *tables.references(r),
    ]


def notes(r: Results) -> list[str]:
    """What a reader has to know before the numbers."""
    found = []
    if r.mini:
        found.append(
            "A miniature: few examples, generated where --data gave none, and a model of a million "
            "parameters show that the benchmark works; the numbers mean nothing."
        )
    if r.missing:
        found.append(
            f"{len(r.missing)} of {r.cells} cells are not finished: {', '.join(r.missing[:6])}"
            f"{', ...' if len(r.missing) > 6 else ''}; rows without all tasks have no aggregate."
        )
    found += [f"{name} counts as unfinished: {why}." for name, why in r.damaged.items()]
    if waiting := [f.name for f in r.free if not f.finished]:
        found.append(f"Baselines that are not finished: {', '.join(waiting)}.")
    found += _unscored(r)
    found += _unequal(r)
    found += _identical(r)
    for name, why in r.failures.items():
        found.append(f"{name} failed: {why}")
    if any(map(of_a_run, r.failures.values())):
        found.append(f"The same `tether grue run{RETRY}.")
    if len(r.seeds) < SEEDS_FOR_INTERVAL:
        found.append(
            f"{len(r.seeds)} seed{'' if len(r.seeds) == 1 else 's'}: intervals are over examples "
            f"only, and nothing is decided. Intervals over seeds come from {SEEDS_FOR_INTERVAL} on."
        )
    if len(r.seeds) > TESTED_AT_MOST:
        found.append(
            f"{len(r.seeds)} seeds: there are no comparisons, since the sign-flip test is exact up "
            f"to {TESTED_AT_MOST} only."
        )
    return found


def _unscored(r: Results) -> list[str]:
    """Scores that are not there because a metric that counts was not measured."""
    found = []
    for task in r.tasks:
        final = [(x.label, w) for x in r.rows for w in r.weights(task, x, None)]
        for a in task.anchors:
            if not any(a.counts(f) for f in FAMILIES):
                continue
            without = dict.fromkeys(x for x, w in final if a.metric not in w.measured.values)
            if a.is_perplexity and task.perplexity is None:
                why = "has none: evaluation.human_rows is 0"
                if ZERO_SHOT not in task.cells:
                    why = "is not finished"
                found.append(
                    f"{task.name}: no {a.family} score: {a.metric} is told as a share of "
                    f"{ZERO_SHOT}'s, which {why}."
                )
            elif without:
                found.append(
                    f"{task.name}: no {a.family} score of {', '.join(without)}: {a.metric} is not "
                    "measured."
                )
    return found


def _unequal(r: Results) -> list[str]:
    """Tasks whose methods were trained at different times on different numbers of completions."""
    found = []
    for task, by_row in r.completions.items():
        counts = {x.label: by_row[x.label] for x in r.rows if x.tuned and x.label in by_row}
        if counts and max(counts.values()) > SAME * min(counts.values()):
            each = ", ".join(f"{k} {v}" for k, v in counts.items())
            found.append(f"{task}: not at equal samples (completions: {each}).")
    return found


def _identical(r: Results) -> list[str]:
    """Methods whose final weights differ in no digit, though they were trained: chance alone would
    set them apart, so that what is another setting in one of them had no effect."""
    found = []
    for task in r.tasks:
        for a, b in combinations([x.label for x in r.rows if x.tuned], 2):
            one, two = task.cells.get(a, {}), task.cells.get(b, {})
            both = sorted(one.keys() & two.keys())
            if same := [s for s in both if _moved_alike(one[s].at(FINAL), two[s].at(FINAL))]:
                seeds = f"seed{'s' * (len(same) > 1)} {', '.join(map(str, same))}"
                found.append(
                    f"{task.name}: {a} and {b} are equal to the last digit ({seeds}): what sets "
                    "them apart had no effect."
                )
    return found


def _moved_alike(one: Weights | None, two: Weights | None) -> bool:
    if one is None or two is None or not one.drift:
        return False
    first, second = (
        (w.update, w.drift, w.reward, w.perplexity, w.measured.values) for w in (one, two)
    )
    return first == second


def _tables(r: Results) -> list[Part]:
    compared = comparisons(r)
    return [
        tables.leaderboard(r, r.budget),
        tables.leaderboard(r, None),
        tables.by_task(r, r.budget),
        *([compared] if compared is not None else []),
        *tables.matrix(r),
        *tables.references(r),
    ]


def _of_task(r: Results, task: Task, drawn: Sequence[Frontier]) -> list[Part]:
    free = [p for f in drawn for p in (without_training(f), waste(f)) if p is not None]
    return [*tables.of_task(r, task), *free]


def _markdown(r: Results, drawn: Mapping[str, Sequence[Frontier]]) -> str:
    parts = [*_tables(r), *(p for t in r.tasks for p in _of_task(r, t, drawn[t.name]))]
    head = ["# GRUE", *notes(r), *(f"- {x}" for x in _stamps(r))]
    return "\n\n".join([*head, *map(markdown, parts)]) + "\n"


def _page(r: Results, drawn: Mapping[str, Sequence[Frontier]]) -> str:
    charts: dict[str, dict[str, Any]] = {}
    body = [STYLE, *(f"<p class='note'>{escape(n)}</p>" for n in notes(r))]
    body += [html(p) for p in _tables(r)]
    for task in r.tasks:
        body.append(f"<h2>{escape(task.name)}</h2>")
        for number, frontier in enumerate(drawn[task.name]):
            where = f"frontier-{task.name}-{number}"
            charts[where] = chart(frontier)
            body.append(f"<figure><div id='{escape(where)}'></div></figure>")
        body += [html(p) for p in _of_task(r, task, drawn[task.name])]
    items = "".join(f"<li>{escape(x)}</li>" for x in _stamps(r))
    body.append(f"<h2>Anchors</h2><ul>{items}</ul>")
    return document("GRUE", "\n".join(body), charts)


def _stamps(r: Results) -> list[str]:
    return [f"{t.name}: anchors {t.sha256[:16]}, {t.examples} examples" for t in r.tasks]


def _scores(r: Results) -> list[list[Any]]:
    out: list[list[Any]] = []
    for task in r.tasks:
        ends = {a.metric: a for a in task.anchors}
        for row in r.rows:
            for seed, cell in task.cells.get(row.label, {}).items():
                for w in cell.weights:
                    scaled = on_scale(task.anchors, w.measured.values, task.perplexity)
                    about = [
                        *(task.name, row.method, row.start, row.trained_on, row.reference, seed),
                        *(" ".join(w.names), w.policy, w.update, w.drift, w.reward),
                    ]
                    for name, value in w.measured.values.items():
                        a = ends[name]
                        more = [a.family, name, value, a.floor, a.ceiling, scaled.get(name)]
                        out.append([*about, *more])
                        for part, number in w.parts.get(name, {}).items():
                            out.append([*about, "part", f"{name}: {part}", number, *[None] * 3])
    return out


def _board(r: Results) -> list[list[Any]]:
    out: list[list[Any]] = []
    for row in r.rows:
        for budget in (r.budget, None):
            task, natural = (r.aggregate(row, f, budget) for f in FAMILIES)
            ends = [
                x for s in (task, natural) for x in ((s.mean, s.low, s.high) if s else [None] * 3)
            ]
            over = task.over if task else ""
            name = r.names(row, budget)
            line = [row.label, row.start, name, *ends, over, r.runs(row), len(r.tasks)]
            if line not in out:
                out.append(line)
    return out


def _csv(columns: tuple[str, ...], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
