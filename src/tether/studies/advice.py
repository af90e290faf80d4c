"""What mends a failed run, where a study's command has started it: that command, and not those of a
run alone, which its log names."""

from __future__ import annotations

import re
from pathlib import Path

AGAIN = "the same command with --retry"
_RESUME = re.compile(r"`tether resume [^`]*`")
_ANEW = "start anew with another --name"


def of_study(error: str, folder: Path) -> str:
    """The last line of a run's log with the study's own mend.

    folder: of the run.
    """
    return _RESUME.sub(AGAIN, error).replace(_ANEW, f"delete {folder} and give {AGAIN}")
