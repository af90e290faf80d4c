"""Preference pairs: columns, prompts, what is left out, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tether.config.errors import UserError
from tether.config.run import DataSettings, PairSettings
from tether.tasks.preferences import load_pairs


def data(tmp_path: Path, rows: list[dict[str, Any]], **settings: Any) -> DataSettings:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return DataSettings(path=str(file), validation_rows=settings.pop("validation_rows", 0))


def row(i: int, **other: Any) -> dict[str, Any]:
    return {"prompt": f"q{i} ", "chosen": f"good {i}", "rejected": f"bad {i}", **other}


def test_texts_are_joined_as_a_reward_joins_them(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hello"}]
    rows = [row(0), row(1, prompt=chat, chosen=[{"role": "assistant", "content": "hi"}])]
    found = load_pairs(data(tmp_path, rows), PairSettings())["train"].pairs
    texts = {p.row: p.texts for p in found}
    assert texts == {1: ("q0 good 0", "q0 bad 0"), 2: ("hello\nhi", "hello\nbad 1")}


def test_without_a_prompt_it_is_what_both_begin_with(tmp_path: Path) -> None:
    rows = [{"chosen": "Q: why? A: because it is", "rejected": "Q: why? A: become it"}]
    (p,) = load_pairs(data(tmp_path, rows), PairSettings(prompt=None))["train"].pairs
    assert (p.prompt, p.chosen, p.rejected) == ("Q: why? A: ", "because it is", "become it")


def test_names_and_margins(tmp_path: Path) -> None:
    rows = [{"question": "q", "yes": "a", "no": "b", "gap": 2}]
    columns = PairSettings(prompt="question", chosen="yes", rejected="no", margin="gap")
    (p,) = load_pairs(data(tmp_path, rows), columns)["train"].pairs
    assert p.margin == 2.0 and p.texts == ("qa", "qb")


def several(prompts: int, each: int) -> list[dict[str, Any]]:
    return [row(i // each, chosen=f"good {i}") for i in range(prompts * each)]


def test_whole_prompts_are_held_out(tmp_path: Path) -> None:
    settings = replace(data(tmp_path, several(10, 4)), validation_rows=6, test_rows=4)
    found = load_pairs(settings, PairSettings())
    assert {k: len(v) for k, v in found.items()} == {"test": 4, "validation": 8, "train": 28}
    prompts = [{p.prompt for p in v.pairs} for v in found.values()]
    assert [len(p) for p in prompts] == [1, 2, 7] and len(set.union(*prompts)) == 10
    assert load_pairs(settings, PairSettings()) == found
    assert load_pairs(replace(settings, seed=1), PairSettings()) != found
    fewer = load_pairs(replace(settings, limit=5), PairSettings())
    assert fewer["train"].pairs == found["train"].pairs[:5]
    assert fewer["validation"] == found["validation"]


def test_a_prompt_of_a_named_split_leaves_training(tmp_path: Path) -> None:
    other = tmp_path / "held.jsonl"
    other.write_text("".join(json.dumps(r) + "\n" for r in several(3, 2)))
    settings = replace(data(tmp_path, several(10, 4)), validation=str(other))
    found = load_pairs(settings, PairSettings())
    assert len(found["validation"]) == 6 and len(found["train"]) == 28
    assert found["train"].notes == {"rows": 40, "dropped_prompt_held_out": 12}


def test_equal_completions_prefer_nothing(tmp_path: Path) -> None:
    found = load_pairs(data(tmp_path, [row(0), row(1, chosen="x", rejected="x")]), PairSettings())
    assert len(found["train"]) == 1
    assert found["train"].notes == {"rows": 2, "dropped_equal": 1}
    with pytest.raises(UserError, match=r"no pair of .* is left for train"):
        load_pairs(data(tmp_path, [row(0, chosen="x", rejected="x")]), PairSettings())


@pytest.mark.parametrize(
    ("columns", "change", "message"),
    [
        ({"chosen": "choosen"}, {}, r"no column 'choosen'.*pairs.chosen names; did you mean"),
        ({"margin": "gap"}, {}, "pairs.margin names"),
        ({}, {"chosen": None}, "row 1, column 'chosen' holds null, expected text"),
        ({}, {"rejected": ["a"]}, "row 1, column 'rejected' holds"),
        ({}, {"chosen": "\ud800"}, "half of a surrogate pair"),
        ({"margin": "m"}, {"m": "much"}, "column 'm' holds 'much', expected a number"),
        ({"margin": "m"}, {"m": float("nan")}, "expected a number"),
    ],
)
def test_one_line_says_what_is_wrong(
    tmp_path: Path, columns: dict[str, str], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as e:
        load_pairs(data(tmp_path, [row(0, **change)]), PairSettings(**columns))
    assert "\n" not in str(e.value)
