"""`anchors/TASK.json` of a benchmark as its reports read it: as it was written, or not at all."""

from __future__ import annotations

from pathlib import Path

from tether.analysis.grue import Anchor
from tether.config.errors import UserError
from tether.config.json_file import digest, read_mapping

RECOMPUTE = "delete it: the same `tether grue run` computes it again, and trains nothing again"
"""What mends a damaged file of anchors."""
CHANGED = (
    "was changed after it was written (its hash is another): restore it, or delete it: the same "
    "`tether grue run` computes it again, measures the finished cells again where it comes out "
    "otherwise, and trains nothing again"
)
"""Of anchors that were edited."""


def read_anchors(folder: Path, name: str, stamp: str) -> tuple[tuple[Anchor, ...], int]:
    """Anchors of a task, and the number of its examples. Raises UserError: they are not those of
    that hash, under which the cells were measured."""
    file = folder / "anchors" / f"{name}.json"
    content = read_mapping(file, RECOMPUTE, "metrics", "examples", "sha256")
    stated = content.pop("sha256")
    if digest(content) != stated:
        raise UserError(f"{file} {CHANGED}")
    if stated != stamp:
        raise UserError(
            f"{file} holds other anchors than those that {folder / 'grue.json'} declares: restore "
            "it, or repeat the same `tether grue run`, which measures the cells again under these "
            "and trains nothing again"
        )
    try:
        return tuple(Anchor(**a) for a in content["metrics"]), int(content["examples"])
    except (TypeError, ValueError) as e:
        raise UserError(f"{file} is damaged ({e}): {RECOMPUTE}") from e
