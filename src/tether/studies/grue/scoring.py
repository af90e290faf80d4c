"""The metrics of finished cells, from the completions that their runs wrote of the test prompts.

A run tests its final weights, its initial ones, and its best validation weights within each drift
budget; of each of them every completion is in `samples.jsonl`. `scores.json` beside it holds each
metric of each of these weights, and its value without each group of examples
(`analysis.jackknife`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tether.analysis.grue import Anchor
from tether.analysis.jackknife import groups
from tether.config.errors import UserError
from tether.config.whole_file import write_whole
from tether.records import DRIFT, Damaged, EvalPoint, finite, read_lines, read_points
from tether.reports.grue.results import SCORES, scores_of
from tether.studies.grue.anchors import Examples, value_of, with_parts
from tether.studies.grue.cells import Cell
from tether.studies.grue.metrics import Entry
from tether.studies.grue.same_examples import check_prompts

HUMAN = "human/perplexity"
"""The policy's, pooled, on human text of the validation rows."""
SAMPLES = "samples.jsonl"


@dataclass(frozen=True)
class Weights:
    """One tested set of weights of a run."""

    update: int
    policy: str
    """exported, or constrained where a mask narrows what is sampled."""
    names: tuple[str, ...]
    """final, initial, budget:4 ..."""
    reward: float
    drift: float | None
    """Validation drift, nats per completion, by which budgets choose."""
    perplexity: float | None


def measured(folder: Path, stamp: str, anchors: Sequence[Anchor], examples: int) -> bool:
    """Whether a run has its metrics, under these anchors, of that hash and so many examples."""
    try:
        return scores_of(folder, stamp, anchors, examples) is not None
    except UserError:  # a damaged file is as none: it is measured again
        return False


def score(
    folder: Path,
    cell: Cell,
    entries: Sequence[Entry],
    anchors: Sequence[Anchor],
    rows: Examples,
    stamp: str,
    given: Callable[[], Sequence[Any] | None] = lambda: None,
) -> bool:
    """Write `scores.json` of a finished run, unless it is there under the same anchors.

    Args:
        stamp: hash of the task's anchors.
        given: the examples' prompts as the run's model is given them (`check_prompts`).
    Returns:
        Whether it was written.
    Raises:
        UserError: completions are missing, or of other prompts.
    """
    if measured(folder, stamp, anchors, len(rows)):
        return False
    used = [e for e in entries if e.metric is not None]
    unscored = {a.metric for a in anchors if a.dropped}
    written = completions(folder, len(rows))
    for prompts, _ in written.values():
        check_prompts(folder / SAMPLES, prompts, rows.prompts, given)
    found = []
    for w in weights_of(folder):
        if (w.update, w.policy) not in written:
            raise _incomplete(folder, f"it has no test completions of update {w.update}")
        prompts, texts = written[w.update, w.policy]
        values, parts, left_out = measure(used, texts, replace(rows, given=prompts), unscored)
        if w.perplexity is not None:
            values |= {a.metric: w.perplexity for a in anchors if a.is_perplexity}
        found.append({**vars(w), "values": values, "parts": parts, "left_out": left_out})
    content = {
        "task": cell.task,
        "method": cell.method.name,
        "label": cell.label,
        "start": cell.method.start,
        "seed": cell.seed,
        "trained_on": cell.reward,
        "reference": cell.reference,
        "anchors": stamp,
        "weights": found,
    }
    write_whole(folder / SCORES, json.dumps(finite(content), ensure_ascii=False) + "\n")
    return True


def measure(
    entries: Sequence[Entry],
    texts: Sequence[str],
    rows: Examples,
    unscored: Container[str] = (),
) -> tuple[dict[str, float], dict[str, dict[str, float]], dict[str, list[float]]]:
    """(metric -> value, metric in no score -> its parts, metric -> value without each group of
    examples).

    unscored: metrics whose anchors are no scale; of them there is the value alone.
    """
    values: dict[str, float] = {}
    inside: dict[str, dict[str, float]] = {}
    left_out: dict[str, list[float]] = {}
    parts = groups(len(rows))
    for e in entries:
        assert e.metric is not None
        values[e.name], parts_of_it = with_parts(e.metric, rows.samples(texts, e.metric))
        if e.family == "other" and parts_of_it:
            inside[e.name] = parts_of_it
        if e.name in unscored:
            continue
        left_out[e.name] = [
            value_of(e.metric, rows.samples(texts, e.metric, _without(part, len(rows))))
            for part in parts
            if len(parts) > 1
        ]
    return values, inside, left_out


def _without(part: Sequence[int], n: int) -> list[int]:
    gone = set(part)
    return [i for i in range(n) if i not in gone]


def completions(
    folder: Path, examples: int
) -> Mapping[tuple[int, str], tuple[list[Any], list[str]]]:
    """(update, policy) -> prompts as it was given them and its completions, of all test examples in
    order.

    Raises UserError where some are missing: the file was changed, or the run started otherwise.
    """
    found: dict[tuple[int, str], dict[int, tuple[Any, str]]] = {}
    try:
        for row in read_lines(folder / SAMPLES):
            if row["split"] == "test":
                of = found.setdefault((row["update"], row["policy"]), {})
                of[row["row"]] = row["prompt"], row["completion"]
    except FileNotFoundError as e:
        raise _incomplete(folder, "it is not there") from e
    except (Damaged, LookupError, TypeError) as e:
        raise _incomplete(folder, e if isinstance(e, Damaged) else "a line is no sample") from e
    for key, rows in found.items():
        if rows.keys() != set(range(examples)):
            raise _incomplete(
                folder, f"{len(rows)} of {examples} test completions of update {key[0]}"
            )
    return {
        key: ([rows[i][0] for i in range(examples)], [rows[i][1] for i in range(examples)])
        for key, rows in found.items()
    }


def _incomplete(folder: Path, why: object) -> UserError:
    return UserError(
        f"{folder / SAMPLES} was changed after the run had finished ({why}): restore it, or delete "
        f"{folder}: the same `tether grue run` trains it again"
    )


def weights_of(folder: Path) -> Iterator[Weights]:
    """What a run tested, each set of weights once, in order."""
    points = read_points(folder / "record.jsonl")
    live = {
        p.update: p
        for p in points
        if p.split == "validation" and p.common and p.policy == "exported"
    }
    seen: dict[tuple[int, str], list[EvalPoint]] = {}
    for p in points:
        if p.split == "test":
            seen.setdefault((p.update, p.policy), []).append(p)
    for (update, policy), same in seen.items():
        there = live.get(update)
        yield Weights(
            update,
            policy,
            tuple(dict.fromkeys(p.weights for p in same)),
            same[0].reward,
            _drift(there, update),
            there.metrics.get(HUMAN) if there is not None else None,
        )


def _drift(point: EvalPoint | None, update: int) -> float | None:
    if update == 0:
        return 0.0
    return None if point is None else point.drift.get(DRIFT)


def completions_trained(settings: Mapping[str, Any]) -> int:
    """Completions that a run trains on: updates x prompts x completions of each."""
    group = int(settings["algorithm"].get("group_size", 1))
    return int(settings["updates"]) * int(settings["batch"]["prompts"]) * group
