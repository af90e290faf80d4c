"""`data.task`: the lowest layer of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

import tether
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.json_schema import json_schema


def test_a_task_fills_in_what_nobody_says() -> None:
    s = compose("ppo", overrides=["--data.task", "commongen", "--reward", "length"])
    assert s.sampling.max_new_tokens == 20 and s.sampling.min_new_tokens == 4
    assert s.evaluation.sampling is not None and s.evaluation.sampling.greedy
    assert (s.data.max_prompt_tokens, s.data.too_long) == (20, "truncate_right")
    assert list(s.rewards) == ["reward"]  # none of the task's beside the user's


def test_recipe_files_and_overrides_win(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "data: {task: commongen, too_long: drop}\nsampling: {max_new_tokens: 7}\n"
    )
    words = ["--data.max_prompt_tokens", "9", "--reward", "length"]
    s = compose("ppo", [tmp_path / "x.yaml"], words)
    assert (s.data.max_prompt_tokens, s.data.too_long) == (9, "drop")
    assert (s.sampling.max_new_tokens, s.sampling.min_new_tokens) == (7, 4)
    assert s.evaluation.sampling is not None and s.evaluation.sampling.max_new_tokens == 7


def test_settings_of_the_task_are_overrides_too(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("data: {task: dailydialog}\n")
    words = ["--data.task.context_size", "3", "--reward", "length"]
    s = compose("ppo", [tmp_path / "x.yaml"], words)
    assert s.data.task is not None
    assert (s.data.task["kind"], s.data.task["context_size"]) == ("dailydialog", 3)
    with pytest.raises(UserError, match="unknown key 'contxt_size'"):
        compose(
            "ppo", overrides=["--data.task.kind", "dailydialog", "--data.task.contxt_size", "3"]
        )


def test_the_reward_is_the_tasks_where_there_is_none() -> None:
    s = compose("ppo", overrides=["--data.task", "imdb"])
    assert list(s.rewards) == ["sentiment"]
    assert s.rewards["sentiment"]["path"] == "lvwerra/distilbert-imdb"
    assert compose("ppo", values={"data": {"task": "imdb"}, "rewards": {}}).rewards == {}


def test_a_resolved_configuration_stays_as_it_is(tmp_path: Path) -> None:
    from tether.config.settings import dump
    from tether.config.text_values import write_yaml

    s = compose(
        "ppo", overrides=["--data.task", "iwslt17", "--data.path", "x", "--reward", "length"]
    )
    write_yaml(tmp_path / "config.yaml", dump(s))
    assert compose(None, [tmp_path / "config.yaml"]) == s


def test_null_drops_the_task() -> None:
    s = compose("grue-imdb-ppo", overrides=["--data.task", "null", "--reward", "length"])
    assert s.data.task is None and s.data.path == "" and s.sampling.max_new_tokens == 48
    assert s.sampling.min_new_tokens == 0


def test_an_unknown_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown task 'comongen'.*did you mean 'commongen'"):
        compose("ppo", overrides=["--data.task", "comongen"])


def test_a_task_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        """from dataclasses import dataclass
from typing import ClassVar

from tether.tasks.definition import Example, TaskDefinition


@dataclass(kw_only=True)
class Riddles(TaskDefinition):
    hint: str = "?"
    sampling: ClassVar = {"max_new_tokens": 3}

    def examples(self, rows):
        for number, row in rows:
            yield Example(number, row["riddle"] + self.hint, [row["answer"]])
"""
    )
    words = ["--data.task.kind", "mine.py:Riddles", "--data.task.hint", "!", "--reward", "length"]
    s = tether.settings("ppo", data="x.jsonl", overrides=words)
    assert s.data.task == {
        "kind": "mine.py:Riddles",
        "one_row_a_reference": False,
        "hint": "!",
    }
    assert s.sampling.max_new_tokens == 3


def test_the_schema_for_editors_knows_tasks() -> None:
    found = json_schema()["$defs"]["part_task"]["anyOf"]
    kinds = [k["properties"]["kind"].get("const") for k in found]
    assert {"commongen", "totto", "multi30k"} <= set(kinds)
