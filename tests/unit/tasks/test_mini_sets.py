"""The bundled miniature sets: what the script writes, small, whole, and without overlap."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.tasks.toy import toy_tokenizer
from tether.config.errors import UserError
from tether.config.parts import check
from tether.config.run import DataSettings, SamplingSettings
from tether.tasks.definition import MINI
from tether.tasks.loading import load_task, splits

ROOT = Path(__file__).resolve().parents[3]
HASHES = {
    "cnn_dailymail": "241c6469a09e2b2ade2ee51eff281a7f258308901997465b641cf509c8fb1802",
    "commongen": "605e42dec628e0fcf625f8fe1133b1dbdee5d57bb2c7fe9d9a88a56cf78033b6",
    "dailydialog": "c8e29045331e56234dd026753d04422ab7b694e754d4a6aa17eebed143959718",
    "imdb": "988cb313b4efae3ccc2c030ff0fefcd7a0e05f84e508ca698dd2ad7d77738b41",
    "iwslt17": "996f46a33942d1c8d917e8c4c94bed485f0aea97c6691b7dc8059b7004aac473",
    "narrativeqa": "96f4f5c21d1ce86b6caa29b0abd32d477a05889ffe49c452290d3bbe0ed5c279",
    "totto": "359679d9c51ddb21786c40f8f4e0eb3e3efbe38ada43739e2d53d8ac279bf4d8",
}
"""SHA-256 of the unpacked files."""


def test_there_are_seven_and_they_are_small() -> None:
    files = sorted(MINI.glob("*"))
    assert [f.name.removesuffix(".jsonl.gz") for f in files] == sorted(HASHES)
    assert sum(f.stat().st_size for f in files) < 100_000


@pytest.mark.parametrize("kind", HASHES)
def test_content(kind: str) -> None:
    content = gzip.decompress((MINI / f"{kind}.jsonl.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() == HASHES[kind]
    rows = [json.loads(line) for line in content.splitlines()]
    assert len(rows) == 64
    counts = {s: sum(r["split"] == s for r in rows) for s in ("train", "validation", "test")}
    assert counts == {"train": 40, "validation": 12, "test": 12}


@pytest.mark.parametrize("kind", HASHES)
def test_splits_have_nothing_in_common(kind: str) -> None:
    data = DataSettings(path="mini", task=check("task", kind))
    tasks = load_task(data, toy_tokenizer(), SamplingSettings())
    each = 2 if kind == "dailydialog" else 1  # seven utterances are two examples
    assert {k: len(t) for k, t in tasks.items() if t} == {
        "train": 40 * each,
        "validation": 12 * each,
        "test": 12 * each,
    }
    for t in tasks.values():
        assert t is not None
        assert not any(v for k, v in t.notes.items() if k.startswith(("removed", "dropped")))


def test_references_are_several_where_the_data_have_several() -> None:
    for kind, least in (("commongen", 2), ("totto", 2), ("narrativeqa", 2), ("iwslt17", 1)):
        data = DataSettings(path="mini", task=check("task", kind))
        table, _ = splits(data)["train"]
        assert all(len(r) >= least for r in table["references"]), kind


def test_sentences_of_commongen_have_their_concepts() -> None:
    """A concept stands in every reference as it is, or as the beginning of an inflected word."""
    table, _ = splits(DataSettings(path="mini", task=check("task", "commongen")))["train"]
    for concepts, references in zip(table["concepts"], table["references"], strict=True):
        for text in references:
            assert all(c in text.lower() for c in concepts), (concepts, text)


def test_the_script_writes_these_bytes() -> None:
    script = ROOT / "scripts" / "mini_tasks" / "make.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_task_without_a_bundled_set() -> None:
    with pytest.raises(UserError, match="the task xsum has no bundled set"):
        splits(DataSettings(path="mini", task=check("task", "xsum")))
