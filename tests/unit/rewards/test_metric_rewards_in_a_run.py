"""A run whose reward and judge are metrics: configured, recorded, resumable by its own file."""

from __future__ import annotations

from pathlib import Path

import pytest

import tether
from tests.docs.blocks import world
from tether.config.errors import UserError
from tether.config.settings import read


def test_a_metric_trains_and_another_judges(tmp_path: Path) -> None:
    world(tmp_path)
    shared = {
        "model": str(tmp_path / "tiny"),
        "data": str(tmp_path / "prompts.jsonl"),
        "root": str(tmp_path / "runs"),
        "updates": 1,
        "threads": 1,
        "data.validation_rows": 8,
        "data.reference": "reference",
        "sampling.max_new_tokens": 4,
        "batch.prompts": 8,
        "checkpoint.export": False,
    }
    chrf = {"kind": "metric", "metric": {"kind": "chrf", "order": 2}, "references": "reference"}
    distinct = {"kind": "metric", "metric": "distinct_1"}
    run = tether.train("ppo", name="m", rewards={"chrf": chrf}, judges={"d": distinct}, **shared)
    lines = tether.load_record(run)
    last = next(x for x in reversed(lines) if x["kind"] == "eval")
    assert 0.0 <= last["scores"]["chrf"] <= 1.0 and 0.0 <= last["judges"]["d"] <= 1.0
    settings = read(run)
    assert settings.rewards["chrf"]["metric"]["order"] == 2
    assert settings.judges["d"]["metric"]["kind"] == "distinct_1"
    with pytest.raises(UserError, match="needs the column 'references'; did you mean 'reference'"):
        tether.train("ppo", name="n", rewards={"c": {**chrf, "references": "references"}}, **shared)
