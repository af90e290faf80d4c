"""NLPO on the toy: it learns, inside a mask that moves with it, and is evaluated on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.learning.test_toy_task import TOY, learnt, points
from tests.runs_for_tests import make_world, metrics, run, settings
from tether.config.compose import compose
from tether.records import DRIFT
from tether.tethers.nlpo_mask import NLPOMask


def nlpo(**part: Any) -> dict[str, Any]:
    return {"tethers": {"mask": {"kind": "nlpo_mask", "top_p": 0.5, **part}}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("toy"), rows=48)


@pytest.fixture(scope="module")
def refreshed(world: Path) -> Path:
    change = nlpo(refresh={"kind": "every", "n": 2})
    return run(settings(world, TOY, change, name="refreshed"))


def test_nlpo_learns_and_both_policies_are_on_record(refreshed: Path) -> None:
    learnt(refreshed, 0.2)
    sides = {p["policy"]: p for p in points(refreshed) if p["update"] == 12}
    assert set(sides) == {"exported", "constrained"}
    assert sides["exported"]["drift"][DRIFT] > 0.5
    assert DRIFT not in sides["constrained"]["drift"], (
        "an exact KL of free log-probs is not its own"
    )
    # truncated sampling alone raises the score of the same weights
    assert sides["constrained"]["reward"] > sides["exported"]["reward"]
    sizes = [m["tether/mask/allowed_tokens"] for m in metrics(refreshed)]
    assert sizes[-1] < 0.7 * sizes[0], "the mask narrows with the policy it copies"


def test_as_released_the_mask_stays_where_it_began(world: Path, refreshed: Path) -> None:
    folder = run(settings(world, TOY, nlpo(mask="initial", refresh=None), name="released"))
    learnt(folder, 0.1)
    sizes = [m["tether/mask/allowed_tokens"] for m in metrics(folder)]
    moved = [m["tether/mask/allowed_tokens"] for m in metrics(refreshed)]
    assert sizes[:2] == moved[:2], "one method up to the first refresh"
    assert sizes[-1] > 1.3 * moved[-1]


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_the_sampling_mask_is_kept_for_other_algorithms(world: Path, algorithm: str) -> None:
    from tether.config.catalog import CATALOG

    if algorithm not in CATALOG["algorithm"]:
        pytest.skip(f"no {algorithm} in the catalog")
    change = {
        **nlpo(mask="policy", refresh=None),
        "algorithm": {"kind": algorithm, "lr": 1e-2, "group_size": 4},
        "batch": {"prompts": 8},
    }
    base = {k: v for k, v in TOY.items() if k != "algorithm"}
    folder = run(settings(world, base, {"algorithm": _only(algorithm)}, change, name=algorithm))
    learnt(folder, 0.1)


def _only(kind: str) -> dict[str, Any]:
    """Takes PPO's own settings of the tests' base out."""
    return {"kind": kind, "epochs": 2, "minibatches": 2}


def test_the_recipe_is_ppo_and_the_mask() -> None:
    ppo, found = compose("ppo-kl"), compose("nlpo")
    assert found.algorithm == ppo.algorithm and found.batch == ppo.batch
    assert list(found.tethers) == ["kl", "nlpo_mask"]
    from tether.config.parts import build

    mask = build("tether", found.tethers["nlpo_mask"], "tethers.nlpo_mask")
    assert isinstance(mask, NLPOMask) and (mask.mask, mask.top_p, mask.floor) == ("copy", 0.9, 1)
    assert mask.refresh is not None and mask.refresh.n == 5  # type: ignore[attr-defined]
    as_released = compose(
        "nlpo",
        overrides=["--tethers.nlpo_mask.mask", "initial", "--tethers.nlpo_mask.refresh", "null"],
    )
    build("tether", as_released.tethers["nlpo_mask"], "tethers.nlpo_mask")
