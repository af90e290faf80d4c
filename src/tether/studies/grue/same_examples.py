"""That all cells of a task are measured on the same examples. A run writes the number of a test
prompt beside its completion, so completions of other prompts would be scored against references
that are not theirs, and perplexities of other human text would be compared.

What says how often a run is evaluated and how its texts are drawn (`every`, `sampling`) may differ
between cells; which examples these are of, and how many, may not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tether.config.differences import differences, told
from tether.config.errors import UserError
from tether.config.settings import dump
from tether.records import Damaged, read_lines
from tether.studies.workers import Job
from tether.tasks.loading import noted

MEASURED: Mapping[str, tuple[str, ...]] = {
    "data": ("max_prompt_tokens", "too_long"),
    "evaluation": ("test_prompts", "human_rows", "human_tokens", "seed"),
}
"""Settings that decide what a cell is measured on, beside the examples themselves."""
CHOSEN: Mapping[str, tuple[str, ...]] = {"evaluation": ("prompts",)}
"""The same of cells whose weights budgets choose by validation reward."""
ONCE = "give all cells of a task the same (`all` in a settings file)"
DONE = {"test": "tested", "validation": "validated"}


@dataclass(frozen=True)
class Held:
    """The examples of one split that no run trains on."""

    ordered: str
    """SHA-256 of prompts and references, as far and in the order in which runs have them."""
    noted: str
    """The same of the whole split in any order, as runs note it in their records."""


def check_same(runs: Sequence[Job], choosing: Sequence[Job] = ()) -> dict[str, str]:
    """Of the cells of one task, before any of them runs.

    Args:
        choosing: those whose weights budgets choose.
    Returns:
        Split -> hash that the records of these runs have of it.
    Raises:
        UserError: two cells have other examples, or a folder holds a run on others.
    """
    for jobs, keys in ((runs, MEASURED), (choosing, CHOSEN)):
        for job in jobs[1:]:
            _equal(jobs[0], job, keys)
    read: dict[str, dict[str, Held]] = {}
    for job in runs:
        data = repr(job.settings.data)
        if data not in read:
            read[data] = _held(job)
        _same_splits(runs[0], read[repr(runs[0].settings.data)], job, read[data])
    found = {name: held.noted for name, held in read[repr(runs[0].settings.data)].items()}
    for job in runs:
        try:
            check_record(job.folder, found)
        except Damaged:  # told where it is measured
            continue
    return found


def _equal(first: Job, job: Job, keys: Mapping[str, Sequence[str]]) -> None:
    one, other = (
        {group: {k: settings[group][k] for k in names} for group, names in keys.items()}
        for settings in (dump(first.settings), dump(job.settings))
    )
    if found := differences(one, other, _in(first, job)):
        raise UserError(f"{told(found)}: cells would be measured otherwise; {ONCE}")


def _held(job: Job) -> dict[str, Held]:
    most = {"test": job.settings.evaluation.test_prompts}
    found = {}
    for name, rows in noted(job.settings.data, most).items():
        if name in DONE:
            pairs = [rows.table["prompt"], rows.table["references"]]
            text = json.dumps(pairs, ensure_ascii=False)
            ordered = hashlib.sha256(text.encode()).hexdigest()
            found[name] = Held(ordered, str(rows.notes["sha256"]))
    return found


def _same_splits(first: Job, there: Mapping[str, Held], job: Job, here: Mapping[str, Held]) -> None:
    for name, done in DONE.items():
        if there.get(name) == here.get(name):
            continue
        one, other = ({"data": dump(j.settings)["data"]} for j in (first, job))
        why = told(differences(one, other, _in(first, job)))
        raise UserError(
            f"{job.name} would be {done} on other examples than {first.name}"
            f"{f' ({why})' if why else ''}: {ONCE}"
        )


def _in(first: Job, job: Job) -> tuple[str, str]:
    return f"in {first.name}", f"in {job.name}"


def check_record(folder: Path, examples: Mapping[str, str]) -> None:
    """Whether a run had the validation and test examples of these hashes, where its folder holds
    one. Raises UserError, and Damaged where its record cannot be read."""
    record = folder / "record.jsonl"
    if not record.is_file():
        return
    notes = next(read_lines(record), {}).get("notes") or {}
    for name, done in DONE.items():
        was = (notes.get(name) or {}).get("sha256")
        if was is not None and name in examples and was != examples[name]:
            raise UserError(
                f"{folder} holds a run that was {done} on other {name} examples than its settings "
                "give now (its data were changed, or an earlier version held other rows out): put "
                "the data back, or delete that folder, and the same command trains it again"
            )


def check_prompts(
    file: Path,
    written: Sequence[Any],
    prompts: Sequence[str],
    given: Callable[[], Sequence[Any] | None],
) -> None:
    """Whether completions are of these prompts, in this order.

    Args:
        file: which they are from, for the message.
        written: prompts as the run's model was given them.
        given: `prompts` as that model would be, cut where they are too long; None = nobody knows.
            Called only where some are not whole.
    Raises:
        UserError: another prompt stands in the place of one of them.
    """
    places = [i for i, p in enumerate(prompts) if written[i] != p]
    cut = given() if places else None
    if cut is None:
        return
    for i in places:
        if _letters(written[i]) != _letters(cut[i]):
            raise UserError(
                f"{file}: the completion of test prompt {i + 1} is of another prompt "
                f"({_shown(written[i])}, and not {_shown(cut[i])}): the test data were changed "
                "after the run had read them; put them back, or delete the run's folder, and the "
                "same command trains it again"
            )


def _letters(prompt: Any) -> str:
    """Without white space, of which tokenizers keep more or less when a cut prompt is decoded."""
    return "".join(str(prompt).split())


def _shown(prompt: Any) -> str:
    return json.dumps(str(prompt)[:40], ensure_ascii=False)
