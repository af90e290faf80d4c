"""Who rates what is as even as whole numbers allow."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.studies.human.balance import sides, spread


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 25), st.integers(1, 9), st.data(), st.randoms(use_true_random=False))
def test_even(items: int, kinds: int, data: st.DataObject, rng: random.Random) -> None:
    forms = data.draw(st.integers(1, items * kinds))
    found = spread(items, kinds, forms, rng)
    sizes = Counter(form for row in found for form in row)
    assert set(sizes) == set(range(forms)) and sum(sizes.values()) == items * kinds
    assert max(sizes.values()) - min(sizes.values()) <= 1
    for form in range(forms):
        of_kind = [sum(row[k] == form for row in found) for k in range(kinds)]
        assert max(of_kind) - min(of_kind) <= 1
    most = -(-kinds // forms)
    assert all(max(Counter(row).values()) <= most for row in found)


def test_it_depends_on_the_seed_alone() -> None:
    a, b, c = (spread(20, 6, 8, random.Random(s)) for s in (1, 1, 2))
    assert a == b != c


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=12),
    st.randoms(use_true_random=False),
)
def test_sides_are_even_in_every_form_and_in_all(
    forms: list[list[int]], rng: random.Random
) -> None:
    found = sides(forms, rng)
    whole: Counter[int] = Counter()
    for kinds, turned in zip(forms, found, strict=True):
        signs = [1 if t else -1 for t in turned]
        assert len(signs) == len(kinds) and abs(sum(signs)) <= 1
        for kind in set(kinds):
            excess = sum(s for k, s in zip(kinds, signs, strict=True) if k == kind)
            assert abs(excess) <= 1
            whole[kind] += excess
    assert all(abs(excess) <= 1 for excess in whole.values())


def test_no_side_is_likelier() -> None:
    turned = [sides([[0, 0, 1], [0, 1]], random.Random(s)) for s in range(400)]
    for form, place in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        assert 150 < sum(t[form][place] for t in turned) < 250


@pytest.mark.parametrize(("items", "kinds", "forms"), [(0, 2, 1), (2, 2, 5), (2, 2, 0)])
def test_what_cannot_be(items: int, kinds: int, forms: int) -> None:
    with pytest.raises(ValueError, match="cannot be spread"):
        spread(items, kinds, forms, random.Random(0))
