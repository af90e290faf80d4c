"""Files, splits, text mode, chat messages, lengths."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.toy import toy_tokenizer, words
from tether.config.errors import UserError
from tether.config.run import DataSettings, SamplingSettings
from tether.tasks.loading import check_columns, load_task, splits
from tether.tasks.reading import read_file

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
ROWS = [{"prompt": f"w{i} w{i + 1}", "answer": f"w{i + 2}", "n": i} for i in range(20)]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    text = "".join(json.dumps(r) + "\n" for r in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return str(path)


def load(path: str, **settings: Any) -> Any:
    settings = {"validation_rows": 4, "test_rows": 2} | settings
    return load_task(DataSettings(path=path, **settings), toy_tokenizer(), SamplingSettings())


def written(tmp_path: Path, ending: str) -> str:
    path = tmp_path / f"rows{ending}"
    if ending.startswith(".jsonl"):
        return jsonl(path, ROWS)
    if ending == ".json":
        path.write_text(json.dumps(ROWS))
        return str(path)
    import pandas

    frame = pandas.DataFrame(ROWS)
    frame.to_csv(path, index=False) if ending == ".csv" else frame.to_parquet(path)
    return str(path)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet"])
def test_every_file_format_gives_the_same_tasks(tmp_path: Path, ending: str) -> None:
    tasks = load(written(tmp_path, ending), reference="answer")
    train, validation, test = tasks["train"], tasks["validation"], tasks["test"]
    assert (len(train), len(validation), len(test)) == (14, 4, 2)
    numbers = [x for t in tasks.values() for x in t.columns["n"]]
    assert sorted(numbers) == list(range(20))
    i = train.columns["n"].index(numbers[0])
    n = numbers[0]
    assert train.raw_prompts[i] == f"w{n} w{n + 1}"
    assert train.prompts[i] == [8 + n, 9 + n]
    assert train.references[i] == [10 + n, 1]
    assert train.source[i] == n + 1


def test_rows_held_out_depend_on_the_data_seed_only(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", ROWS)
    one, two = load(path), load(path)
    assert one["validation"].source == two["validation"].source
    assert one["validation"].source != load(path, seed=1)["validation"].source
    few = load(path, limit=3)
    assert len(few["train"]) == 3
    assert few["validation"].source == one["validation"].source


def test_a_folder_is_read_by_split_name(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", ROWS)
    jsonl(tmp_path / "dev.jsonl.gz", ROWS[:3])
    tasks = load(str(tmp_path), validation="dev", test_rows=0)
    assert len(tasks["validation"]) == 3
    assert len(tasks["train"]) == 20
    assert tasks["validation"].notes["prompts_also_in_train"] == 3
    assert tasks["test"] is None
    with pytest.raises(UserError, match="did you mean 'dev'"):
        load(str(tmp_path), validation="dve")


def test_a_validation_file_of_its_own(tmp_path: Path) -> None:
    other = jsonl(tmp_path / "other.jsonl", [{"prompt": "w50"}, {"prompt": "w0 w1"}])
    tasks = load(jsonl(tmp_path / "x.jsonl", ROWS), validation=other)
    assert len(tasks["validation"]) == 2
    at_home = "w0 w1" in tasks["train"].raw_prompts
    assert tasks["validation"].notes["prompts_also_in_train"] == int(at_home)


def test_duplicates_are_counted(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", [{"prompt": "w1"}] * 5)
    tasks = load(path, validation_rows=2, test_rows=1)
    assert tasks["train"].notes["prompts_repeated"] == 1
    assert tasks["validation"].notes["prompts_also_in_train"] == 2
    assert tasks["test"].notes["prompts_also_in_validation"] == 1


def test_text_mode_cuts_prompt_and_reference(tmp_path: Path) -> None:
    rows = [{"text": words(10)}, {"text": words(4)}, {"text": words(3)}]
    path = jsonl(tmp_path / "x.jsonl", rows)
    settings = DataSettings(path=path, text="text", prompt_tokens=3, validation_rows=0)
    task = load_task(settings, toy_tokenizer(bos=True), SamplingSettings())["train"]
    assert task is not None and task.references is not None
    assert task.notes["dropped_short"] == 1
    i = task.source.index(1)
    assert task.prompts[i] == [2, 8, 9, 10]
    assert task.references[i] == [*range(11, 18), 1]
    assert task.raw_prompts[i] == "w0 w1 w2"


def test_chat_messages_pass_through_the_template(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "w5"}, {"role": "user", "content": words(6)}]
    path = jsonl(tmp_path / "x.jsonl", [{"prompt": chat}])
    task = load(path, validation_rows=0, test_rows=0)["train"]
    # <system> w5 <end> <user> w0 ... w5 <end> <assistant>
    assert task.prompts == [[5, 13, 7, 4, *range(8, 14), 7, 6]]
    assert task.raw_prompts == [chat]


@pytest.mark.parametrize(
    ("policy", "ids"),
    [
        ("truncate_right", [5, 13, 7, 4, 8, 9, 7, 6]),
        ("truncate_left", [8, 9, 10, 11, 12, 13, 7, 6]),
    ],
)
def test_a_cut_chat_prompt_keeps_the_assistants_turn(
    tmp_path: Path, policy: str, ids: list[int]
) -> None:
    chat = [{"role": "system", "content": "w5"}, {"role": "user", "content": words(6)}]
    path = jsonl(tmp_path / "x.jsonl", [{"prompt": chat}])
    tasks = load(path, validation_rows=0, test_rows=0, max_prompt_tokens=8, too_long=policy)
    assert tasks["train"].prompts == [ids]
    assert tasks["train"].notes["cut_too_long"] == 1


def test_a_cut_text_keeps_the_start_token_and_shows_what_was_read(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", [{"prompt": words(6)}])
    settings = DataSettings(
        path=path, validation_rows=0, max_prompt_tokens=4, too_long="truncate_left"
    )
    task = load_task(settings, toy_tokenizer(bos=True), SamplingSettings())["train"]
    assert task is not None
    assert task.prompts == [[2, 11, 12, 13]]
    assert task.raw_prompts == ["w3 w4 w5"]


def test_a_frame_longer_than_the_limit_is_an_error(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", [{"prompt": [{"role": "user", "content": words(6)}]}])
    with pytest.raises(UserError, match="row 1: the chat template alone has 2 tokens"):
        load(path, validation_rows=0, test_rows=0, max_prompt_tokens=2, too_long="truncate_right")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no rows"),
        ([{"prompt": None}], "row 1, column 'prompt' holds None"),
        ([{"prompt": [{"role": "user"}]}], "needs 'role' and 'content'"),
        (
            [{"prompt": [{"role": "user", "content": "a\ud83d"}]}],
            "row 1, column 'prompt': character 2 is half of a surrogate pair",
        ),
        ([{"prompt": "w1", "completions": 1}], "reward function's own argument"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(jsonl(tmp_path / "x.jsonl", rows), validation_rows=0, test_rows=0)


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"prompt": "w1"}\n{"prompt": \n')
    with pytest.raises(UserError, match=r"x\.jsonl, line 2 is not JSON"):
        check_columns(DataSettings(path=str(tmp_path / "x.jsonl")))
    with pytest.raises(UserError, match="no file"):
        check_columns(DataSettings(path=str(tmp_path / "y.parquet")))
    with pytest.raises(UserError, match=r"20 rows are to be held out but .* has 20"):
        load(jsonl(tmp_path / "z.jsonl", ROWS), validation_rows=18)


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.csv", "x.jsonl.gz"])
def test_a_bom_is_no_text(tmp_path: Path, name: str) -> None:
    """Programs of Windows write one before UTF-8."""
    text = {
        "x.jsonl": '{"prompt": "w1"}\n{"prompt": "w2"}\n',
        "x.json": '[{"prompt": "w1"}, {"prompt": "w2"}]',
        "x.csv": "prompt\nw1\nw2\n",
    }[name.removesuffix(".gz")]
    data = text.encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_file(tmp_path / name) == {"prompt": ["w1", "w2"]}


def test_a_reference_that_does_not_fit_is_cut_and_counted(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", [{"prompt": words(4), "answer": words(9)}])
    settings = DataSettings(path=path, reference="answer", validation_rows=0)
    sampling = SamplingSettings(max_new_tokens=6)
    task = load_task(settings, toy_tokenizer(), sampling, max_positions=10)["train"]
    assert task is not None and task.references == [[*range(8, 14)]]
    assert task.notes["references_cut"] == 1


def test_several_references_use_the_first_and_keep_all_in_the_column(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", [{"prompt": "w0", "answer": ["w3", "w4"]}])
    task = load(path, reference="answer", validation_rows=0, test_rows=0)["train"]
    assert task.references == [[11, 1]]
    assert task.columns["answer"] == [["w3", "w4"]]


def test_caps_cut_any_split(tmp_path: Path) -> None:
    settings = DataSettings(path=jsonl(tmp_path / "x.jsonl", ROWS), validation_rows=8, test_rows=2)
    found = splits(settings, {"validation": 3})
    assert {k: len(v[1]) for k, v in found.items()} == {"train": 10, "validation": 3, "test": 2}


def test_other_columns_than_those_of_the_settings(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", [{"chosen": "w1", "prompts": "x"}] * 3)
    settings = DataSettings(path=path, validation_rows=1)
    assert set(splits(settings, columns={"pairs.chosen": "chosen"})) == {"train", "validation"}
    with pytest.raises(UserError, match=r"no column 'rejected' .* which pairs.rejected names"):
        splits(settings, columns={"pairs.rejected": "rejected"})
    with pytest.raises(UserError, match="no column 'prompt'"):
        splits(settings)


@pytest.mark.skipif(not (SHARED / "imdb").is_dir(), reason="../shared/data/imdb is absent")
def test_imdb_from_its_folder() -> None:
    settings = DataSettings(
        path=str(SHARED / "imdb"), text="text", label="label", test="test", validation_rows=200,
        limit=200,
    )  # fmt: skip
    assert set(check_columns(settings)) == {"id", "text", "label", "rating"}
    tasks = load_task(
        settings, toy_tokenizer(), SamplingSettings(), max_positions=2048, caps={"test": 100}
    )
    assert [len(t) + t.notes.get("dropped_short", 0) for t in tasks.values() if t] == [
        200,
        200,
        100,
    ]
    assert all(len(p) == 64 for t in tasks.values() if t for p in t.prompts)


@pytest.mark.parametrize(
    "text",
    ["prompt,chosen,rejected\na,b,c,checked\nd,e,f,checked\n",  # pandas: the first names the rows
     "prompt,chosen,rejected\na,b,c\nd,e,f,checked\n"],
)  # fmt: skip
def test_a_csv_row_with_more_cells_than_names_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UserError, match=r"x\.csv: .*(more cells than|Expected 3 fields)"):
        read_file(tmp_path / "x.csv")


def test_csv_columns_stay_where_they_are(tmp_path: Path) -> None:
    """A comma behind every row; a row that ends early; text with a comma."""
    (tmp_path / "x.csv").write_text('a,b,c\n1,"x, y",3,\n4,z,,\n')
    assert read_file(tmp_path / "x.csv") == {"a": [1, 4], "b": ["x, y", "z"], "c": [3.0, None]}
    (tmp_path / "x.csv").write_text("a,b\nu\nv,w\n")
    assert read_file(tmp_path / "x.csv") == {"a": ["u", "v"], "b": [None, "w"]}
