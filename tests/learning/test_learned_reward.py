"""A classifier that we train is a reward: labels to head to folder to score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs_for_tests import lines, make_world, run, settings
from tether.config.settings import parse
from tether.models.classifier_loading import load_classifier


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("learned"))
    with open(folder / "labelled.jsonl", "w", encoding="utf-8") as f:
        for i in range(120):
            good = i % 2
            text = f"{'zz ' * 3 if good else 'qq ' * 3}{i}"
            f.write(json.dumps({"text": text, "label": good}) + "\n")
    return folder


def classifier(world: Path, name: str, **changes: object) -> Path:
    mapping = {
        "job": "classifier",
        "name": name,
        "root": str(world / "runs"),
        "threads": 1,
        "model": {"path": str(world / "model"), "device": "cpu", "dtype": "float32"},
        "data": {"path": str(world / "labelled.jsonl"), "text": "text", "label": "label",
                 "validation_rows": 40},
        "lr": 3e-3, "epochs": 6, "batch_size": 8, "crop_tokens": [4, 8], "evaluate_crops": [6],
    }  # fmt: skip
    return run(parse({**mapping, **changes}, "a test"))  # type: ignore[arg-type]


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_it_learns_is_saved_and_scores_as_it_is_asked(world: Path, lora: object) -> None:
    name = "full" if lora is None else "lora"
    model = {"path": str(world / "model"), "device": "cpu", "dtype": "float32", "lora": lora}
    folder = classifier(world, name, model=model)
    results = json.loads((folder / "results.json").read_text())
    assert results["validation"]["accuracy"] >= 0.9
    assert (folder / "environment.json").is_file()
    path = str(folder / "classifier")
    reward = {"kind": "classifier", "path": path, "label": "1", "reads": "completion",
              "device": "cpu"}  # fmt: skip
    trained = run(settings(world, name=f"ppo-{name}", updates=1, rewards={"reward": reward}))
    samples = [json.loads(x) for x in (trained / "samples.jsonl").read_text().splitlines()]
    found = load_classifier(path, device="cpu").probabilities([s["completion"] for s in samples])
    assert [s["score"] for s in samples] == pytest.approx(found[:, 1].tolist(), abs=1e-5)
    assert lines(trained)[-1]["kind"] == "end"


def test_the_judge_is_trained_on_the_other_half(world: Path) -> None:
    folder = classifier(world, "judge", kind="tfidf", half="second", model={})
    results = json.loads((folder / "results.json").read_text())
    assert results["train_rows"] == 40 and results["validation"]["accuracy"] == 1.0
    judge = {"kind": "tfidf", "path": str(folder / "judge.json")}
    trained = run(settings(world, name="judged", updates=1, judges={"judge": judge}))
    points = [x for x in lines(trained) if x["kind"] == "eval"]
    assert all(0 <= p["judges"]["judge"] <= 1 and "judge" not in p["scores"] for p in points)
