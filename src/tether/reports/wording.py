"""Numbers and sentences as the reports print them."""

from __future__ import annotations

from tether.analysis.comparisons import (
    SEEDS_FOR_VERDICT,
    TESTED_AT_MOST,
    Comparison,
    compare_all,
)
from tether.analysis.intervals import SEEDS_FOR_INTERVAL, Summary
from tether.analysis.power import too_few
from tether.config.errors import UserError
from tether.reports.methods import Study


def mean(summary: Summary, digits: int = 3) -> str:
    """`.712`, with its 95 % interval from 5 seeds on."""
    text = f"{summary.mean:.{digits}f}"
    if summary.low is None or summary.high is None:
        return text
    return f"{text} [{summary.low:.{digits}f}, {summary.high:.{digits}f}]"


def each(summary: Summary, digits: int = 3) -> str:
    """Every seed's value."""
    return " ".join(f"{v:.{digits}f}" for v in summary.values)


def verdicts(study: Study) -> dict[tuple[str, str], Comparison]:
    """The declared primary comparisons, at the primary budget, over the seeds both have.

    Raises:
        UserError: when a declared method is not among the runs.
    """
    by_name = {m.name: m for m in study.methods}
    pairs = {}
    for a, b in study.plan.primary:
        for name in (a, b):
            if name not in by_name:
                raise UserError(
                    f"the study declared a comparison of '{name}', but its runs are: "
                    f"{', '.join(by_name)}"
                )
        first = {s.seed: s.reward_at(study.primary_budget) for s in by_name[a].seeds}
        second = {s.seed: s.reward_at(study.primary_budget) for s in by_name[b].seeds}
        shared = sorted(first.keys() & second.keys())
        if 2 <= len(shared) <= TESTED_AT_MOST:
            pairs[f"{a}\0{b}"] = ([first[s] for s in shared], [second[s] for s in shared])
    declared = len(study.plan.primary)
    found = compare_all(pairs, study.plan.margin, declared=declared) if pairs else {}
    return {(k.split("\0")[0], k.split("\0")[1]): c for k, c in found.items()}


def conclusion(study: Study) -> str:
    """One sentence: what was reached at the primary budget, and whether that decides anything.

    Only comparisons that were declared before the runs get a verdict, and only from 6 seeds on.
    """
    budget = study.primary_budget
    ranked = sorted((m for m in study.methods if m.seeds), key=lambda m: -m.reward_at(budget).mean)
    reached = _list([f"{m.name} {m.reward_at(budget).mean:.3f}" for m in ranked])
    start = [s.initial for m in ranked for s in m.seeds]
    counts = sorted({len(m.seeds) for m in ranked})
    seeds = f"{counts[0]} seed{'s' if counts[0] > 1 else ''}"
    if len(counts) > 1:
        seeds = f"{counts[0]} to {counts[-1]} seeds"
    said = (
        f"Within {budget:g} nats of drift per completion the mean {study.split} reward was "
        f"{reached} (initial model {sum(start) / len(start):.3f}; {seeds})"
    )
    return f"{said}: {_decided(study, len(ranked), counts[0], seeds)}."


def _decided(study: Study, methods: int, fewest: int, seeds: str) -> str:
    if methods < 2:
        return "one method alone, nothing is compared"
    if fewest < SEEDS_FOR_VERDICT:
        verb = "carries" if seeds == "1 seed" else "carry"
        return f"{seeds} {verb} no verdict"
    if not study.plan.primary:
        return "no comparison was declared before the runs, so there is no verdict"
    if len(study.seeds) > TESTED_AT_MOST:
        return (
            f"no verdict on more than {TESTED_AT_MOST} seeds, up to which the sign-flip test is "
            "exact"
        )
    found = verdicts(study)
    declared = study.plan.primary
    return _list([_verdict(a, b, found.get((a, b)), len(declared)) for a, b in declared])


def _verdict(a: str, b: str, c: Comparison | None, declared: int) -> str:
    if c is None or c.verdict is None:
        seeds = "fewer than 2" if c is None else c.seeds
        return f"{a} against {b} has no verdict ({seeds} seeds that both have)"
    if c.verdict == "equivalent":
        return f"{a} and {b} are equivalent"
    if c.verdict == "undecided":
        why = too_few(c.seeds, declared)
        if c.detectable is not None:
            why = f"80 % power only for {c.detectable:.3f} and more"
        return f"{a} against {b} is undecided ({why})"
    return f"{a} is {c.verdict} than {b}"


def interval_note(study: Study) -> str:
    """Why there are (no) intervals."""
    fewest = min(len(m.seeds) for m in study.methods if m.seeds)
    if fewest >= SEEDS_FOR_INTERVAL:
        return "Brackets: 95 % t-interval of the mean over seeds. Small: every seed's value."
    return (
        f"Small: every seed's value. Intervals are given from {SEEDS_FOR_INTERVAL} seeds on, "
        f"verdicts from {SEEDS_FOR_VERDICT}."
    )


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
