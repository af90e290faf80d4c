"""Every tether of the catalog in a run of four updates on a tiny model: it acts, a resume is exact,
adapters work, and bad input is refused in one line before anything is loaded. A new tether is
covered by being listed; `tests/acting.py` says under which settings one acts at once."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.acting import ACTING
from tests.runs_for_tests import REWARDS, final_state, lines, make_world, numbers_of, run, settings
from tether.config.catalog import load, names
from tether.config.errors import UserError
from tether.config.parts import build
from tether.train.build import build_parts
from tether.train.run import resume, train

TETHERS = pytest.mark.parametrize("kind", names("tether"))
SHORT: dict[str, Any] = {
    "updates": 4,
    "rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:low"}},
    "evaluation": {"every": 4, "human_rows": 0, "samples": 1},
    "checkpoint": {"every": 2},
}
LORA = {"model": {"lora": {"rank": 2}}}
NEEDS: dict[str, dict[str, Any]] = {}
"""tether -> further settings of the run that it needs."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("every_tether"), layers=1)


@pytest.fixture(scope="module")
def free(world: Path) -> dict[str, bytes]:
    """Final weights of the same run without any tether, with full weights and with an adapter."""
    full = run(settings(world, SHORT, name="free"))
    adapter = run(settings(world, SHORT, LORA, name="free-lora"))
    return {"full": final_state(full), "lora": final_state(adapter)}


def acting(world: Path, kind: str) -> dict[str, Any]:
    part = ACTING.get(kind, lambda world: {})(world)
    return {**NEEDS.get(kind, {}), "tethers": {"mine": {"kind": kind, **part}}}


def policy(folder: Path) -> dict[str, bytes]:
    from safetensors.torch import load_file

    newest = sorted((folder / "checkpoints").glob("update_*"))[-1]
    tensors = load_file(newest / "tensors.safetensors")
    return {
        k: t.numpy().tobytes()
        for k, t in tensors.items()
        if "sets/tensors/policy/" in k and "buffer:" not in k
    }


class PowerCut(Exception):
    """Ends a run between two updates, without a word to the trainer."""


def cut(done: int, _total: int, _words: str) -> None:
    if done == 3:
        raise PowerCut


@TETHERS
def test_it_acts_and_a_resume_is_exact(world: Path, free: dict[str, bytes], kind: str) -> None:
    """Cut after update 3 and gone on from the checkpoint of update 2: the same bits as at once."""
    chosen = [SHORT, acting(world, kind)]
    whole = run(settings(world, *chosen, name=f"{kind}-whole"))
    assert policy(whole) != policy(world / "runs" / "free"), f"{kind} changed nothing"
    parts = settings(world, *chosen, name=f"{kind}-parts")
    with pytest.raises(PowerCut):
        train(parts, say=lambda _: None, progress=cut)
    again = resume(Path(parts.root) / parts.name, say=lambda _: None)
    want, have = numbers_of(whole), numbers_of(again)
    assert [k for k in want if want[k] != have[k]] == []


@TETHERS
def test_it_acts_on_an_adapter(world: Path, free: dict[str, bytes], kind: str) -> None:
    """With LoRA the base is untouched (the house checks its hash) and the adapter is what moves."""
    folder = run(settings(world, SHORT, LORA, acting(world, kind), name=f"{kind}-lora"))
    mine = policy(folder)
    assert all("lora_" in k for k in mine) and len(mine) > 0
    assert mine != policy(world / "runs" / "free-lora"), f"{kind} changed nothing"
    assert [x["kind"] for x in lines(folder)].count("end") == 1


def wrong_values(kind: str) -> list[tuple[str, Any]]:
    """Each setting with a value of another type."""
    return [(f.name, {"nonsense": math.nan}) for f in fields(load("tether", kind))]


@TETHERS
def test_bad_input_is_one_line_that_names_the_setting(world: Path, kind: str) -> None:
    good = acting(world, kind)["tethers"]["mine"]
    build("tether", good)
    for name, value in wrong_values(kind):
        with pytest.raises(UserError) as e:
            build("tether", {**good, name: value}, "tethers.mine")
        assert "\n" not in str(e.value) and f"tethers.mine.{name}" in str(e.value)
    for name in (f.name for f in fields(load("tether", kind))):
        with pytest.raises(UserError, match=f"did you mean '{name}'") as e:
            build("tether", {**good, f"{name}x": 1}, "tethers.mine")
        assert "\n" not in str(e.value)


@TETHERS
def test_numbers_that_cannot_be_are_refused(world: Path, kind: str) -> None:
    """A share, weight or count of -1: no setting of a tether is below 0."""
    good = acting(world, kind)["tethers"]["mine"]
    plain = json.loads(json.dumps(good))
    for f in fields(load("tether", kind)):
        if str(f.type) in ("int", "float", "float | None", "int | None"):
            with pytest.raises(UserError) as e:
                build("tether", {**plain, f.name: -1}, "tethers.mine")
            assert "\n" not in str(e.value) and f.name in str(e.value)


@TETHERS
def test_it_composes_with_no_algorithm_that_cannot_hear_it(world: Path, kind: str) -> None:
    """With supervised training a tether is built, or refused with its own name in the reason."""
    sft = {"algorithm": {"kind": "supervised"}, "rewards": {"reward": None}}
    acts = load("tether", kind).acts_on
    try:
        build_parts(settings(world, SHORT, sft, acting(world, kind)))
    except UserError as e:
        assert str(e).startswith("tethers.mine") and "\n" not in str(e)
    else:
        assert acts - {"reward", "sampling"}, "accepted where nothing listens"
