"""A task in a whole run: its columns reach the reward, its hashes the record, its references the
supervised trainer and the human-text gauges; a rehearsal may read a task of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tether
from tests.runs_for_tests import make_world

SMALL: dict[str, Any] = {
    "threads": 1,
    "updates": 1,
    "model": {"device": "cpu", "dtype": "float32"},
    "data": {"path": "mini", "max_prompt_tokens": 32},
    "batch": {"prompts": 4, "microbatch": 4},
    "sampling": {"max_new_tokens": 4, "min_new_tokens": 0},
    "evaluation": {"every": 1, "prompts": 4, "human_rows": 2, "human_tokens": 16, "samples": 2},
    "checkpoint": {"export": False},
}
SEEN: list[dict[str, Any]] = []


def concepts_used(concepts: list[list[str]], references: list[list[str]]) -> list[float]:
    """A reward that reads the task's columns."""
    SEEN.append({"concepts": concepts, "references": references})
    return [float(len(c)) for c in concepts]


@pytest.mark.parametrize("model", ["gpt2", "t5"])
def test_ppo_reads_columns_and_records_hashes(tmp_path: Path, model: str) -> None:
    world = make_world(tmp_path, model)
    SEEN.clear()
    run = tether.train(
        "ppo",
        reward=concepts_used,
        root=str(tmp_path / "runs"),
        name="run",
        **{**SMALL, "model": {**SMALL["model"], "path": str(world / "model")}},
        **{"data.task": "commongen"},
    )
    assert SEEN and all(len(r) >= 2 for r in SEEN[0]["references"])
    notes = tether.load_record(run)[0]["notes"]
    assert {k: n["rows"] for k, n in notes.items()} == {"train": 40, "validation": 4}
    assert len({n["sha256"] for n in notes.values()}) == 2
    (point, *_) = tether.load_points(run)
    assert 3 <= point.reward <= 5  # concepts of a set


def test_supervised_training_sees_every_reference(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    run = tether.train(
        "supervised",
        reward="length",
        root=str(tmp_path / "runs"),
        name="run",
        **{**SMALL, "model": {**SMALL["model"], "path": str(world / "model")}},
        **{"data.task": {"kind": "narrativeqa", "one_row_a_reference": True}},
    )
    record = tether.load_record(run)
    notes = record[0]["notes"]["train"]
    assert notes["rows_of_references"] == notes["rows"] == 80
    assert any("human/perplexity" in (line.get("metrics") or {}) for line in record)


def test_a_rehearsal_reads_a_task_of_its_own(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    own = {"path": "mini", "task": "iwslt17", "max_prompt_tokens": 32, "too_long": "truncate_left"}
    run = tether.train(
        "ppo",
        reward="length",
        root=str(tmp_path / "runs"),
        name="run",
        tethers={"rehearsal": {"kind": "rehearsal", "data": own, "rows": 4, "tokens": 8}},
        **{**SMALL, "model": {**SMALL["model"], "path": str(world / "model")}},
        **{"data.task": "commongen"},
    )
    metrics = next(x["metrics"] for x in tether.load_record(run) if x["kind"] == "update")
    assert any(k.startswith("tether/rehearsal") for k in metrics)
