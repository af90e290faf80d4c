"""Verdicts, by hand."""

from __future__ import annotations

from statistics import NormalDist

import pytest

from tether.analysis.comparisons import (
    compare_all,
    distinct,
    equivalent,
    holm,
    sign_flip_p,
)
from tether.analysis.power import detectable, power, seeds_needed, smallest_p, too_few


def test_sign_flip_by_hand() -> None:
    assert sign_flip_p([1.0, 2.0, 3.0]) == 2 / 8  # only +++ and --- reach 6
    assert sign_flip_p([1.0, 2.0, -3.0]) == 1.0  # sum 0: every pattern reaches it
    assert sign_flip_p([3.0, 2.0, -1.0]) == 4 / 8  # |sum| 4: +++, ++-, and their mirrors
    assert sign_flip_p([0.1] * 5) == 0.0625
    assert sign_flip_p([0.3] * 10) == pytest.approx(2 / 1024)
    with pytest.raises(ValueError, match="1 to 20"):
        sign_flip_p([])


def test_rounding_does_not_hide_a_tie() -> None:
    # .1 + .2 - .3 and its sign patterns tie exactly only in exact arithmetic
    assert sign_flip_p([0.1, 0.2, 0.3]) == 2 / 8
    assert sign_flip_p([0.3, -0.1, -0.2]) == 1.0


def test_holm_by_hand() -> None:
    # sorted .01 .03 .04 .20 -> .04, .09, max(.08, .09), .20
    assert holm([0.03, 0.01, 0.20, 0.04]) == pytest.approx([0.09, 0.04, 0.20, 0.09])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_equivalence_by_hand() -> None:
    # mean 0, s = .01 * sqrt(10/9), n 10, t(.95, 9) = 1.8331 -> half-width .00611
    d = [0.01, -0.01] * 5
    assert equivalent(d, 0.0062)
    assert not equivalent(d, 0.0060)
    with pytest.raises(ValueError, match="above 0"):
        equivalent(d, 0.0)


def test_power_of_no_effect_is_half_of_alpha() -> None:
    """`better` alone: each of the two conditions has .025 there, and they mostly hold together."""
    assert 0.015 < power(0.0, 10) < 0.03
    assert power(0.0, 10, declared=5) < 0.006


def test_ten_seeds_find_three_hundredths_but_not_half_of_it() -> None:
    """Seed s.d. .02 without pair correlation: the difference has s.d. .0283."""
    sd = 0.02 * 2**0.5
    found = detectable(sd, 10)
    assert found is not None and 0.015 < found < 0.03
    assert power(0.03 / sd, 10) > 0.80 > power(0.015 / sd, 10)
    assert detectable(0.0, 10) == 0.0
    with pytest.raises(ValueError, match="finite"):
        detectable(float("nan"), 10)


def test_power_with_the_fewest_seeds_is_that_of_one_sign() -> None:
    """6 pairs alone: p < .05 needs all six above 0, chance Phi(effect)^6 at most."""
    one = NormalDist().cdf(1.5) ** 6
    assert one - 0.06 < power(1.5, 6) <= one + 0.01
    assert detectable(1.0, 7, declared=3) == pytest.approx(
        NormalDist().inv_cdf(0.8 ** (1 / 7)), abs=0.03
    )


def test_too_few_seeds_for_the_declared_comparisons() -> None:
    assert [seeds_needed(m) for m in range(1, 7)] == [6, 7, 7, 8, 8, 8]
    assert (smallest_p(6, 1), smallest_p(6, 2), smallest_p(7, 3)) == (2 / 64, 4 / 64, 6 / 128)
    for n, m in ((6, 2), (7, 4), (5, 1)):
        assert power(1000.0, n, m) == 0.0 and detectable(1.0, n, m) is None
        pairs = {str(i): ([9.0 + 0.1 * s for s in range(n)], [0.0] * n) for i in range(m)}
        found = compare_all(pairs).values()
        assert {c.verdict for c in found} == {"undecided" if n > 5 else None}
        assert {c.detectable for c in found} == {None}
        assert too_few(n, m).startswith(f"{n} seeds are too few to find better or worse in {m} ")
        assert too_few(n, m).endswith(f" at least; {seeds_needed(m)} seeds would do")
        assert not too_few(seeds_needed(m), m)
    assert "1 seed is too few" in too_few(1) and "in 1 declared comparison:" in too_few(1)


def test_a_comparison_is_one_whichever_way_round() -> None:
    assert distinct([["a", "b"], ("b", "c"), ["a", "b"], ["b", "a"]]) == [("a", "b"), ("b", "c")]


BASE = [0.50, 0.52, 0.48, 0.51, 0.49, 0.50, 0.53, 0.47]


def shifted(by: float, noise: float = 0.002) -> list[float]:
    return [v + by + noise * (-1) ** i for i, v in enumerate(BASE)]


def test_the_four_words() -> None:
    found = compare_all(
        {
            "up": (shifted(0.05), BASE),
            "down": (shifted(-0.05), BASE),
            "same": (shifted(0.0), BASE),
            "noise": (shifted(0.0, noise=0.05), BASE),
        },
        margin=0.01,
    )
    assert {k: c.verdict for k, c in found.items()} == {
        "up": "better",
        "down": "worse",
        "same": "equivalent",
        "noise": "undecided",
    }
    up = found["up"]
    assert (up.seeds, up.p) == (8, 2 / 256)
    assert up.p_holm == pytest.approx(4 * 2 / 256)
    assert up.low < up.equivalence_low < up.difference < up.equivalence_high < up.high
    assert up.difference == pytest.approx(0.05)
    least = found["noise"].detectable
    assert least is not None and least > 0.05


def test_lower_is_better_for_drift() -> None:
    found = compare_all({"drift": (shifted(-0.5), BASE)}, margin=0.1, higher_is_better=False)
    assert found["drift"].verdict == "better"


def test_no_verdict_below_six_seeds() -> None:
    found = compare_all({"up": (shifted(0.05)[:5], BASE[:5])})
    assert found["up"].verdict is None
    assert compare_all({"up": (shifted(0.05)[:6], BASE[:6])})["up"].verdict == "better"


def test_holm_takes_a_verdict_away() -> None:
    """p = 2/64 at 6 seeds is below .05 alone, but not among two comparisons."""
    pair = (shifted(0.05)[:6], BASE[:6])
    assert compare_all({"a": pair})["a"].verdict == "better"
    assert compare_all({"a": pair, "b": pair})["a"].verdict == "undecided"


def test_what_is_refused() -> None:
    pair = (BASE, BASE)
    with pytest.raises(ValueError, match="at most 6"):
        compare_all({str(i): pair for i in range(7)})
    with pytest.raises(ValueError, match="above 0"):
        compare_all({"a": pair}, margin=0.0)
    with pytest.raises(ValueError, match="same seeds"):
        compare_all({"a": (BASE, BASE[:3])})
