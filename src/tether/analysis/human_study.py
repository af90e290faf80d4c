"""All of a human study of one task: from ratings or choices to agreement, tests and rankings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tether.analysis.agreement import LEVELS, Agreement, krippendorff_alpha
from tether.analysis.group_means import Anova, TukeyPair, one_way_anova, tukey_hsd
from tether.analysis.mixed_effects import MixedEffects, mixed_effects
from tether.analysis.preferences import (
    Preference,
    SignTest,
    Strength,
    bradley_terry,
    sign_tests,
)
from tether.analysis.rank_agreement import Judged, RankAgreement, rank_agreement

Metrics = Mapping[str, Mapping[str, float]]
"""text -> metric -> value."""
LessIsBetter = Mapping[str, bool | None]
"""metric -> whether less of it is better; None, or not there = not known."""


@dataclass(frozen=True)
class Rating:
    """One number that a rater gave a text."""

    rater: str
    text: str
    item: str
    """The prompt of the text."""
    method: str
    value: float


@dataclass(frozen=True)
class Choice:
    """One choice of a rater between the texts `a` and `b`."""

    rater: str
    unit: str
    """The same two texts of one prompt, whoever judged them."""
    item: str
    a: str
    b: str
    method_a: str
    method_b: str
    outcome: float
    """1 = a, 0 = b, .5 = equal."""


@dataclass(frozen=True)
class GroupMean:
    method: str
    ratings: int
    texts: int
    mean: float
    sd: float | None
    """Of single ratings; None for one."""


@dataclass(frozen=True)
class RatingResult:
    """One axis of Likert ratings."""

    axis: str
    raters: int
    texts: int
    means: tuple[GroupMean, ...]
    agreement: tuple[Agreement, ...]
    """Nominal, ordinal, interval; empty where no text has two ratings."""
    anova: Anova | None
    tukey: tuple[TukeyPair, ...]
    mixed: MixedEffects | None
    ranks: dict[str, RankAgreement]
    """metric -> agreement with the mean rating."""
    notes: tuple[str, ...]
    """What could not be computed, and why."""


@dataclass(frozen=True)
class ChoiceResult:
    """One axis of pairwise choices."""

    axis: str
    raters: int
    choices: int
    agreement: tuple[Agreement, ...]
    """Nominal; empty where no pair was judged twice."""
    signs: tuple[SignTest, ...]
    strengths: tuple[Strength, ...]
    """Bradley-Terry; empty where there is no finite estimate."""
    ranks: dict[str, RankAgreement]
    """metric -> agreement with the share of comparisons that a text won."""
    notes: tuple[str, ...]


def analyse_ratings(
    axis: str,
    ratings: Sequence[Rating],
    methods: Sequence[str],
    metrics: Metrics,
    seed: int = 0,
    less_is_better: LessIsBetter = MappingProxyType({}),
) -> RatingResult:
    """Everything about one axis.

    Args:
        methods: in the order of the tables; those without a rating are left out.
        seed: of the bootstrap intervals.
    """
    notes: list[str] = []
    groups = {m: [r.value for r in ratings if r.method == m] for m in methods}
    groups = {m: v for m, v in groups.items() if v}
    by_text: dict[str, list[Rating]] = {}
    for r in ratings:
        by_text.setdefault(r.text, []).append(r)
    items = [rows[0].item for rows in by_text.values()]
    anova, tukey, mixed = _tests(ratings, groups, notes)
    return RatingResult(
        axis=axis,
        raters=len({r.rater for r in ratings}),
        texts=len(by_text),
        means=tuple(_mean(m, v, by_text) for m, v in groups.items()),
        agreement=tuple(
            krippendorff_alpha(
                [[r.value for r in rows] for rows in by_text.values()],
                level,
                clusters=items,
                seed=seed,
            )
            for level in LEVELS
            if any(len(rows) > 1 for rows in by_text.values())
        ),
        anova=anova,
        tukey=tukey,
        mixed=mixed,
        ranks=_ranks(
            {t: math.fsum(r.value for r in rows) / len(rows) for t, rows in by_text.items()},
            {t: (rows[0].method, rows[0].item) for t, rows in by_text.items()},
            metrics,
            less_is_better,
            seed,
        ),
        notes=tuple(notes),
    )


def analyse_choices(
    axis: str,
    choices: Sequence[Choice],
    methods: Sequence[str],
    metrics: Metrics,
    seed: int = 0,
    less_is_better: LessIsBetter = MappingProxyType({}),
) -> ChoiceResult:
    """Everything about one axis; arguments as for `analyse_ratings`."""
    by_unit: dict[str, list[Choice]] = {}
    won: dict[str, list[float]] = {}
    place: dict[str, tuple[str, str]] = {}
    for c in choices:
        by_unit.setdefault(c.unit, []).append(c)
        for text, method, outcome in (
            (c.a, c.method_a, c.outcome),
            (c.b, c.method_b, 1 - c.outcome),
        ):
            won.setdefault(text, []).append(outcome)
            place[text] = (method, c.item)
    preferences = [Preference(c.method_a, c.method_b, c.outcome, c.item) for c in choices]
    seen = [m for m in methods if any(m in (c.method_a, c.method_b) for c in choices)]
    strengths = bradley_terry(preferences, seen) if choices else None
    notes = []
    if strengths is None:
        notes.append(
            "Bradley-Terry strengths are not finite: some methods never lost to the others, were "
            "never compared with them, or fewer than 2 prompts were judged."
        )
    agreement: tuple[Agreement, ...] = ()
    if any(len(rows) > 1 for rows in by_unit.values()):
        found = krippendorff_alpha(
            [[c.outcome for c in rows] for rows in by_unit.values()],
            "nominal",
            clusters=[rows[0].item for rows in by_unit.values()],
            seed=seed,
        )
        agreement = (found,)
    shares = {t: math.fsum(v) / len(v) for t, v in won.items()}
    return ChoiceResult(
        axis=axis,
        raters=len({c.rater for c in choices}),
        choices=len(choices),
        agreement=agreement,
        signs=tuple(sign_tests(preferences, methods)),
        strengths=tuple(strengths or ()),
        ranks=_ranks(shares, place, metrics, less_is_better, seed),
        notes=tuple(notes),
    )


def _tests(
    ratings: Sequence[Rating], groups: Mapping[str, Sequence[float]], notes: list[str]
) -> tuple[Anova | None, tuple[TukeyPair, ...], MixedEffects | None]:
    if len(groups) < 2:
        notes.append("One method alone: nothing is compared.")
        return None, (), None
    try:
        anova, tukey = one_way_anova(groups), tuple(tukey_hsd(groups))
    except ValueError as e:
        notes.append(f"No analysis of variance: {e}.")
        return None, (), None
    try:
        order = list(groups)
        rows = sorted(ratings, key=lambda r: order.index(r.method))  # decides the order of pairs
        mixed = mixed_effects(
            [r.value for r in rows],
            [r.method for r in rows],
            {
                "rater": [r.rater for r in rows],
                "prompt": [r.item for r in rows],
                "text": [r.text for r in rows],
            },
        )
    except ValueError as e:
        notes.append(f"No mixed-effects model: {e}.")
        return anova, tukey, None
    if mixed.left_out:
        notes.append(
            f"Not in the mixed-effects model, since the data cannot tell it apart: "
            f"{', '.join(mixed.left_out)}."
        )
    return anova, tukey, mixed


def _mean(
    method: str, values: Sequence[float], by_text: Mapping[str, Sequence[Rating]]
) -> GroupMean:
    n = len(values)
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    texts = sum(rows[0].method == method for rows in by_text.values())
    return GroupMean(method, n, texts, mean, sd)


def _ranks(
    people: Mapping[str, float],
    place: Mapping[str, tuple[str, str]],
    metrics: Metrics,
    less_is_better: LessIsBetter,
    seed: int,
) -> dict[str, RankAgreement]:
    """Each metric on the texts that have it."""
    out = {}
    for name in dict.fromkeys(m for t in people for m in metrics.get(t, {})):
        texts = [
            Judged(*place[t], people=value, metric=metrics[t][name])
            for t, value in people.items()
            if name in metrics.get(t, {})
        ]
        out[name] = rank_agreement(texts, seed, less_is_better.get(name))
    return out
