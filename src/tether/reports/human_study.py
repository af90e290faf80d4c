"""A human study as tables: the terminal and the page print the same."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from tether.analysis.human_study import ChoiceResult, RatingResult
from tether.analysis.preferences import win_probability
from tether.analysis.rank_agreement import RankAgreement
from tether.reports.parts import Part, html
from tether.reports.style import CSS

ORDINARY = "Takes every rating as independent, which ratings of one text or one person are not."
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class SheetLine:
    """A returned form and its attention checks."""

    form: str
    rater: str
    failed: int
    checks: int
    excluded: bool
    open: int
    """Answers that are missing."""
    seconds: float | None
    """Median time in view of a text or pair."""


@dataclass(frozen=True)
class HumanStudy:
    """What `tether human-study analyse` found."""

    task: str
    study: str
    rule: str
    """Which forms are excluded; stated when the study was prepared."""
    sheets: tuple[SheetLine, ...]
    forms: int
    """Forms that the study has."""
    axes: tuple[RatingResult | ChoiceResult, ...]
    notes: tuple[str, ...]


def summary(study: HumanStudy) -> str:
    """One sentence: who rated what, and what is left of it."""
    used = [s for s in study.sheets if not s.excluded]
    raters = len({s.rater for s in used})
    counts = " and ".join(f"{_count(axis)} on {axis.axis}" for axis in study.axes)
    return (
        f"{len(study.sheets)} forms came back of {study.forms}, {len(study.sheets) - len(used)} "
        f"excluded; {raters} rater{'s' if raters != 1 else ''} gave {counts}."
    )


def parts(study: HumanStudy) -> list[Part]:
    """All tables, axis by axis, then the forms."""
    found: list[Part] = []
    for axis in study.axes:
        found += _ratings(axis) if isinstance(axis, RatingResult) else _choices(axis)
    return [*found, _sheets(study)]


def section(study: HumanStudy) -> str:
    """HTML for a page of its own or a part of another; every text is escaped."""
    title = f"Human study: {study.task}" if study.task else "Human study"
    out = [f"<section class='human-study'><h2>{escape(title)}</h2>"]
    out.append(f"<p>{escape(summary(study))}</p><p class='sub'>{escape(study.rule)}</p>")
    notes = [*study.notes, *(f"{a.axis}: {n}" for a in study.axes for n in a.notes)]
    out += [f"<p class='note'>{escape(n)}</p>" for n in notes]
    out += [html(part) for part in parts(study)]
    return "\n".join([*out, "</section>"])


def page(study: HumanStudy) -> str:
    """A self-contained page without a script."""
    title = escape(f"Human study: {study.task}" if study.task else "Human study")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title} - tether</title><style>{CSS}h3{{margin:28px 0 4px}}</style></head>"
        f"<body><main>\n{section(study)}\n</main></body></html>\n"
    )


def _ratings(axis: RatingResult) -> list[Part]:
    name = axis.axis
    mixed = {m.method: m for m in axis.mixed.means} if axis.mixed else {}
    means = [
        [
            m.method, str(m.ratings), str(m.texts), f"{m.mean:.2f}", number(m.sd, 2),
            interval(mixed[m.method].low, mixed[m.method].high, 2) if m.method in mixed else "-",
        ]
        for m in axis.means
    ]  # fmt: skip
    found = [
        Part(
            f"{name}: mean rating",
            ["Method", "Ratings", "Texts", "Mean", "s.d.", "95 % (mixed model)"],
            means,
        )
    ]
    if axis.agreement:
        found.append(_agreement(axis))
    if axis.anova:
        a = axis.anova
        said = "no variation within methods" if a.f is None else (
            f"F({a.df_between}, {a.df_within}) = {a.f:.2f}, p = {p_value(a.p)}"
        )  # fmt: skip
        rows = [
            [f"{t.a} - {t.b}", f"{t.difference:+.2f}", interval(t.low, t.high, 2), p_value(t.p)]
            for t in axis.tukey
        ]
        found.append(
            Part(
                f"{name}: one-way ANOVA {said}; Tukey HSD",
                ["Pair", "Difference", "95 % (all pairs)", "p"],
                rows,
                ORDINARY,
            )
        )
    if axis.mixed:
        m = axis.mixed
        sds = ", ".join(f"{k} {v**0.5:.2f}" for k, v in m.variances.items())
        found.append(
            Part(
                f"{name}: mixed-effects model F({m.df[0]:.0f}, {m.df[1]:.0f}) = {m.f:.2f}, "
                f"p = {p_value(m.p)}",
                ["Pair", "Difference", "95 %", "p", "p (Holm)"],
                [
                    [
                        f"{d.a} - {d.b}",
                        f"{d.difference:+.2f}",
                        interval(d.low, d.high, 2),
                        p_value(d.p),
                        p_value(d.p_holm),
                    ]
                    for d in m.differences
                ],
                f"Random raters, prompts and texts; standard deviations: {sds}.",
            )
        )
    return [*found, *_ranks(name, axis.ranks)]


def _choices(axis: ChoiceResult) -> list[Part]:
    name = axis.axis
    found = [_agreement(axis)] if axis.agreement else []
    found.append(
        Part(
            f"{name}: sign tests",
            ["Pair", "Won", "Lost", "Equal", "p", "Prompts won", "lost", "equal", "p", "p (Holm)"],
            [
                [
                    f"{s.a} : {s.b}", str(s.wins), str(s.losses), str(s.ties), p_value(s.p),
                    str(s.item_wins), str(s.item_losses), str(s.item_ties), p_value(s.item_p),
                    p_value(s.item_p_holm),
                ]
                for s in axis.signs
            ],
            "The first p takes every choice as independent; the others are over prompts, by the "
            "majority of their raters.",
        )
    )  # fmt: skip
    if axis.strengths:
        ranked = sorted(axis.strengths, key=lambda s: -s.strength)
        found.append(
            Part(
                f"{name}: Bradley-Terry",
                ["Method", "Strength (log)", "95 %", "Against the best"],
                [
                    [
                        s.method,
                        f"{s.strength:+.2f}",
                        interval(s.low, s.high, 2),
                        f"{win_probability(s.strength, ranked[0].strength):.2f}",
                    ]
                    for s in ranked
                ],
                "0 is the mean of the methods; intervals allow for prompts with several choices. "
                "Last column: probability of being preferred to the first line.",
            )
        )
    return [*found, *_ranks(name, axis.ranks)]


def _agreement(axis: RatingResult | ChoiceResult) -> Part:
    one = axis.agreement[0]
    return Part(
        f"{axis.axis}: agreement of raters (Krippendorff's alpha)",
        ["Level", "Alpha", "95 %"],
        [[a.level, number(a.alpha, 3), interval(a.low, a.high, 3)] for a in axis.agreement],
        f"{one.values} answers about {one.units} texts or pairs that two or more raters judged; "
        "interval over resampled prompts.",
    )


def _ranks(name: str, ranks: dict[str, RankAgreement]) -> list[Part]:
    if not ranks:
        return []
    rows = [
        [
            f"{metric} (less is better)" if r.less_is_better else metric,
            str(r.methods), number(r.tau_methods, 2), p_value(r.p_methods), str(r.texts),
            number(r.tau_texts, 2), interval(r.low, r.high, 2),
        ]
        for metric, r in ranks.items()
    ]  # fmt: skip
    return [
        Part(
            f"{name}: metrics against people (Kendall's tau-b)",
            ["Metric", "Methods", "tau", "p", "Texts", "tau", "95 %"],
            rows,
            _directions(ranks),
        )
    ]


def _directions(ranks: dict[str, RankAgreement]) -> str:
    """What the sign of tau means for each metric."""
    said = "+1: the metric orders as people do."
    if any(r.less_is_better for r in ranks.values()):
        said += " Where less is better the sign is turned."
    unknown = [m for m, r in ranks.items() if r.less_is_better is None]
    if unknown:
        said += (
            f" Of {', '.join(unknown)} it is not known which is better, so that the sign is of "
            "the numbers as they are: where less is better, -1 is agreement."
        )
    return said


def _sheets(study: HumanStudy) -> Part:
    return Part(
        "Forms and attention checks",
        ["Form", "Rater", "Checks failed", "Missing", "Seconds (median)", ""],
        [
            [
                s.form, s.rater, f"{s.failed} of {s.checks}", str(s.open), number(s.seconds, 0),
                "excluded" if s.excluded else "",
            ]
            for s in study.sheets
        ],
        study.rule,
    )  # fmt: skip


def _count(axis: RatingResult | ChoiceResult) -> str:
    if isinstance(axis, ChoiceResult):
        return f"{axis.choices} choices"
    return f"{sum(m.ratings for m in axis.means)} ratings of {axis.texts} texts"


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def interval(low: float | None, high: float | None, digits: int) -> str:
    if low is None or high is None:
        return "-"
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def p_value(p: float | None) -> str:
    """`< .001`, else three digits."""
    if p is None:
        return "-"
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
