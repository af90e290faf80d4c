"""Two trainers in turn: who is told what, what a row says, and that both sides run."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import vs_trl
from benchmarks.render import read, render
from benchmarks.sides import even_last
from benchmarks.workers import Worker
from tests.forked import launch

STEPPER = """
import sys
from benchmarks.workers import Parent
parent, left = Parent(), int(sys.argv[1])
print("beside the messages")
parent.tell(ready=True)
while parent.hear() == "go" and left:
    left -= 1
    parent.tell(seconds=float(left), peak_gib=None, tokens=None)
sys.exit(3)
"""


def test_steps_are_taken_in_turn_and_an_early_end_leaves_none(tmp_path: Path) -> None:
    file = tmp_path / "stepper.py"
    file.write_text(STEPPER)
    where = {"PYTHONPATH": str(vs_trl.ROOT)}
    workers = [Worker(name, [str(file), n], where) for name, n in (("a", "3"), ("b", "1"))]
    assert [w.hear() for w in workers] == [{"ready": True}] * 2
    found = vs_trl.in_turn(workers, 3)
    assert [m["seconds"] for m in found["a"]] == [2.0, 1.0, 0.0] and found["b"] == []
    assert workers[0].end() == 1 and workers[0].hear() is None


def step(seconds: float, tokens: float | None = 8.0) -> dict[str, Any]:
    return {"seconds": seconds, "peak_gib": 2.0 * seconds, "tokens": tokens}


def test_a_row_has_medians_of_neighbours() -> None:
    ours = [step(1.0), step(2.0), step(4.0)]
    theirs = [step(6.0, None), step(8.0, None), step(12.0, None)]
    found = vs_trl.row("ppo", "1.12.0", ours, theirs, "python -m benchmarks.vs_trl")
    assert (found["ours_s"], found["theirs_s"], found["ratio"]) == (2.0, 8.0, 4.0)
    assert found["ratio_spread"] == [3.0, 3.5, 5.0, 6.0]
    assert (found["ours_gib"], found["theirs_gib"]) == (8.0, 24.0)
    assert (found["ours_tokens"], found["theirs_tokens"]) == (8.0, None)


def test_the_command_of_a_row_names_no_folder_of_this_machine() -> None:
    args = vs_trl.parser().parse_args(["--trl-ppo", "/a/b", "--tokenizer", "/c"])
    args.settings = ["--batch.microbatch", "8"]
    assert vs_trl.again("ppo", args) == (
        "python -m benchmarks.vs_trl --only ppo --trl-ppo SITE --tokenizer FOLDER"
        " --batch.microbatch 8"
    )
    assert "--trl-grpo" not in vs_trl.again("grpo-hf", args)


def test_the_reward_of_trl_ppo_is_one_for_an_even_last_id() -> None:
    import torch

    model = even_last()
    states = model.score(model.backbone(input_ids=torch.tensor([[1, 2, 3, 4]])).hidden_states[-1])
    assert states[0, :, 0].tolist() == [0.0, 1.0, 0.0, 1.0]


def side(_rank: int, folder: str, words: str) -> None:
    """In a fork: a worker of `vs_trl` that talks through two named pipes."""
    for number, name, flag in ((0, "to", os.O_RDONLY), (1, "from", os.O_WRONLY)):
        os.dup2(os.open(Path(folder) / name, flag), number)
    vs_trl.main(json.loads(words))


class Forked(Worker):
    """Worker without the time that a new interpreter takes for its imports."""

    folder: Path

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        assert command[:2] == ["-m", "benchmarks.vs_trl"]
        self.name, place = name, self.folder / name
        place.mkdir()
        for pipe in ("to", "from"):
            os.mkfifo(place / pipe)
        env = {k: v for k, v in environment.items() if k != "PYTHONPATH"}
        words = ["-f", f"{__name__}:side", "0", str(place), json.dumps(command[2:])]
        self.process: Any = launch(words, place / "log", folder=vs_trl.ROOT, env=env)
        self.process.stdin = open(place / "to", "w", encoding="utf-8")  # noqa: SIM115
        self.process.stdout = open(place / "from", encoding="utf-8")  # noqa: SIM115


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("trl"), reason="TRL is not installed")
def test_both_sides_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vs_trl, "Worker", Forked)
    monkeypatch.setattr(Forked, "folder", tmp_path, raising=False)
    out = tmp_path / "vs_trl.json"
    vs_trl.main(["--tiny", "--rounds", "1", "--only", "grpo-hf", "--out", str(out)])
    found = read(out)
    (row,) = found["rows"]
    assert render(found) and row["ratio"] == pytest.approx(row["theirs_s"] / row["ours_s"])
    assert row["ours_tokens"] == row["theirs_tokens"] == 8.0
