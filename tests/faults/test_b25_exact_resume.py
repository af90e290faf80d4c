"""B25: a resume that is not one. 3 updates + a new start + 3 are 6, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import crash
from tests.runs_for_tests import MAIN, lines, make_world, numbers_of, run, settings
from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.train.run import resume, train


class PowerCut(Exception):
    """Ends a run between two updates, without a word to the trainer."""


def cut_after(update: int) -> Any:
    def progress(done: int, _total: int, _words: str) -> None:
        if done == update:
            raise PowerCut

    return progress


def stir() -> None:
    """What a new process does to the global generators."""
    random.seed(99)
    np.random.seed(99)
    torch.manual_seed(99)


def halves(chosen: RunSettings, after: int) -> Path:
    with pytest.raises(PowerCut):
        train(chosen, say=lambda _: None, progress=cut_after(after))
    stir()
    return resume(Path(chosen.root) / chosen.name, say=lambda _: None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b25"), layers=1)


TESTS = {"data": {"test_rows": 4}, "evaluation": {"test_prompts": 4, "budgets": [0.01, 4.0]}}
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "right after a reset": ({}, 3),
    "an update lost": ({}, 5),
    "before the first checkpoint": ({}, 2),
    "best copies and test prompts": (TESTS, 4),
    "lora": ({"model": {"lora": {"rank": 2}}}, 4),
    "bf16 with masters": ({"model": {"dtype": "bfloat16"}}, 4),
    "shared critic": ({"critic": {"kind": "shared"}}, 3),
    "frozen critic": ({"critic": {"kind": "frozen"}}, 4),
    "linear schedule": ({"optimizer": {"schedule": "linear", "warmup_steps": 3}}, 4),
    "dropout in the update": ({"model": {"dropout": True}}, 3),
    "exact kl, ziegler, a drift budget": (
        {
            "tethers": {
                "kl": {"estimator": "exact", "controller": {"kind": "ziegler", "target": 0.1}},
                "elastic_reset": {"reset": {"kind": "drift_budget", "budget": 0.001, "n": None}},
            }
        },
        3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_two_halves_are_the_whole(world: Path, name: str) -> None:
    change, after = CASES[name]
    slug = name.replace(" ", "-").replace(",", "")
    main = {**MAIN, "checkpoint": {"every": 3}, "seed": 5}
    here = world
    if "dropout" in name:
        here = make_world(world.parent / "dropout", dropout=0.1, layers=1)
    if "budget" in name:
        change = {"tethers": {k: {**MAIN["tethers"][k], **v} for k, v in change["tethers"].items()}}
        del change["tethers"]["elastic_reset"]["reset"]["n"]
        main = {**main, "tethers": {}}
    whole = run(settings(here, main, change, name=f"{slug}-whole"))
    parts = halves(settings(here, main, change, name=f"{slug}-parts"), after)
    want, have = numbers_of(whole), numbers_of(parts)
    assert [k for k in want if want[k] != have[k]] == []
    kinds = [x["kind"] for x in lines(whole)]
    assert "event" in kinds and kinds.count("start") == kinds.count("end") == 1
    assert [x["update"] for x in lines(parts) if x["kind"] == "update"] == [1, 2, 3, 4, 5, 6]


def test_the_comparison_can_fail(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without seeds from counters the two runs differ: the reward reads global generators."""
    monkeypatch.setattr("tether.train.loop.seed_user_code", lambda seed, update: None)
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    whole = run(settings(world, MAIN, name="unseeded", checkpoint={"every": 3}))
    parts = halves(settings(world, MAIN, name="unseeded-parts", checkpoint={"every": 3}), 3)
    assert numbers_of(whole)["record"] != numbers_of(parts)["record"]


def test_a_moved_folder_resumes(world: Path, tmp_path: Path) -> None:
    chosen = settings(world, MAIN, name="moved")
    with pytest.raises(PowerCut):
        train(chosen, say=lambda _: None, progress=cut_after(4))
    Path(chosen.root, chosen.name).rename(tmp_path / "elsewhere")
    folder = resume(tmp_path / "elsewhere", say=lambda _: None)
    assert numbers_of(folder) == numbers_of(run(settings(world, MAIN, name="unmoved")))


def test_another_configuration_is_refused(world: Path) -> None:
    chosen = settings(world, MAIN, name="changed")
    with pytest.raises(PowerCut):
        train(chosen, say=lambda _: None, progress=cut_after(4))
    config = Path(chosen.root, chosen.name, "config.yaml")
    config.write_text(config.read_text().replace("lr: 0.001", "lr: 0.002"))
    with pytest.raises(UserError, match="written with another configuration"):
        resume(config.parent, say=lambda _: None)


def test_a_record_that_lost_lines_is_refused(world: Path) -> None:
    chosen = settings(world, MAIN, name="lost")
    with pytest.raises(PowerCut):
        train(chosen, say=lambda _: None, progress=cut_after(4))
    record = Path(chosen.root, chosen.name, "record.jsonl")
    record.write_bytes(record.read_bytes()[:100])
    with pytest.raises(UserError, match=r"record.jsonl has 100 bytes, its checkpoint saw"):
        resume(record.parent, say=lambda _: None)


@pytest.mark.slow
def test_one_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The short form of `python -m tests.crash --kills 10`: while a checkpoint is written."""
    code = crash.main(["--kills", "1", "--keep", str(tmp_path / "x")])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "1 of 1 equal" in said
