"""Who rates what is as even as whole numbers allow."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.studies.human.balance import spread


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


@pytest.mark.parametrize(("items", "kinds", "forms"), [(0, 2, 1), (2, 2, 5), (2, 2, 0)])
def test_what_cannot_be(items: int, kinds: int, forms: int) -> None:
    with pytest.raises(ValueError, match="cannot be spread"):
        spread(items, kinds, forms, random.Random(0))
