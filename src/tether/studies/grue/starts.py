"""Weights that runs of a benchmark start from, or are held to, before the first of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tether.config.errors import UserError
from tether.reports.grue.results import finished
from tether.studies.workers import Job

WEIGHTS = ("*.safetensors", "*.bin")


def check_starts(jobs: Sequence[Job]) -> None:
    """Raises UserError where a run has finished that another one, which has not, starts from, and
    its final weights are gone."""
    by_name = {job.name: job for job in jobs}
    for job in jobs:
        for name in job.after:
            start = by_name[name].folder
            if finished(start) and not _has_weights(start / "policy") and not finished(job.folder):
                raise UserError(
                    f"{job.name} starts from the final weights of {name}, which has finished, but "
                    f"{start / 'policy'} does not hold them: restore that folder, or delete "
                    f"{start}: the same `tether grue run` trains it again"
                )


def _has_weights(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in WEIGHTS)
