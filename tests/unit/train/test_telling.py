"""What a run says of itself while it trains."""

from __future__ import annotations

from pathlib import Path

from tests.runs_for_tests import make_world, settings
from tether.train.run import train


def test_the_weights_before_training_are_not_those_after_an_update(tmp_path: Path) -> None:
    said: dict[int, str] = {}
    mine = settings(make_world(tmp_path), name="a", updates=2, evaluation={"every": 1})
    train(mine, say=lambda _: None, progress=lambda done, _, words: said.update({done: words}))
    first = [x for x in said[1].split("; ") if x.startswith("evaluation")]
    assert first[0].startswith("evaluation before training: reward ")
    assert first[1].startswith("evaluation: reward ")
    assert "before training" not in said[2]
