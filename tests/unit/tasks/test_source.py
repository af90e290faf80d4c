"""Splits of a task: found, apart from each other, hashed; from files, folders and the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.toy import toy_tokenizer
from tether.config.errors import UserError
from tether.config.parts import check
from tether.config.run import DataSettings, SamplingSettings
from tether.tasks.loading import check_columns, load_task, splits
from tether.tasks.source import source_of


def settings(path: Path | str, kind: Any = "multi30k", **more: Any) -> DataSettings:
    more = {"validation_rows": 0} | more
    return DataSettings(path=str(path), task=check("task", kind), **more)


def pair(i: int | str) -> dict[str, str]:
    return {"en": f"w{i}", "de": f"v{i}"}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """0 to 9 train, 8 to 11 validate, 9 and 11 to 13 test: 8 and 9 leak, and 11 does."""
    write(tmp_path / "train.jsonl", [pair(i) for i in range(10)])
    write(tmp_path / "val.jsonl", [pair(i) for i in (8, 9, 10, 11)])
    write(tmp_path / "test2016.jsonl", [pair(i) for i in (11, 12, 13)] + [{"en": "W9 ", "de": "x"}])
    return tmp_path


def load(s: DataSettings) -> Any:
    return load_task(s, toy_tokenizer(), SamplingSettings())


def test_no_two_splits_share_an_example(folder: Path) -> None:
    tasks = load(settings(folder))
    sources = {k: sorted(t.columns["source"]) for k, t in tasks.items()}
    assert sources == {
        "test": ["W9", "w11", "w12", "w13"],  # the test split stays whole
        "validation": ["w10", "w8"],
        "train": [f"w{i}" for i in range(8)],
    }
    notes = {k: t.notes for k, t in tasks.items()}
    assert notes["validation"]["removed_also_in_test"] == 2
    assert notes["train"]["removed_also_in_test"] == 1
    assert notes["train"]["removed_also_in_validation"] == 1
    assert notes["test"]["prompts_also_in_train"] == 0
    assert "removed_also_in_test" not in notes["test"]


def test_overlap_is_judged_before_anything_is_cut(folder: Path) -> None:
    found = splits(settings(folder, limit=3), {"validation": 1, "test": 1})
    assert {k: len(rows) for k, (_, rows) in found.items()} == {
        "train": 3,
        "validation": 1,
        "test": 1,
    }
    assert not {"w8", "w9"} & set(found["train"][0]["source"])


def test_held_out_rows_leave_no_copy_in_training(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [pair(i % 4) for i in range(40)])
    with pytest.raises(UserError, match=r"no row of the train .* Of 40 rows 4 differ, case and"):
        splits(settings(path, validation_rows=30))
    same = write(tmp_path / "same.jsonl", [pair(1)] * 64)
    with pytest.raises(UserError, match=r"no row of the .* All 64 rows are equal, case and white"):
        splits(settings(same, validation_rows=16, test_rows=16))
    path = write(tmp_path / "y.jsonl", [pair(i % 20) for i in range(40)])
    found = splits(settings(path, validation_rows=3, test_rows=3))
    names = {k: set(t["source"]) for k, (t, _) in found.items()}
    assert len(names["test"]) in (2, 3)
    assert not names["train"] & (names["validation"] | names["test"])
    assert not names["validation"] & names["test"]


def test_the_hash_is_of_content_not_of_order(folder: Path) -> None:
    first = {k: t.notes["sha256"] for k, t in load(settings(folder)).items()}
    other = {k: t.notes["sha256"] for k, t in load(settings(folder, seed=7)).items()}
    assert first == other
    write(folder / "val.jsonl", [pair(i) for i in (10, 11, 9, 8)])
    assert load(settings(folder))["validation"].notes["sha256"] == first["validation"]
    write(folder / "val.jsonl", [{"en": "w8", "de": "other"}, *(pair(i) for i in (9, 10, 11))])
    changed = {k: t.notes["sha256"] for k, t in load(settings(folder)).items()}
    assert changed["validation"] != first["validation"]
    assert (changed["train"], changed["test"]) == (first["train"], first["test"])


def test_the_hash_by_hand(tmp_path: Path) -> None:
    import hashlib

    path = write(tmp_path / "x.jsonl", [pair(2), pair(1)])
    lines = [
        '["translate English to German: w1", ["v1"]]',
        '["translate English to German: w2", ["v2"]]',
    ]
    expected = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert load(settings(path))["train"].notes["sha256"] == expected


def test_the_first_reference_trains_and_all_are_kept(tmp_path: Path) -> None:
    rows = [{"concepts": ["w1", "w2"], "references": ["w3", "w4", "w3"]}]
    path = write(tmp_path / "x.jsonl", rows)
    kind = {"kind": "commongen", "prefix": "", "end": ""}
    task = load(settings(path, kind))["train"]
    assert task.prompts == [[9, 10]]
    assert task.references == [[11, 1]]
    assert task.columns["references"] == [["w3", "w4"]]
    task = load(settings(path, kind | {"one_row_a_reference": True}))["train"]
    assert sorted(task.references) == [[11, 1], [12, 1]]
    assert task.columns["references"] == [["w3", "w4"]] * 2
    assert task.notes["rows_of_references"] == 2


@pytest.mark.parametrize("more", [{"positive_only": True}, {"one_row_a_reference": True}, {}])
def test_held_out_rows_are_the_same_whatever_trains(more: dict[str, Any], tmp_path: Path) -> None:
    reviews = [{"text": f"one {i} two {i}", "label": i % 2} for i in range(40)]
    path = write(tmp_path / "imdb.jsonl", reviews)
    held = {"validation_rows": 8, "test_rows": 6}
    plain = splits(settings(path, "imdb", **held))
    limit = None if more else 5
    found = splits(settings(path, {"kind": "imdb", **more}, limit=limit, **held))
    for name in ("validation", "test"):
        assert found[name] == plain[name] and {0, 1} == set(found[name][0]["label"])
    kept = [n for n in plain["train"][1] if not more.get("positive_only") or n % 2 == 0]
    assert found["train"][1] == kept[:limit]  # odd reviews are positive, rows count from 1
    record = load(settings(path, {"kind": "imdb", **more}, **held))
    assert record["train"].notes.get("dropped_not_for_training", 0) == 26 - len(kept)
    assert "dropped_not_for_training" not in record["validation"].notes


def test_a_task_that_trains_on_no_row_that_is_left(tmp_path: Path) -> None:
    reviews = [{"text": f"one {i} two {i}", "label": 0} for i in range(9)]
    path = write(tmp_path / "imdb.jsonl", reviews)
    with pytest.raises(UserError, match="imdb trains on none of the 6 rows of the train split tha"):
        splits(settings(path, {"kind": "imdb", "positive_only": True}, validation_rows=3))


def test_one_file_with_a_column_split(tmp_path: Path) -> None:
    rows = [{"split": s, **pair(i)} for i, s in enumerate(["train", "train", "dev", "test"])]
    path = write(tmp_path / "all.jsonl", rows)
    found = splits(settings(path))
    assert {k: t["source"] for k, (t, _) in found.items()} == {
        "test": ["w3"],
        "validation": ["w2"],
        "train": found["train"][0]["source"],
    }
    assert sorted(found["train"][0]["source"]) == ["w0", "w1"]
    assert found["test"][1] == [4]  # row of the file
    with pytest.raises(UserError, match=r"column 'split' has no 'tran'; there are \['dev'"):
        splits(settings(path, split="tran"))


def test_a_folder_without_a_training_split(tmp_path: Path) -> None:
    write(tmp_path / "dev.jsonl", [pair(i) for i in range(3)])
    write(tmp_path / "test.jsonl", [pair(i) for i in range(3, 9)])
    with pytest.raises(UserError, match=r"no split 'train'; there are \['dev', 'test'\]"):
        splits(settings(tmp_path))
    found = splits(settings(tmp_path, split="test", test_rows=2))
    assert {k: len(r) for k, (_, r) in found.items()} == {"test": 2, "validation": 3, "train": 4}


def test_hidden_references_of_a_test_split(tmp_path: Path) -> None:
    shown = [{"concepts": [f"w{i}"], "target": "x"} for i in range(3)]
    write(tmp_path / "train.jsonl", shown)
    write(tmp_path / "test.jsonl", [{"concepts": ["w9"], "target": ""}])
    assert set(splits(settings(tmp_path, "commongen"))) == {"train"}
    with pytest.raises(UserError, match="no row of the test split has a reference"):
        splits(settings(tmp_path, "commongen", test="test"))
    write(tmp_path / "train.jsonl", [*shown, {"concepts": ["w7"], "target": ""}])
    task = load_task(settings(tmp_path, "commongen"), toy_tokenizer(), SamplingSettings())["train"]
    assert task is not None and len(task) == 3
    assert task.notes["dropped_without_reference"] == 1


def test_rows_that_give_no_example_are_counted(tmp_path: Path) -> None:
    """Whatever the task leaves out, the record says how many rows and why."""
    reviews = [{"text": t, "label": i % 2} for i, t in enumerate(["a b", "", "one", "c d", "e f"])]
    path = write(tmp_path / "imdb.jsonl", reviews)
    task = load(settings(path, "imdb"))["train"]
    assert len(task) == 3 and task.notes["dropped_too_short"] == 2
    task = load(settings(path, {"kind": "imdb", "positive_only": True}))["train"]
    assert len(task) == 1 and task.notes["dropped_not_for_training"] == 2
    path = write(tmp_path / "pairs.jsonl", [pair(1), {"en": " ", "de": "x"}, {"en": "x", "de": ""}])
    assert load(settings(path))["train"].notes["dropped_empty_side"] == 2
    talks = [["w1", "w2"], ["w1", "w2", "w3"], ["w1", "w2", " ", "w4"]]
    path = write(
        tmp_path / "talk.jsonl",
        [{"dialog": t, "act": [1] * len(t), "emotion": [0] * len(t)} for t in talks],
    )
    notes = load(settings(path, {"kind": "dailydialog", "context_size": 2}))["train"].notes
    assert (notes["dropped_too_short"], notes["dropped_empty_utterance"]) == (1, 1)


def test_a_split_of_which_nothing_is_left_says_why(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"text": "one", "label": 0}] * 3)
    with pytest.raises(UserError, match="no example of the task imdb: dropped_too_short 3"):
        splits(settings(path, "imdb"))


@pytest.mark.parametrize(
    ("kind", "rows", "where"),
    [
        ("imdb", [{"text": "a b", "label": 0}, {"text": "a b\ud83d c", "label": 1}],
         "row 2, column 'text': character 4"),
        ("multi30k", [pair(1), {"en": "x", "de": "a\ud800"}], "row 2, column 'de': character 2"),
        ("multi30k", [{"translation": {"en": "\udc00", "de": "x"}}],
         "row 1, column 'translation': character 1"),
        ("commongen", [{"concepts": ["w1"], "target": t} for t in ("a", "b", "c\ud800")],
         "row 3, column 'target': character 2"),
    ],
)  # fmt: skip
def test_half_a_surrogate_pair_names_row_and_column(
    tmp_path: Path, kind: str, rows: list[dict[str, Any]], where: str
) -> None:
    rows = [{**r, "unread": "\ud800"} if i == 0 else r for i, r in enumerate(rows)]
    path = write(
        tmp_path / "x.jsonl", [{k: v for k, v in r.items() if k != "unread"} for r in rows]
    )
    with pytest.raises(UserError, match=rf"^data: {where} is half of a surrogate pair .* mend"):
        splits(settings(path, kind))


def test_half_a_pair_in_a_column_that_nobody_reads_is_no_matter(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{**pair(1), "url": "\ud800"}])
    assert set(splits(settings(path))) == {"train"}


def test_columns_are_checked_before_anything_is_loaded(folder: Path) -> None:
    there = check_columns(settings(folder))
    assert there == ["prompt", "reference", "references", "source"]
    with pytest.raises(UserError, match="which a reward names"):
        check_columns(settings(folder), ["concepts"])
    with pytest.raises(UserError, match=r"no column 'concepts' in the split 'train' .* commongen"):
        check_columns(settings(folder, "commongen"))


@pytest.mark.parametrize("key", ["text", "prompt", "reference"])
def test_columns_that_a_task_leaves_without_effect(folder: Path, key: str) -> None:
    with pytest.raises(UserError, match=f"data.{key} has no effect: drop it"):
        source_of(settings(folder, **{key: "en"}))


def test_the_hub_is_asked_by_id_configuration_and_revision(monkeypatch: Any) -> None:
    """A stand-in for `datasets.load_dataset`: what is asked, and what an answer becomes."""
    import datasets

    asked = []

    def stand_in(path: str, name: Any, split: str, revision: Any) -> Any:
        asked.append((path, name, split, revision))
        rows = {"train": ["a b", "c d"], "test": ["e f"]}[split]
        return datasets.Dataset.from_dict({"text": rows, "label": [0] * len(rows)})

    monkeypatch.setattr(datasets, "load_dataset", stand_in)
    found = splits(settings("", "imdb", validation_rows=1))
    assert {k: len(r) for k, (_, r) in found.items()} == {"test": 1, "validation": 1, "train": 1}
    assert set(asked) == {
        ("stanfordnlp/imdb", None, "train", None),
        ("stanfordnlp/imdb", None, "test", None),
    }
    asked.clear()
    splits(settings("mine/reviews", "imdb", name="x", revision="v2"))
    assert set(asked) == {("mine/reviews", "x", s, "v2") for s in ("train", "test")}


@pytest.mark.parametrize(
    ("name", "text"),
    [("d.jsonl", ""), ("d.csv", ""), ("d.json", "[]"), ("d.csv", "en,de\n"), ("d.jsonl", "\n")],
)
def test_a_file_without_rows(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=rf"{name} \(split 'train'\) has no rows"):
        splits(settings(tmp_path / name))
    with pytest.raises(UserError, match=rf"{name} \(split 'train'\) has no rows"):
        splits(DataSettings(path=str(tmp_path / name), prompt="en"))
