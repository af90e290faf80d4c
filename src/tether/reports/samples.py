"""The same prompts under all methods: by the initial model, and by the final weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tether.records import read_lines
from tether.reports.methods import Study
from tether.reports.runs import Run

PROMPTS = 8
"""Prompts that a page offers."""
CHARACTERS = 1_200
"""A longer text is cut, visibly."""


@dataclass(frozen=True)
class Sample:
    method: str
    seed: int
    update: int
    completion: str
    score: float | None
    drift: float | None


@dataclass(frozen=True)
class Prompt:
    text: str
    before: Sample | None
    """From the initial model (equal for all methods)."""
    after: tuple[Sample, ...]
    """One a method, from its lowest seed with samples."""


def side_by_side(study: Study, prompts: int = PROMPTS) -> list[Prompt]:
    """Prompts that every method with samples has, in dataset order; empty without samples.

    Of a masked policy the texts are those of the exported one. A row of the dataset counts only
    where all methods have the same prompt in it: runs may have read different data.
    """
    last: dict[str, dict[int, dict[str, Any]]] = {}
    first: dict[int, dict[str, Any]] = {}
    owner: dict[str, Run] = {}
    for method in study.methods:
        for seed in method.seeds:
            run = next((r for r in seed.runs if (r.folder / "samples.jsonl").is_file()), None)
            if run is None or method.name in owner:
                continue
            rows = _rows(run.folder / "samples.jsonl", run.agent)
            latest = max((r["update"] for r in rows), default=0)
            if latest == 0:
                continue
            owner[method.name] = run
            last[method.name] = {r["row"]: r for r in rows if r["update"] == latest}
            for r in rows:
                if r["update"] == 0:
                    first.setdefault(r["row"], r)
    if not last:
        return []
    one, *others = last.values()
    shared = sorted(
        row for row, r in one.items()
        if all(row in x and x[row]["prompt"] == r["prompt"] for x in others)
    )[:prompts]  # fmt: skip
    return [
        Prompt(
            text=_text(one[row]["prompt"]),
            before=_sample("initial model", 0, first[row])
            if row in first and first[row]["prompt"] == one[row]["prompt"]
            else None,
            after=tuple(_sample(m, owner[m].seed, last[m][row]) for m in last),
        )
        for row in shared
    ]


def _rows(file: Path, agent: str) -> list[dict[str, Any]]:
    return [
        r
        for r in read_lines(file)
        if r.get("split") == "validation" and r.get("agent", agent) == agent
        and r.get("side") != "before" and r.get("policy", "exported") == "exported"
    ]  # fmt: skip


def _sample(method: str, seed: int, row: dict[str, Any]) -> Sample:
    return Sample(
        method=method,
        seed=seed,
        update=int(row["update"]),
        completion=_text(row["completion"]),
        score=row.get("score"),
        drift=row.get("drift_nats"),
    )


def _text(value: Any) -> str:
    """Text, or a chat as `role: content` lines; cut where it is very long."""
    if isinstance(value, list):
        value = "\n".join(f"{m.get('role', '')}: {m.get('content', '')}" for m in value)
    text = str(value)
    return text if len(text) <= CHARACTERS else text[:CHARACTERS] + " ... (cut)"
