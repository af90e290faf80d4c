"""A third of all combinations of algorithm, tethers and model; `python -m tests.composition` runs
all of them."""

from __future__ import annotations

import pytest

from tests.composition import ALGORITHMS, KINDS, PAIRS, check, combinations, differ, thirds
from tether.config.catalog import names

CHOSEN = thirds(combinations(), 0)


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("algorithm", names("algorithm"))
def test_a_third_of_the_combinations(algorithm: str, model: str) -> None:
    mine = [c for c in CHOSEN if (c.algorithm, c.model) == (algorithm, model)]
    assert len(mine) == 8
    failed = {str(c): why for c in mine for what, why in [check(c)] if what == "failed"}
    assert not failed


def test_the_thirds_are_all_of_it_and_have_everything() -> None:
    every = combinations()
    parts = [c for third in range(3) for c in thirds(every, third)]
    assert len(parts) == len(set(parts)) == len(every)
    for part in (thirds(every, i) for i in range(3)):
        assert {c.algorithm for c in part} == set(names("algorithm"))
        assert {c.tethers for c in part} == {c.tethers for c in every}
    assert len(PAIRS) >= 10 and set(ALGORITHMS) <= set(names("algorithm"))
    single = {c.tethers[0] for c in every if len(c.tethers) == 1}
    assert single == set(names("tether"))


def test_the_same_run_twice_does_not_differ() -> None:
    """What `did not act` rests on."""
    from tests.composition import Combination, _world, run_one

    c = Combination("ppo", ("kl",), "causal")
    one, two = run_one(c, _world("causal")), run_one(c, _world("causal"))
    assert not differ(one, two)
    assert differ(one, run_one(c, _world("causal"), without="kl"))
