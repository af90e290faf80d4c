"""One contract for every task in the catalog."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import shared
from tests.contracts.task_rows import MINIS, SCHEMAS
from tests.models_for_tests import byte_tokenizer
from tether.config.catalog import CATALOG
from tether.config.catalog import load as load_kind
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.parts import build, check
from tether.config.run import DataSettings, SamplingSettings
from tether.config.settings import dump, parse
from tether.rewards.batch import ARGUMENTS
from tether.tasks.definition import TaskDefinition
from tether.tasks.loading import check_columns, load_task

NAMES = sorted(CATALOG["task"])
EACH = pytest.mark.parametrize("kind", NAMES)
EVERY = pytest.mark.parametrize(
    ("kind", "number"), [(k, i) for k in NAMES for i in range(len(SCHEMAS[k]))]
)


def task_of(kind: str) -> TaskDefinition:
    found: TaskDefinition = build("task", kind)
    return found


def file_of(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return str(path)


def test_task_rows_are_there_for_all() -> None:
    assert set(SCHEMAS) == set(NAMES)


@EACH
def test_task_source_and_settings_are_documented(kind: str) -> None:
    cls = load_kind("task", kind)
    assert "Source:" in (cls.__doc__ or "")
    assert "Source:" in (sys.modules[cls.__module__].__doc__ or "")
    tree = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for setting, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(setting, ast.AnnAssign) and "ClassVar" not in ast.unparse(setting):
            assert isinstance(following, ast.Expr), f"no doc under {ast.unparse(setting)}"


@EACH
def test_task_says_what_it_is(kind: str) -> None:
    task = task_of(kind)
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", task.hub)
    assert task.licence and task.needs and task.metrics and task.naturalness and task.rewards
    assert "train" in task.hub_splits and set(task.hub_splits) <= {"train", "validation", "test"}
    for settings, given in ((DataSettings, task.data), (SamplingSettings, task.sampling)):
        assert set(given) <= {f.name for f in dataclasses.fields(settings)}
    assert set(task.evaluation) <= {f.name for f in dataclasses.fields(SamplingSettings)}
    assert task.sampling["max_new_tokens"] > 0 and task.data["max_prompt_tokens"] > 0


@EACH
def test_task_names_are_in_the_catalog(kind: str) -> None:
    if "metric" not in CATALOG["reward"]:
        pytest.skip("metrics are no rewards in this version")
    task = task_of(kind)
    assert {*task.metrics, *task.naturalness, *task.beside} <= set(CATALOG["metric"])
    for name, part in task.rewards.items():
        check("reward", dict(part), name)


@EVERY
def test_task_reads_every_schema(kind: str, number: int) -> None:
    task, row = task_of(kind), SCHEMAS[kind][number]
    before = json.dumps(row)
    (example,) = task.examples([(7, row)])
    assert example == next(iter(task.examples([(7, row)])))  # and again
    assert json.dumps(row) == before  # rows are only read
    assert example.row == 7
    assert example.prompt.strip() and example.identity
    assert example.references and all(r.strip() for r in example.references)
    assert len(set(example.references)) == len(example.references)
    assert set(example.columns) == set(task.columns)
    assert not set(task.columns) & {*ARGUMENTS, "prompt", "reference", "references"}
    json.dumps(example.columns)  # a reward can log it


@EVERY
def test_task_becomes_rows_that_a_model_reads(kind: str, number: int, tmp_path: Path) -> None:
    row = SCHEMAS[kind][number]
    path = file_of(tmp_path, [row])
    data = DataSettings(path=path, task=check("task", kind), validation_rows=0)
    assert set(check_columns(data)) >= {"prompt", "reference", "references"}
    task = load_task(data, byte_tokenizer(), SamplingSettings())["train"]
    assert task is not None and task.references is not None and len(task) == 1
    assert bytes(task.prompts[0]).decode("latin1") or task.prompts[0]
    assert len(task.notes["sha256"]) == 64


@EACH
def test_task_names_the_column_that_is_missing(kind: str, tmp_path: Path) -> None:
    first = task_of(kind).needs[0]
    row = {f"{k}x" if k in first else k: v for k, v in SCHEMAS[kind][-1].items()}
    data = DataSettings(path=file_of(tmp_path, [row]), task=check("task", kind))
    with pytest.raises(UserError, match=f"no column .*{first[-1]}.* which the task {kind} reads"):
        check_columns(data)


@EACH
def test_task_proposes_settings_that_hold_together(kind: str) -> None:
    task = task_of(kind)
    words = ["--data.task", kind, "--reward", "length"]
    s = compose("ppo", overrides=words)
    assert parse(dump(s)) == s
    assert (s.data.path, s.data.name, s.data.revision) == (
        task.hub,
        task.hub_name,
        task.hub_revision,
    )
    assert {k: getattr(s.data, k) for k in task.data} == dict(task.data)
    assert {k: getattr(s.sampling, k) for k in task.sampling} == dict(task.sampling)
    if task.evaluation:
        assert s.evaluation.sampling is not None
        found = {k: getattr(s.evaluation.sampling, k) for k in task.evaluation}
        assert found == dict(task.evaluation)
    again = compose("ppo", overrides=[*words, "--data.path", "x.jsonl", "--sampling.top_k", "3"])
    assert (again.data.path, again.data.name, again.data.revision) == ("x.jsonl", None, None)
    assert again.sampling.top_k == 3
    assert again.sampling.max_new_tokens == task.sampling["max_new_tokens"]


@EACH
def test_task_has_a_card(kind: str) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"
    text = page.read_text(encoding="utf-8")
    heading = f"### `{kind}`"
    assert text.count(heading) == 1
    card = text.split(heading)[1].split("\n### ")[0]
    task = task_of(kind)
    assert task.hub in card and task.licence.split(":")[0].split(";")[0] in card
    assert str(task.sampling["max_new_tokens"]) in card
    assert str(task.data["max_prompt_tokens"]) in card


@pytest.mark.parametrize("kind", sorted(MINIS))
def test_task_reads_real_rows(kind: str) -> None:
    path = shared(f"data/mini/{MINIS[kind]}.jsonl.gz")
    data = DataSettings(path=str(path), task=check("task", kind), validation_rows=4)
    tasks = load_task(data, byte_tokenizer(), SamplingSettings())
    train = tasks["train"]
    assert train is not None and tasks["validation"] is not None
    assert len(train) >= 9
    for text in train.raw_prompts:
        assert isinstance(text, str) and text.strip()
    keys = {n: set(t.raw_prompts) for n, t in tasks.items() if t is not None}  # type: ignore[arg-type]
    assert not keys["train"] & keys["validation"]
