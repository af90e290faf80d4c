"""From run folders to report.html, frontier.png, frontier.svg and frontier.csv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import vl_convert

from tether.config.errors import UserError
from tether.config.whole_file import write_whole
from tether.reports import charts
from tether.reports.encodings import Spec
from tether.reports.history import history
from tether.reports.methods import Study, study
from tether.reports.page import page
from tether.reports.points import as_csv, baselines, rows
from tether.reports.runs import find_runs
from tether.reports.samples import side_by_side

HTML_LIMIT = 1_500_000
"""Bytes of report.html."""


@dataclass(frozen=True)
class Written:
    """The four files, and the study they show."""

    study: Study
    html: Path
    png: Path
    svg: Path
    csv: Path

    @property
    def paths(self) -> list[Path]:
        return [self.html, self.png, self.svg, self.csv]


def write_report(
    folders: Sequence[Path], out: Path | None = None, budgets: Sequence[float] = ()
) -> Written:
    """Read runs and write the four files, each atomically.

    Args:
        folders: run folders, or the folder of a study.
        out: folder of the files; default: the one folder given, else the current folder.
        budgets: nats per completion; default 1, 2, 4, 8, 16.
    Raises:
        UserError: no run, no finite evaluation, or `out` is a file.
    """
    runs, plan = find_runs(folders)
    shown = study(runs, plan, budgets)
    out = out if out is not None else (folders[0] if len(folders) == 1 else Path("."))
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder for the report")
    out.mkdir(parents=True, exist_ok=True)
    table = rows(shown)
    spec = charts.frontier(shown, table)
    done = Written(
        study=shown,
        html=out / "report.html",
        png=out / "frontier.png",
        svg=out / "frontier.svg",
        csv=out / "frontier.csv",
    )
    write_whole(done.csv, as_csv(table, baselines(shown)).encode())
    write_whole(done.svg, vl_convert.vegalite_to_svg(spec).encode())
    write_whole(done.png, vl_convert.vegalite_to_png(spec, scale=2.0))
    write_whole(done.html, _fitting_page(shown, spec).encode())
    return done


def _fitting_page(shown: Study, spec: Spec) -> str:
    """The page with as many sample prompts as fit the limit.

    Raises:
        UserError: when the points alone are too many for one page.
    """
    prompts = side_by_side(shown)
    drawn = {"frontier": spec, "history": history(shown)}
    for count in range(len(prompts), -1, -1):
        text = page(shown, drawn, prompts[:count])
        if len(text.encode()) <= HTML_LIMIT:
            return text
    raise UserError(
        f"report.html would exceed {HTML_LIMIT / 1e6:.1f} MB: give fewer runs "
        f"({len(shown.runs)} here); frontier.csv, .png and .svg are written"
    )
