"""`tether frontier RUN...`: the table, the chart and the page of any finished or running runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tether.reports.tables import console as result_table
from tether.reports.wording import conclusion, interval_note
from tether.reports.write import Written, write_report


def main(
    folders: Sequence[Path],
    out: Path | None = None,
    *,
    budgets: Sequence[float] = (),
    console: Console | None = None,
) -> Written:
    """Write report.html, frontier.png, .svg and .csv, print the table and the paths.

    Args:
        folders: run folders, or folders of studies (every run in them).
        out: where the files go; default: the one folder given, else the current folder.
        budgets: drift budgets in nats per completion; default 1, 2, 4, 8, 16.
    Raises:
        UserError: a folder holds no run, or no run has a finite evaluation yet.
    """
    written = write_report([Path(f) for f in folders], out, budgets)
    show(written, console or Console())
    return written


def show(written: Written, console: Console) -> None:
    """The table, the one-sentence conclusion and the paths."""
    study = written.study
    console.print(result_table(study))
    if any(len(m.seeds) > 1 for m in study.methods):
        text = interval_note(study).replace("Small: every", "Beneath each mean: every")
        if "Brackets" in text:
            text = "±: 95 % t-interval of the mean over seeds; every seed's value: report.html."
        console.print(text, style="dim", markup=False)
    for note in study.notes:
        console.print(note, style="yellow", markup=False)
    console.print(conclusion(study), markup=False, highlight=False)
    for path in written.paths:
        # soft_wrap: a path is copied from the terminal, so it must stay on one line
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)
