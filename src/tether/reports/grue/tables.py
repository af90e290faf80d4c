"""The tables of the benchmark, once for terminal, page and Markdown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from tether.analysis.comparisons import (
    SEEDS_FOR_VERDICT,
    TESTED_AT_MOST,
    Comparison,
    compare_all,
    holm,
)
from tether.analysis.comparisons import sign_flip_p as exact_p
from tether.analysis.grue import FAMILIES, Score, difference
from tether.analysis.intervals import SEEDS_FOR_INTERVAL, differences, t_interval
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
    if len(r.tasks) < len(r.rows):
        rows = [[x.label, *(_both(r, t, x, budget) for t in r.tasks)] for x in r.rows]
        return Part(title, ["Method", *(t.name for t in r.tasks)], rows)
    rows = [[t.name, *(_both(r, t, x, budget) for x in r.rows)] for t in r.tasks]
    return Part(title, ["Task", *(x.label for x in r.rows)], rows)


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
            rows.append([row.label, name, *map(shown, scores), _drift(r, row, budget, task)])
    found = [
        Part(
            f"{task.name}: scores",
            ["Method", "Weights", "Task score", "Naturalness", "Drift"],
            rows,
            f"{task.examples} test examples. {_interval(r)}",
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
        "method starts: compare methods of one start.",
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
                    "Final weights, raw values, mean over seeds.",
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
                    "Task score / naturalness score of the final weights (GRUE, section 5.2).",
                )
            )
    return found


def _last(row: Row) -> str:
    return row.method.rpartition("+")[2]


def comparisons(r: Results) -> Part | None:
    """Declared pairs with verdicts from 6 seeds; else the pairs of one start, exploratory. Below 5
    seeds intervals over examples, and no test; above 20 nothing, which the notes say."""
    pairs = list(r.primary) or _pairs(r)
    if not pairs:
        return None
    if len(r.seeds) < SEEDS_FOR_INTERVAL:
        return _over_examples(r, pairs)
    if len(r.seeds) > TESTED_AT_MOST:
        return None
    paired = {}
    for a, b in pairs:
        first, second = r.by_seed(a), r.by_seed(b)
        if first is not None and second is not None:
            paired[f"{a} - {b}"] = (first, second)
    if r.primary:
        return _declared(r, paired)
    return _exploratory(r, paired) if paired else None


def _pairs(r: Results) -> list[tuple[str, str]]:
    tuned = [x for x in r.rows if x.tuned]
    return [
        (b.label, a.label)
        for a, b in itertools.combinations(tuned, 2)
        if (a.start, a.trained_on, a.reference) == (b.start, b.trained_on, b.reference)
    ]


Paired = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def _declared(r: Results, paired: Paired) -> Part:
    names = [f"{a} - {b}" for a, b in r.primary]
    found = compare_all(paired, r.margin, declared=len(names))
    rows = []
    for name in names:
        if name not in found:
            rows.append([name, *[NONE] * 4, "none: not finished"])
            continue
        c = found[name]
        interval = f"[{c.low:.3f}, {c.high:.3f}]"
        rows.append(
            [name, f"{c.difference:+.3f}", interval, f"{c.p:.3g}", f"{c.p_holm:.3g}", _verdict(c)]
        )
    return Part(
        f"Primary comparisons, aggregate score within {nats(r.budget)}",
        ["Pair", "Difference", "95 % over seeds", "p", "p (Holm)", "Verdict"],
        rows,
        f"Declared before the runs; paired by seed, t-interval, exact sign-flip test, margin "
        f"{r.margin:g}, Holm over all {len(names)} that were declared. Verdicts from "
        f"{SEEDS_FOR_VERDICT} seeds on.",
    )


def _verdict(c: Comparison) -> str:
    if c.verdict is None:
        return "none"
    return (
        f"undecided (80 % power from {c.detectable:.3f})" if c.verdict == "undecided" else c.verdict
    )


def _exploratory(r: Results, paired: Paired) -> Part:
    deltas = {name: differences(a, b) for name, (a, b) in paired.items()}
    p = {name: exact_p(d) for name, d in deltas.items()}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    rows = []
    for name, d in deltas.items():
        low, high = t_interval(d)
        mean = math.fsum(d) / len(d)
        interval = f"[{low:.3f}, {high:.3f}]"
        rows.append([name, f"{mean:+.3f}", interval, f"{p[name]:.3g}", f"{adjusted[name]:.3g}"])
    return Part(
        f"Exploratory comparisons, aggregate score within {nats(r.budget)}",
        ["Pair", "Difference", "95 % over seeds", "p", "p (Holm)"],
        rows,
        "No comparison was declared before the runs, so there is no verdict. Pairs of one start; "
        "paired by seed, t-interval, exact sign-flip test, Holm over this table.",
    )


def _over_examples(r: Results, pairs: Sequence[tuple[str, str]]) -> Part:
    rows = []
    for a, b in pairs:
        for task in r.tasks:
            first, second = (r.score(task, r.row(x), "task", r.budget) for x in (a, b))
            if first is None or second is None:
                if r.primary:
                    rows.append([f"{a} - {b}", task.name, NONE, NONE])
                continue
            found = difference(first, second)
            interval = NONE if found is None else f"[{found[1]:.3f}, {found[2]:.3f}]"
            rows.append([f"{a} - {b}", task.name, f"{first.mean - second.mean:+.3f}", interval])
    return Part(
        f"Differences of task scores within {nats(r.budget)}, over examples only",
        ["Pair", "Task", "Difference", "95 % over examples"],
        rows,
        f"{_seeds(r)}: the intervals say how far other examples would move the difference, not how "
        "far another seed would. No verdict.",
    )


def shown(score: Score | None) -> str:
    """Mean, interval, and below 5 seeds every seed's value."""
    if score is None:
        return NONE
    text = f"{score.mean:.3f}"
    if score.low is not None and score.high is not None:
        text += f" [{score.low:.3f}, {score.high:.3f}]"
    if 1 < len(score.seeds) < SEEDS_FOR_INTERVAL:
        text += f" ({', '.join(f'{v:.3f}' for v in score.seeds)})"
    return text


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


def _seeds(r: Results) -> str:
    return f"{len(r.seeds)} seed{'' if len(r.seeds) == 1 else 's'}"


def _interval(r: Results) -> str:
    if len(r.seeds) >= SEEDS_FOR_INTERVAL:
        return (
            f"Brackets: 95 % t-interval over {len(r.seeds)} seeds; of {ZERO_SHOT}, which is one "
            "run without a seed, over examples only."
        )
    each = "" if len(r.seeds) == 1 else ", parentheses: every seed's value"
    return f"Brackets: 95 % over examples only, not over seeds ({_seeds(r)}){each}."


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
