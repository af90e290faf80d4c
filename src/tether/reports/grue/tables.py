"""The tables of the benchmark, once for terminal, page and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tether.analysis.grue import FAMILIES, Score
from tether.analysis.intervals import SEEDS_FOR_INTERVAL
from tether.reports.grue.results import ZERO_SHOT, Results, Row, Task
from tether.reports.parts import Part

NONE = "-"


def leaderboard(r: Results, budget: float | None) -> Part:
    """Aggregates, best first; drift and completions beside them."""
    where = "final weights" if budget is None else f"best weights within {nats(budget)}"
    found = []
    for row in r.rows:
        task, natural = (r.aggregate(row, f, budget) for f in FAMILIES)
        cells = [row.label, shown(task), shown(natural), _drift(r, row, budget), _samples(r, row)]
        found.append((task.mean if task else -math.inf, cells))
    found.sort(key=lambda x: -x[0])
    return Part(
        f"Leaderboard, {where}",
        ["Method", "Score", "Naturalness", "Drift", "Completions"],
        [cells for _, cells in found],
        _about(r, budget),
    )


def by_task(r: Results, budget: float | None) -> Part:
    """Task score / naturalness score of every row on every task; the fewer of the two are the
    columns."""
    where = "final weights" if budget is None else f"within {nats(budget)}"
    title = f"Task score / naturalness score, {where}"
    note = _fewer(r, r.tasks).strip()
    if len(r.tasks) < len(r.rows):
        rows = [[x.label, *(_both(r, t, x, budget) for t in r.tasks)] for x in r.rows]
        return Part(title, ["Method", *(t.name for t in r.tasks)], rows, note)
    rows = [[t.name, *(_both(r, t, x, budget) for x in r.rows)] for t in r.tasks]
    return Part(title, ["Task", *(x.label for x in r.rows)], rows, note)


def _both(r: Results, task: Task, row: Row, budget: float | None) -> str:
    pair = [r.score(task, row, f, budget) for f in FAMILIES]
    return " / ".join(NONE if s is None else f"{s.mean:.3f}" for s in pair)


def of_task(r: Results, task: Task) -> list[Part]:
    """Scores with intervals and every seed's value, scores at each budget, raw metrics."""
    rows = []
    for row in r.rows:
        for budget in [r.budget, None] if row.tuned else [None]:
            scores = [r.score(task, row, f, budget) for f in FAMILIES]
            name = "final" if budget is None else f"within {nats(budget)}"
            told = [shown(s, r.runs(row)) for s in scores]
            rows.append([row.label, name, *told, _drift(r, row, budget, task)])
    found = [
        Part(
            f"{task.name}: scores",
            ["Method", "Weights", "Task score", "Naturalness", "Drift"],
            rows,
            f"{task.examples} test examples. {_interval(r)}{_fewer(r, [task])}",
        )
    ]
    tuned = [row for row in r.rows if row.tuned]
    if tuned:
        found.append(_budgets(r, task, tuned))
    return [*found, _metrics(r, task)]


def _budgets(r: Results, task: Task, tuned: Sequence[Row]) -> Part:
    rows = []
    for row in tuned:
        scores = [r.score(task, row, "task", b) for b in r.budgets]
        values = [NONE if s is None else f"{s.mean:.3f}" for s in scores]
        rows.append([row.label, row.start or "raw", *values])
    return Part(
        f"{task.name}: task score at equal KL budgets",
        ["Method", "Start", *map(nats, r.budgets)],
        rows,
        "Best weights by validation reward within the budget, nats per completion from where the "
        f"method starts: compare methods of one start.{_fewer(r, [task])}",
    )


def _metrics(r: Results, task: Task) -> Part:
    """Raw values of the final weights, mean over seeds, and the anchors."""
    rows = []
    for a in task.anchors:
        if a.dropped and not _known(r, task, a.metric):
            continue
        ends = [NONE if x is None else f"{x:.3f}" for x in (a.floor, a.ceiling)]
        if a.is_perplexity and task.perplexity:
            ends = [NONE, f"{task.perplexity:.3f}"]
        rows.append(
            [
                f"{a.metric} ({'left out' if a.dropped else a.family})",
                *ends,
                *(_mean(r, task, x, a.metric) for x in r.rows),
            ]
        )
        rows += _parts(r, task, a.metric)
    left_out = "; ".join(f"{a.metric}: {a.dropped}" for a in task.anchors if a.dropped)
    note = "Final weights. Floor: the better of empty output and copied prompt. Ceiling: "
    note += ", ".join(dict.fromkeys(a.ceiling_is for a in task.anchors if a.ceiling_is)) + "."
    if left_out:
        note += f" Left out: {left_out}."
    note += _fewer(r, [task])
    head = ["Metric", "Floor", "Ceiling", *(x.label for x in r.rows)]
    return Part(f"{task.name}: metrics", head, rows, note)


def _parts(r: Results, task: Task, metric: str) -> list[list[str]]:
    """A row for each further value of a metric."""
    of_row = {x.label: [w.parts.get(metric, {}) for w in r.weights(task, x, None)] for x in r.rows}
    names = dict.fromkeys(name for found in of_row.values() for f in found for name in f)
    return [
        [f"{metric}: {name.replace('_', ' ')}", NONE, NONE,
         *(_told([f.get(name) for f in of_row[x.label]]) for x in r.rows)]
        for name in names
    ]  # fmt: skip


def _known(r: Results, task: Task, metric: str) -> bool:
    """Whether a row has a value of it."""
    return any(metric in w.measured.values for x in r.rows for w in r.weights(task, x, None))


def _mean(r: Results, task: Task, row: Row, metric: str) -> str:
    return _told([w.measured.values.get(metric) for w in r.weights(task, row, None)])


def _told(found: Sequence[float | None]) -> str:
    """Mean over the seeds that have a value."""
    values = [v for v in found if v is not None]
    return f"{math.fsum(values) / len(values):.3f}" if values else NONE


def matrix(r: Results) -> list[Part]:
    """What training on each metric alone did to all of them: one table a task, method and KL
    reference."""
    found = []
    for task in r.tasks:
        metrics = [a.metric for a in task.anchors if not a.dropped]
        groups = dict.fromkeys((x.method, x.reference) for x in r.rows if x.trained_on)
        for method, reference in groups:
            same = [x for x in r.rows if (x.method, x.reference) == (method, reference)]
            start = next((x for x in r.rows if x.label == (same[0].start or ZERO_SHOT)), None)
            rows = [[x.trained_on, *(_mean(r, task, x, m) for m in metrics)] for x in same]
            if start is not None:
                first = [_mean(r, task, start, m) for m in metrics]
                rows.insert(0, [f"none ({start.label})", *first])
            held = f", KL to {reference}" if reference else ""
            found.append(
                Part(
                    f"{task.name}: reward by metric, {method}{held}",
                    ["Trained on", *metrics],
                    rows,
                    f"Final weights, raw values, mean over seeds.{_fewer(r, [task])}",
                )
            )
    return found


def references(r: Results) -> list[Part]:
    """Start by KL reference: one table a task, recipe and reward."""
    held = [x for x in r.rows if x.reference]
    columns = list(dict.fromkeys(x.reference for x in held))
    groups = dict.fromkeys((_last(x), x.trained_on) for x in held)
    found = []
    for task in r.tasks:
        for last, reward in groups:
            same = [x for x in held if (_last(x), x.trained_on) == (last, reward)]
            rows = []
            for start in dict.fromkeys(x.start for x in same):
                by_reference = {x.reference: x for x in same if x.start == start}
                cells = [_both(r, task, by_reference[c], None) for c in columns]
                rows.append([start or "raw", *cells])
            trained = f", reward {reward}" if reward else ""
            found.append(
                Part(
                    f"{task.name}: start by KL reference, {last}{trained}",
                    ["Start", *(f"KL to {c}" for c in columns)],
                    rows,
                    "Task score / naturalness score of the final weights (GRUE, section 5.2)."
                    f"{_fewer(r, [task])}",
                )
            )
    return found


def _last(row: Row) -> str:
    return row.method.rpartition("+")[2]


def shown(score: Score | None, runs: int | None = None) -> str:
    """Mean, interval, and below 5 seeds every seed's value.

    runs: how many seeds there are of others; where this one has fewer, the text says so, and what
    its interval is over.
    """
    if score is None:
        return NONE
    text, n = f"{score.mean:.3f}", len(score.seeds)
    if score.low is not None and score.high is not None:
        text += f" [{score.low:.3f}, {score.high:.3f}]"
    if runs is not None and n < runs:
        text += f" over {'examples, ' * (score.over == 'examples')}{n} of {runs} seeds"
    if 1 < n < SEEDS_FOR_INTERVAL:
        text += f" ({', '.join(f'{v:.3f}' for v in score.seeds)})"
    return text


def _fewer(r: Results, tasks: Sequence[Task]) -> str:
    """Which seeds rows have whose means are over fewer than others', as a sentence behind others;
    empty where all have all."""
    found = [
        f"{row.label} on {t.name} {', '.join(map(str, there))}"
        for t in tasks
        for row in r.rows
        if 0 < len(there := r.by_seeds(t, row, None)) < r.runs(row)
    ]
    return f" Not all seeds: {'; '.join(found)}." if found else ""


def nats(budget: float) -> str:
    """`1 nat`, `4 nats`."""
    return f"{budget:g} nat{'' if budget == 1 else 's'}"


def _drift(r: Results, row: Row, budget: float | None, task: Task | None = None) -> str:
    tasks = r.tasks if task is None else (task,)
    found = [w.drift for t in tasks for w in r.weights(t, row, budget) if w.drift is not None]
    return f"{math.fsum(found) / len(found):.2f}" if found else NONE


def _samples(r: Results, row: Row) -> str:
    counts = sorted({by_row[row.label] for by_row in r.completions.values() if row.label in by_row})
    return (
        NONE if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    )


def seeds_said(r: Results) -> str:
    return f"{len(r.seeds)} seed{'' if len(r.seeds) == 1 else 's'}"


def _interval(r: Results) -> str:
    if len(r.seeds) >= SEEDS_FOR_INTERVAL:
        return (
            f"Brackets: 95 % t-interval over {len(r.seeds)} seeds; of {ZERO_SHOT}, which is one "
            "run without a seed, over examples only."
        )
    each = "" if len(r.seeds) == 1 else ", parentheses: every seed's value"
    return f"Brackets: 95 % over examples only, not over seeds ({seeds_said(r)}){each}."


def _about(r: Results, budget: float | None) -> str:
    chosen = (
        "Methods that train on a reward stand with their best validation weights within "
        f"{nats(budget)} of where they start; the others with their final ones. "
        if budget is not None
        else ""
    )
    return (
        "Score: mean over the tasks of the task score (0 = the better of empty output and copied "
        f"prompt, 1 = people or the metric's maximum). {chosen}{_interval(r)}{_last_stage(r)}"
    )


def _last_stage(r: Results) -> str:
    """What the column Completions leaves out, where a row starts from another."""
    said = " Completions are those of the last stage: a start's own training is not in them."
    return said if any(x.start for x in r.rows) else ""
