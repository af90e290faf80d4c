"""Without an update the model is evaluated as it is; all test completions are kept on request."""

from __future__ import annotations

from pathlib import Path

from tests.runs_for_tests import make_world, settings
from tether.records import read_lines, read_points
from tether.train.run import complete, train

TESTED = {"evaluation": {"test_prompts": 5, "test_samples": 5}, "data": {"test_rows": 5}}


def test_the_model_as_it_is(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    s = settings(world, TESTED, {"algorithm": {"kind": "supervised"}}, updates=0, name="zero")
    folder = train(s, say=lambda text: None)
    assert complete(folder) and not list((folder / "checkpoints").glob("*"))
    points = read_points(folder / "record.jsonl")
    assert [p.update for p in points if p.split == "validation"] == [0]
    tested = {p.weights: p for p in points if p.split == "test"}
    assert set(tested) == {"final", "initial", *(f"budget:{b}" for b in (1, 2, 4, 8, 16))}
    assert len({p.reward for p in tested.values()}) == 1  # one evaluation
    rows = list(read_lines(folder / "samples.jsonl"))
    assert len([r for r in rows if r["split"] == "validation"]) == 2  # evaluation.samples
    assert sorted(r["row"] for r in rows if r["split"] == "test") == [0, 1, 2, 3, 4]


def test_every_tested_set_of_weights_has_its_completions(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    folder = train(settings(world, TESTED, updates=2, name="two"), say=lambda text: None)
    tested = {p.update for p in read_points(folder / "record.jsonl") if p.split == "test"}
    rows = [r for r in read_lines(folder / "samples.jsonl") if r["split"] == "test"]
    assert {0, 2} <= tested
    for update in tested:
        assert {r["row"] for r in rows if r["update"] == update} == {0, 1, 2, 3, 4}
