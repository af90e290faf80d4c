"""Preference pairs: columns, prompts, what is left out, and what is refused."""

from __future__ import annotations

import json
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


def test_a_prompt_is_in_one_split(tmp_path: Path) -> None:
    rows = [row(i // 4) for i in range(40)]
    rows = [{**r, "chosen": f"{r['chosen']}.{i}"} for i, r in enumerate(rows)]
    found = load_pairs(data(tmp_path, rows, validation_rows=4), PairSettings())
    held, train = ({p.prompt for p in found[k].pairs} for k in ("validation", "train"))
    assert held and train and not held & train
    notes = found["train"].notes
    assert notes["dropped_prompt_held_out"] == 36 - len(found["train"])


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
