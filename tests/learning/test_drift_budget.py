"""Elastic Reset on a drift budget, under a reward that pulls hard: right after every reset the
exact KL on the probe prompts is below the budget, and the record says why, how much of the average
was kept, and how far the budget was passed. A few seconds of CPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.runs_for_tests import REWARDS, lines, make_world, run, settings
from tether.records import DRIFT

BUDGET = 1.0
PULL: dict[str, Any] = {
    "updates": 12,
    "rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:low"}},
    "batch": {"prompts": 32, "microbatch": 32},
    "data": {"validation_rows": 16},
    "algorithm": {"lr": 1e-2, "epochs": 2, "minibatches": 2, "gamma": 1.0},
    "evaluation": {"every": 1, "prompts": 16, "human_rows": 0},
    "checkpoint": {"every": 0},
}
BY_BUDGET: dict[str, Any] = {
    "kind": "elastic_reset",
    "reset": {"kind": "drift_budget", "budget": BUDGET},
    "average": {"kind": "every", "n": 1, "unit": "minibatch"},
    "decay": 0.5,
}
"""An average that keeps nearly all: on its own it would be far above half of the budget."""
WHY = re.compile(
    re.escape(DRIFT)
    + r" ([\d.]+) > 1, passed by ([\d.]+) since a measurement of ([\d.]+);"
    + r" \d+ averagings since the last reset"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("budget"), rows=48)


@pytest.fixture(scope="module")
def record(world: Path) -> list[dict[str, Any]]:
    return lines(run(settings(world, PULL, tethers={"er": BY_BUDGET}, name="budget")))


def drift(record: list[dict[str, Any]], update: int, side: str) -> float:
    (found,) = [x["drift"][DRIFT] for x in record
                if x["kind"] == "eval" and (x["update"], x["side"]) == (update, side)
                and x["split"] == "validation"]  # fmt: skip
    return float(found)


def events(record: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [x for x in record if x["kind"] == "event"]


def test_drift_budget_right_after_every_reset_kl_is_below_it(record: list[dict[str, Any]]) -> None:
    assert len(events(record)) >= 2, "the reward did not pull"
    for e in events(record):
        assert drift(record, e["update"], "before") > BUDGET
        assert drift(record, e["update"], "after") < BUDGET


def test_drift_budget_the_share_brings_the_measured_kl_to_half(
    record: list[dict[str, Any]],
) -> None:
    for e in events(record):
        first, back, home = e["moves"]
        assert first == {"what": "policy", "toward": "initial", "by": 1.0}
        assert home == {"what": "ema", "toward": "initial", "by": 1.0}
        assert (back["what"], back["toward"]) == ("policy", "ema")
        assert (back["metric"], back["limit"]) == (DRIFT, BUDGET / 2)
        assert 0 < back["by"] < 1, "the average itself is above half of the budget"
        # the probe prompts are those of validation here: the same weights, the same number
        assert drift(record, e["update"], "after") == pytest.approx(back["measured"], rel=1e-6)
        assert 0.8 * BUDGET / 2 < back["measured"] <= BUDGET / 2, "the largest share"


def test_drift_budget_the_record_says_why_and_how_far_it_was_passed(
    record: list[dict[str, Any]],
) -> None:
    """The reset comes after the update that follows the measurement which passed the budget."""
    plain = {x["update"]: x["drift"][DRIFT] for x in record if x["kind"] == "eval"}
    for e in events(record):
        found = WHY.fullmatch(e["reason"])
        assert found, e["reason"]
        value, over, before = map(float, found.groups())
        assert value == pytest.approx(plain[e["update"] - 1], rel=1e-3)
        assert over == pytest.approx(value - BUDGET, abs=2e-3) and over > 0
        assert before <= BUDGET, "one measurement passed the budget, and the reset followed"


def test_drift_budget_without_the_limit_the_average_is_too_far(world: Path) -> None:
    """The control: the same run, its average taken as it is."""
    plain = {**BY_BUDGET, "within": "no_limit"}
    record = lines(run(settings(world, PULL, tethers={"er": plain}, updates=6, name="plain")))
    first = events(record)[0]
    assert [m["by"] for m in first["moves"]] == [1.0, 1.0] and "limit" not in first["moves"][0]
    assert drift(record, first["update"], "after") > BUDGET / 2


def test_drift_budget_keeps_the_whole_average_where_that_is_within(world: Path) -> None:
    """An average that keeps little is below half of the budget: a reset like any other."""
    little = {**BY_BUDGET, "decay": 0.99}
    record = lines(run(settings(world, PULL, tethers={"er": little}, updates=6, name="little")))
    (back,) = [m for m in events(record)[0]["moves"] if m["toward"] == "ema"]
    assert back["by"] == 1.0 and 0 < back["measured"] < BUDGET / 2
