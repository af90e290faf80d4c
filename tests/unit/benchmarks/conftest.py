"""Small sets of the benchmark's real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.grue_pack import SPLITS, write_rows

ROWS: dict[str, dict[str, Any]] = {
    "commongen": {"concepts": ["dog", "run"], "references": ["A dog runs {i}.", "Dogs run {i}."]},
    "fairytaleqa": {"question": "who {i} ?", "answers": ["a fox"], "context": "a fox ran {i}."},
    "multi30k": {"en": "A dog {i}.", "de": "Ein Hund {i}."},
    "imdb": {"text": "a good film that {i} was long", "label": 1},
    "dailydialog": {
        "utterances": ["hi {i}", "hello", "how are you", "fine", "good", "bye {i}"],
        "act": [1, 1, 2, 1, 1, 4],
        "emotion": [0, 0, 0, 0, 0, 0],
    },
    "dart": {"tripleset": [["Place {i}", "food", "fish"]], "targets": ["Place {i} has fish."]},
    "scitldr": {"source": ["We study {i}."], "target": ["A study {i}."]},
}


def filled(value: Any, i: str) -> Any:
    if isinstance(value, str):
        return value.replace("{i}", i)
    if isinstance(value, list):
        return [filled(v, i) for v in value]
    return value


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small set of every task."""
    for task, row in ROWS.items():
        for split in SPLITS[task]:
            rows = [{k: filled(v, f"{split}{i}") for k, v in row.items()} for i in range(8)]
            if task == "commongen":
                rows = [{**r, "concepts": ["dog", f"{split}{i}"]} for i, r in enumerate(rows)]
            write_rows(tmp_path / "data" / task / f"{split}.jsonl.gz", rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")  # a call changes it for its processes
    return tmp_path
