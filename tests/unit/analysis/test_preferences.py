"""Sign tests and Bradley-Terry strengths by hand, and what repeated votes must not do."""

from __future__ import annotations

import math
import random

import pytest
from scipy import stats

from tether.analysis.preferences import (
    Preference,
    bradley_terry,
    sign_test_p,
    sign_tests,
    win_probability,
)


def votes(
    a: str, b: str, wins: int, losses: int, ties: int = 0, start: int = 0
) -> list[Preference]:
    """Each on a prompt of its own."""
    outcomes = [1.0] * wins + [0.0] * losses + [0.5] * ties
    return [Preference(a, b, o, start + i) for i, o in enumerate(outcomes)]


def test_sign_test() -> None:
    assert sign_test_p(5, 0) == pytest.approx(2 / 32)
    assert sign_test_p(3, 1) == pytest.approx(2 * (1 + 4) / 16)
    assert sign_test_p(0, 0) == 1.0
    # METEOR + preference against METEOR on CommonGen, arXiv 2210.01241v2
    assert sign_test_p(682, 587) == pytest.approx(0.008, abs=5e-4)


def test_over_prompts_the_majority_counts() -> None:
    """Prompt 0: 2 to 1 for a; 1: 3 to 0; 2: 1 to 1, one equal; 3: 0 to 3, judged as b against a."""
    seen = [Preference("a", "b", o, i) for i, o in [(0, 1), (0, 1), (0, 0)]]
    seen += [Preference("a", "b", 1, 1)] * 3
    seen += [Preference("a", "b", o, 2) for o in (1, 0, 0.5)]
    seen += [Preference("b", "a", 1, 3)] * 3
    (found,) = sign_tests(seen, ["a", "b"])
    assert (found.wins, found.losses, found.ties) == (6, 5, 1)
    assert (found.item_wins, found.item_losses, found.item_ties) == (2, 1, 1)
    assert found.p == pytest.approx(sign_test_p(6, 5)) and found.item_p == 1.0


def test_holm_over_all_pairs() -> None:
    seen = votes("a", "b", 8, 0) + votes("a", "c", 7, 1) + votes("b", "c", 4, 4)
    found = sign_tests(seen, ["a", "b", "c"])
    assert [(t.a, t.b) for t in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found[0].item_p_holm == pytest.approx(3 * 2 / 256)
    assert found[1].item_p_holm == pytest.approx(2 * 18 / 256)


def test_two_methods_by_hand() -> None:
    """30 wins to 10: the log-odds are log 3, their variance 1/30 + 1/10; strengths are +- half."""
    found = bradley_terry(votes("a", "b", 30, 10), ["a", "b"])
    assert found is not None
    assert found[0].strength == pytest.approx(math.log(3) / 2)
    assert found[1].strength == pytest.approx(-math.log(3) / 2)
    se = math.sqrt((1 / 30 + 1 / 10) * 40 / 39) / 2
    assert found[0].high - found[0].strength == pytest.approx(stats.t.ppf(0.975, 39) * se)
    assert win_probability(found[0].strength, found[1].strength) == pytest.approx(0.75)


def test_an_equal_judgement_is_half_a_win_each() -> None:
    ties = bradley_terry(votes("a", "b", 10, 0, ties=10), ["a", "b"])
    assert ties is not None
    assert ties[0].strength - ties[1].strength == pytest.approx(math.log(15 / 5))


def test_a_circle_has_no_order() -> None:
    seen = votes("a", "b", 6, 3) + votes("b", "c", 6, 3, start=9) + votes("c", "a", 6, 3, start=18)
    found = bradley_terry(seen, ["a", "b", "c"])
    assert found is not None
    assert [s.strength for s in found] == pytest.approx([0, 0, 0], abs=1e-12)


def test_expected_wins_are_the_observed_ones() -> None:
    rng = random.Random(0)
    names = ["a", "b", "c", "d"]
    seen = [
        Preference(*rng.sample(names, 2), rng.choice([0.0, 0.5, 1.0]), rng.randrange(40))
        for _ in range(300)
    ]
    found = bradley_terry(seen, names)
    assert found is not None
    s = {x.method: x.strength for x in found}
    assert sum(s.values()) == pytest.approx(0, abs=1e-9)
    for name in names:
        won = sum(p.outcome if p.a == name else 1 - p.outcome for p in seen if name in (p.a, p.b))
        expected = sum(
            win_probability(s[name], s[p.b if p.a == name else p.a])
            for p in seen
            if name in (p.a, p.b)
        )
        assert won == pytest.approx(expected, abs=1e-8)


def test_votes_repeated_within_a_prompt_tell_nothing_new() -> None:
    once = votes("a", "b", 12, 7) + votes("b", "c", 9, 8)
    thrice = [p for p in once for _ in range(3)]
    for a, b in zip(
        bradley_terry(once, ["a", "b", "c"]) or [],
        bradley_terry(thrice, ["a", "b", "c"]) or [],
        strict=True,
    ):
        assert (a.strength, a.low, a.high) == pytest.approx((b.strength, b.low, b.high), abs=1e-9)
    assert [t.item_p for t in sign_tests(once, ["a", "b", "c"])] == [
        t.item_p for t in sign_tests(thrice, ["a", "b", "c"])
    ]


def test_no_finite_strength() -> None:
    assert bradley_terry(votes("a", "b", 9, 0), ["a", "b"]) is None  # b never won
    apart = votes("a", "b", 3, 3) + votes("c", "d", 3, 3)
    assert bradley_terry(apart, ["a", "b", "c", "d"]) is None  # two islands
    assert bradley_terry([Preference("a", "b", 0.5, 0)] * 4, ["a", "b"]) is None  # one prompt


def test_a_strength_without_spread_has_an_interval_without_length() -> None:
    """Its variance is rounded to just below 0 here."""
    found = bradley_terry(
        [Preference("a", "b", 0.5, 0), Preference("c", "a", 0.5, 0), Preference("c", "b", 1.0, 1)],
        ["a", "b", "c"],
    )
    assert found is not None
    a = found[0]
    assert a.low == a.strength == a.high and abs(a.strength) < 1e-12
    assert all(s.low < s.strength < s.high for s in found[1:])
