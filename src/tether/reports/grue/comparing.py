"""The benchmark's comparisons: declared ones with verdicts, else what the seeds allow."""

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
from tether.analysis.grue import difference
from tether.analysis.intervals import SEEDS_FOR_INTERVAL, differences, t_interval
from tether.analysis.power import too_few
from tether.reports.grue.results import Results
from tether.reports.grue.tables import NONE, nats, seeds_said
from tether.reports.parts import Part


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
    note = (
        f"Declared before the runs; paired by seed, t-interval, exact sign-flip test, margin "
        f"{r.margin:g}, Holm over all {len(names)} that were declared. Verdicts from "
        f"{SEEDS_FOR_VERDICT} seeds on."
    )
    if why := too_few(len(r.seeds), len(names)):
        note += f" {why}."
    elif any(c.verdict == "undecided" for c in found.values()):
        note += (
            " 80 % power: the true difference that these tests find with that chance, at the "
            "spread over seeds that was found, while the other comparisons show nothing."
        )
    return Part(
        f"Primary comparisons, aggregate score within {nats(r.budget)}",
        ["Pair", "Difference", "95 % over seeds", "p", "p (Holm)", "Verdict"],
        rows,
        note,
    )


def _verdict(c: Comparison) -> str:
    if c.verdict is None:
        return "none"
    if c.verdict != "undecided":
        return c.verdict
    if c.detectable is None:
        return "undecided (too few seeds for better or worse)"
    return f"undecided (80 % power from {c.detectable:.3f})"


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
            seeds, first, second = r.paired(task, a, b)
            if first is None or second is None:
                if r.primary:
                    rows.append([f"{a} - {b}", task.name, *[NONE] * 3])
                continue
            found = difference(first, second)
            interval = NONE if found is None else f"[{found[1]:.3f}, {found[2]:.3f}]"
            here = ", ".join(map(str, seeds))
            value = f"{first.mean - second.mean:+.3f}"
            rows.append([f"{a} - {b}", task.name, here, value, interval])
    return Part(
        f"Differences of task scores within {nats(r.budget)}, over examples only",
        ["Pair", "Task", "Seeds", "Difference", "95 % over examples"],
        rows,
        f"{seeds_said(r)}: the intervals say how far other examples would move the difference, not "
        "how far another seed would. A pair is compared on the seeds that both have. No verdict.",
    )
