"""Lines of a run's record: deterministic facts only, no clock, path or host, so equal runs are
equal files. Seconds and bytes go to `timing.jsonl`. No torch here.

`record.jsonl` holds one JSON object a line, keys sorted, non-finite numbers as null (B42):

* `start`, once: `config` (hash), `method`, `agents`, `seed`, `notes`.
* `update`, after each: `agent`, `update` (completed ones, from 1), `policy_version` (of the
  writer), `metrics`.
* `event`, after a weight event: `agent`, `update`, `reason`, `moves`, `optimizer`, `critic`,
  `controllers`, `counts`.
* `eval`, at update 0, when due, around events and at the end: the fields of `EvalPoint`.
* `baseline`, before the end where `after` asks for them: the fields of `BaselinePoint`.
* `end`, once: `updates`, `counts` (weight moves by name), `notes`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

DRIFT = "drift/kl_initial.exact_nats_per_seq"
"""The x-axis of every frontier: KL(policy || initial) along the policy's own samples, exact per
step over the vocabulary and summed over the sample; drift budgets read it."""
INTERPOLATION, BASELINES = "interpolation.jsonl", "baselines.jsonl"
"""Beside a record: `baseline` lines that commands have added to a finished run."""


@dataclass(frozen=True)
class EvalPoint:
    """Reward and drift of the same weights."""

    agent: str
    update: int
    policy_version: int
    split: Literal["validation", "test"]
    side: Literal["", "before", "after"]
    """Which side of a weight event; empty where there was none."""
    common: bool
    """True at the evaluation times that every arm of a study shares: only these count for budgets
    (around a reset, the side after it)."""
    weights: str
    """`live`; on the test split `initial`, `final` and `budget:4` (best validation point within 4
    nats)."""
    policy: Literal["exported", "constrained"]
    """A masked policy is two policies: as exported (whole vocabulary) and as sampled."""
    prompts: int
    reward: float
    reward_se: float
    scores: dict[str, float] = field(default_factory=dict)
    """reward function -> mean of its raw scores."""
    judges: dict[str, float] = field(default_factory=dict)
    """judge -> mean; judges are never a reward."""
    drift: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BaselinePoint:
    """Reward and drift of something that costs no training. A record kind of its own: it is no
    checkpoint, so no budget counts it."""

    agent: str
    baseline: Literal["best_of_n", "oracle", "interpolation"]
    how: str
    """Interpolation: linear, product, slerp, slerp_global; else empty."""
    at: float | None
    """n of best-of-n; lambda of the oracle, null = infinite (the initial model); share of the way
    from the initial (0) to the final weights (1)."""
    split: Literal["validation", "test"]
    prompts: int
    samples: int
    """Completions a prompt that the numbers are means of."""
    drift: float
    """KL to the initial model, nats per completion."""
    drift_is: Literal["bound", "estimate", "measured"]
    """bound: log n - (n - 1) / n. estimate: of the re-weighted samples. measured: as `DRIFT`."""
    valid: bool
    """False beyond the range that the number of samples can show: never drawn."""
    reward: float
    reward_se: float
    """Over prompts; null for one prompt."""
    judges: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def finite(value: Any) -> Any:
    """Nested copy with non-finite floats as None, since JSON has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def line(kind: str, **values: Any) -> str:
    """One record line, without the newline."""
    return json.dumps(
        finite({"kind": kind, **values}), sort_keys=True, ensure_ascii=False, allow_nan=False
    )


def point_line(point: EvalPoint) -> str:
    return line("eval", **asdict(point))


def baseline_line(point: BaselinePoint) -> str:
    """An infinite lambda and the error of a single prompt are null."""
    return line("baseline", **asdict(point))


def setting_of(point: BaselinePoint) -> str:
    """`n = 4`, `lambda = 0.1`, `slerp 0.25`."""
    if point.baseline == "best_of_n":
        return f"n = {point.at:.0f}"
    if point.baseline == "interpolation":
        return f"{point.how} {point.at:g}"
    return f"lambda = {'inf' if point.at is None or math.isinf(point.at) else f'{point.at:.3g}'}"


class Damaged(ValueError):
    """A record with a line that is none."""


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Complete lines of a record; a last line cut by a kill is left out.

    Raises Damaged, one line, for anything else that is no record line.
    """
    with open(path, "rb") as f:
        for number, raw in enumerate(f, 1):
            if not raw.endswith(b"\n"):
                return
            try:
                found = json.loads(raw.decode("utf-8"))
            except ValueError as e:
                raise Damaged(f"{path} is damaged, line {number}: {e}") from e
            if not isinstance(found, dict):
                raise Damaged(f"{path} is damaged, line {number}: it is no mapping")
            yield found


def read_points(path: Path) -> list[EvalPoint]:
    """The evaluation points of one `record.jsonl`, in order."""
    return [
        EvalPoint(**{k: v for k, v in row.items() if k != "kind"})
        for row in read_lines(path)
        if row["kind"] == "eval"
    ]
