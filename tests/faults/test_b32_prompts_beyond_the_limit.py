"""B32: prompt + new tokens fit the model's positions, checked at load: error, drop or cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.toy import toy_tokenizer, words
from tether.config.errors import UserError
from tether.config.run import DataSettings, SamplingSettings
from tether.tasks.loading import load_task


def load(folder: Path, **settings: Any) -> Any:
    path = folder / "prompts.jsonl"
    rows = [{"prompt": words(10)}, {"prompt": words(80)}]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    data = DataSettings(path=str(path), validation_rows=0, **settings)
    sampling = SamplingSettings(max_new_tokens=16)
    return load_task(data, toy_tokenizer(), sampling, max_positions=64)["train"]


def test_error_names_row_2_and_the_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"row 2 has 80 tokens, the limit is 48; set data.too_long"):
        load(tmp_path)


def test_drop_trains_row_1_and_reports_1(tmp_path: Path) -> None:
    task = load(tmp_path, too_long="drop")
    assert task.source == [1]
    assert task.notes["dropped_too_long"] == 1


@pytest.mark.parametrize(("side", "first"), [("truncate_left", 8 + 32), ("truncate_right", 8)])
def test_cut_keeps_both_rows_and_the_named_side(tmp_path: Path, side: str, first: int) -> None:
    task = load(tmp_path, too_long=side)
    assert sorted(task.source) == [1, 2]
    i = task.source.index(2)
    assert task.prompts[i] == list(range(first, first + 48))
    assert task.prompts[1 - i] == list(range(8, 18))
    assert task.notes["cut_too_long"] == 1


def test_limits_that_no_model_position_can_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"max_prompt_tokens 60 .* use at most 48"):
        load(tmp_path, max_prompt_tokens=60)
    with pytest.raises(UserError, match=r"leaves no room for a prompt .* use at most 15"):
        load_task(
            DataSettings(path=str(tmp_path / "prompts.jsonl")),
            toy_tokenizer(),
            SamplingSettings(max_new_tokens=16),
            max_positions=16,
        )


def test_when_every_row_is_too_long_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no rows left.*dropped_too_long': 2"):
        load(tmp_path, max_prompt_tokens=5, too_long="drop")
