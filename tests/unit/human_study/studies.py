"""Small studies, and people who fill in their forms."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tether.reports.rating_form import COLUMNS
from tether.studies.human.completions import read_completions
from tether.studies.human.prepare import Design, Prepared, prepare, study_id

NASTY = "good </script><script>document.title='owned'</script> <!-- \" ' & \u2028 <b>bold</b>"
METHODS = ("zqx-one", "zqx-two", "zqx-three")
"""Names that no text, prompt or style sheet contains by accident."""


def completions(folder: Path, methods: Sequence[str] = METHODS, prompts: int = 12) -> list[str]:
    """A JSONL file for each method, as words of the command; `good` is higher for later ones."""
    words = []
    for m, method in enumerate(methods):
        rows = [
            {
                "prompt": f"Prompt {i}: {NASTY}",
                "completion": f"text {i}, variant {len(methods) - m}\nsecond line, {NASTY}",
                "scores": {"good": m + i / 100, "bad": -m},
            }
            for i in range(prompts)
        ]
        file = folder / f"{m}.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
        words.append(f"{method}={file}")
    return words


def study(
    folder: Path, methods: Sequence[str] = METHODS, prompts: int = 12, **design: Any
) -> Prepared:
    folder.mkdir(parents=True, exist_ok=True)
    pool = read_completions(completions(folder, methods, prompts))
    return prepare(pool, Design(**{"task": "toy", "per_form": 12, **design}), folder / "study")


def read(prepared: Prepared) -> dict[str, Any]:
    key: dict[str, Any] = json.loads(prepared.key.read_text(encoding="utf-8"))
    return key


def sealed(prepared: Prepared, key: dict[str, Any]) -> None:
    """Write `key` as if `prepare` had: its id is that of its content."""
    key["study"] = study_id(key)
    prepared.key.write_text(json.dumps(key), encoding="utf-8")


def check_answers(unit: dict[str, Any]) -> str:
    return str(unit["check"]["answer"])


def fill(
    key: dict[str, Any],
    form: str,
    folder: Path,
    answer: Callable[[dict[str, Any], str], str],
    *,
    rater: str = "",
    check: Callable[[dict[str, Any]], str] = check_answers,
    name: str | None = None,
) -> Path:
    """An exported CSV, as the page writes it.

    Args:
        answer: (unit, axis) -> value.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name or form}.csv"
    with open(file, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(COLUMNS)
        for i, unit in enumerate(key["forms"][form], 1):
            for axis in key["axes"]:
                value = check(unit) if "check" in unit else answer(unit, axis)
                out.writerow([key["study"], form, rater, i, unit["id"], axis, value, "4.5"])
    return file
