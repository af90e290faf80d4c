"""B34: needed columns are checked before anything is loaded, with the closest name; none is lost
silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.toy import toy_tokenizer
from tether.config.errors import UserError
from tether.config.run import DataSettings, SamplingSettings
from tether.rewards.combine import RewardSet
from tether.rewards.function import FunctionReward
from tether.tasks.loading import check_columns, load_task


def settings(folder: Path, **changes: Any) -> DataSettings:
    path = folder / "x.jsonl"
    row = {"promt": "w1", "lead": "w2", "answer": "w3", "rating": 4}
    path.write_text(json.dumps(row) + "\n")
    return DataSettings(path=str(path), validation_rows=0, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "no column 'prompt' .*; did you mean 'promt'"),
        ({"prompt": "promt", "reference": "anser"}, "no column 'anser'.*'answer'"),
        ({"prompt": "promt", "label": "ratings"}, "data.label names; did you mean 'rating'"),
        ({"text": "txet"}, "no column 'txet' .* data.text names"),
    ],
)
def test_the_closest_name_is_suggested_without_a_tokenizer(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_columns(settings(tmp_path, **changes))


def test_columns_of_rewards_are_checked_in_the_same_place(tmp_path: Path) -> None:
    rewards = RewardSet({"r": FunctionReward(lambda completions, ratings: ratings)})
    columns = check_columns(settings(tmp_path, prompt="promt"))
    with pytest.raises(UserError, match="needs the column 'ratings'; did you mean 'rating'"):
        rewards.check(columns)


def test_no_column_is_dropped(tmp_path: Path) -> None:
    data = settings(tmp_path, prompt="promt")
    task = load_task(data, toy_tokenizer(), SamplingSettings())["train"]
    assert task is not None
    assert task.columns == {"promt": ["w1"], "lead": ["w2"], "answer": ["w3"], "rating": [4]}
