"""The GRUE paper's printed human ratings beside its claims, as tables."""

from __future__ import annotations

from tether.analysis import published_ratings as paper
from tether.reports.parts import Part


def parts() -> list[Part]:
    """Ratings, claims, averages, and what Tukey's test could have shown."""
    return [_means(), _claims(), _average(), _table_10(), _smallest()]


def _means() -> Part:
    rows = [
        [f"{task}: {method}", f"{a:.2f}", f"{b:.2f}", str(paper.RATINGS[task])]
        for task, means in paper.MEANS.items()
        for method, (a, b) in means.items()
    ]
    return Part(f"Mean human ratings, 1 to 5 ({paper.SOURCE})", ["", *paper.AXES, "ratings"], rows)


def _claims() -> Part:
    axes = {2: "both axes", 1: "one axis", 0: "no axis"}
    rows = [
        [
            c.claim,
            c.task,
            "yes" if c.claimed else "no",
            *(f"{d:+.2f}" for d in c.differences),
            axes[c.higher_on],
            "yes" if c.borne_out else "NO",
        ]
        for c in paper.claims()
    ]
    wrong = sum(not c.borne_out for c in paper.claims())
    return Part(
        f"Claims about people: {len(rows) - wrong} of {len(rows)} are borne out by the printed "
        "means",
        ["Claim", "Task", "Claimed", *paper.AXES, "Higher on", "Borne out"],
        rows,
        "Borne out: claimed and higher on both axes, or denied and not higher on both. Of several "
        "methods the best on each axis is taken.",
    )


def _average() -> Part:
    rows = [
        [m, f"{a:.2f}", f"{b:.2f}"]
        for m, (a, b) in paper.average_over_tasks(["PPO", "NLPO"]).items()
    ]
    return Part("Average of the five tasks", ["Method", *paper.AXES], rows)


def _table_10() -> Part:
    said = (
        "could be" if paper.tukey_in_order() else "cannot both be"
    ) + " of one Tukey test with equal numbers of ratings: there p falls with the difference."
    rows = [[f"{d:.3f}", f"{p:g}"] for d, p in paper.TABLE_10]
    return Part("Table 10, two lines", ["Difference of means", "p (printed)"], rows, f"They {said}")


def _smallest() -> Part:
    rows = [
        [s.task, s.axis, str(s.pairs), str(s.cannot), f"{s.threshold:.2f}" if s.cannot else "-"]
        for s in paper.smallest()
    ]
    return Part(
        "Pairs of methods that no ratings with the printed means could tell apart (Tukey p >= .05)",
        ["Task", "Axis", "Pairs", "Not to be told apart", "Differences up to"],
        rows,
        "Whole ratings with mean m have at least the variance f (1 - f), f = m - floor(m); the "
        "real variance was larger, so these are lower bounds.",
    )
