"""The result table, once as cells: the terminal and the page print the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from rich import box
from rich.markup import escape
from rich.table import Table

from tether.analysis.intervals import Summary, summarise
from tether.records import EvalPoint
from tether.reports.methods import AREAS, Method, SeedResult, Study
from tether.reports.wording import each, mean


@dataclass(frozen=True)
class Cell:
    """`main` in full, `small` (each seed's value) beneath it on a page; `lines` beneath it in a
    terminal, one each: every seed's value below 5 seeds, else the interval's half-width."""

    main: str
    small: str = ""
    lines: tuple[str, ...] = ()
    plain: str = ""
    """`main` of a terminal, without the interval; empty = `main`."""


NONE = Cell("-")


def _cell(summary: Summary, digits: int = 3) -> Cell:
    if len(summary.values) == 1:
        return Cell(mean(summary, digits))
    lines = tuple(f"{v:.{digits}f}" for v in summary.values)
    if summary.high is not None:
        lines = (_half_width(summary.high - summary.mean, digits),)
    return Cell(mean(summary, digits), each(summary, digits), lines, f"{summary.mean:.{digits}f}")


def _half_width(value: float, digits: int) -> str:
    """`±.013`: no leading zero, so that ten columns fit a terminal."""
    return "±" + f"{value:.{digits}f}".removeprefix("0")


def results(study: Study) -> tuple[list[str], list[list[Cell]]]:
    """Head and rows: final reward and drift, reward at each budget, areas."""
    head = [
        "Method",
        "Final reward",
        "Final drift",
        *(f"{b:g} nat{'s' if b != 1 else ''}" for b in study.budgets),
    ]
    columns: list[Callable[[Method], Cell]] = [
        lambda m: _cell(m.final_reward()),
        lambda m: _cell(m.final_drift(), 2),
        *(lambda m, b=b: _cell(m.reward_at(b)) for b in study.budgets),
    ]
    if study.areas:
        head += [f"Area 0-{a:g}" for a in AREAS]
        columns += [lambda m, a=a: _cell(m.area(a)) for a in AREAS]  # type: ignore[misc]
    rows = []
    for method in study.methods:
        failed = method.failed()
        first = Cell(method.name, f"{failed} failed" if failed else "")
        cells = [c(method) for c in columns] if method.seeds else [NONE] * len(columns)
        rows.append([first, *cells])
    return head, rows


def judges(study: Study) -> tuple[list[str], list[list[Cell]]] | None:
    """Judges (never a reward) on the initial and the final weights, on the same prompts where the
    initial model was tested; None where there are none."""
    names = sorted({j for r in study.runs for p in r.points for j in p.judges})
    if not names:
        return None
    head = ["Method", *(f"{j}, {w}" for j in names for w in ("initial", "final"))]
    rows = []
    for method in study.methods:
        cells = [Cell(method.name)]
        for judge in names:
            first = [_initial(s, study).judges.get(judge) for s in method.seeds]
            last = [s.final.judges.get(judge) for s in method.seeds]
            for values in (first, last):
                known = [v for v in values if v is not None]
                cells.append(_cell(summarise(known)) if known else NONE)
        rows.append(cells)
    return head, rows


def _initial(seed: SeedResult, study: Study) -> EvalPoint:
    """The initial model on the prompts of the seed's final weights. It is one model for all runs,
    of which one may have tested it."""
    if seed.final.split == "test":
        for run in (*seed.runs, *study.runs):
            for p in run.test():
                if p.update == 0:
                    return p
    return seed.runs[0].validation()[0]


def resets(study: Study) -> tuple[list[str], list[list[Cell]]] | None:
    """How long the reward of before a reset takes to come back; None without resets."""
    rows = []
    for method in study.methods:
        found = method.recoveries()
        if not found:
            continue
        back = [r.updates for r in found if r.updates is not None]
        drifts = [r.drift for r in found if r.drift is not None]
        before = [r.drift_before for r in found]
        rows.append(
            [
                Cell(method.name),
                Cell(str(len(found))),
                Cell(f"{len(back)} of {len(found)}"),
                Cell(f"{median(back):g}" if back else "-"),
                Cell(f"{median(drifts):.2f}" if drifts else "-"),
                Cell(f"{median(before):.2f}"),
            ]
        )
    head = [
        "Method",
        "Resets",
        "Reward regained",
        "Updates until then (median)",
        "Drift then (median)",
        "Drift before the reset (median)",
    ]
    return (head, rows) if rows else None


def console(study: Study) -> Table:
    """The result table for a terminal of 80 columns: the mean, beneath it every seed's value (below
    5 seeds) or the half-width of its 95 % interval."""
    head, rows = results(study)
    table = Table(
        title=f"Reward on {study.split} prompts; drift in nats per completion",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for i, name in enumerate(head):
        table.add_column(
            escape(name.replace(" ", "\n") if i else name),
            justify="right" if i else "left",
            overflow="fold",
            min_width=None if i else 12,
        )
    for row in rows:
        table.add_row(*(_console_cell(c) for c in row), end_section=True)
    return table


def _console_cell(cell: Cell) -> str:
    below = cell.lines or ((cell.small,) if cell.small else ())
    return "\n".join([escape(cell.plain or cell.main), *(f"[dim]{escape(x)}[/dim]" for x in below)])
