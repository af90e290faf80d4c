"""The budget study's table, on a terminal and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

JUDGES = ("full", "held_out")
COLUMNS = ("arm", "share", "labels", "demonstrations", "accuracy")


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    measures = [*JUDGES, "drift"]
    lines = [",".join([*COLUMNS, *(f"{m}_{k}" for m in measures for k in ("mean", "sd"))])]
    for r in rows:
        cells = [r[k] for k in COLUMNS] + [r[m][k] for m in measures for k in ("mean", "sd")]
        lines.append(",".join("" if c is None else str(c) for c in cells))
    return "\n".join(lines) + "\n"


def show(folder: Path, seeds: int, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """The table, and what may not be concluded from it."""
    table = Table(box=None, header_style="bold")
    table.add_column("", no_wrap=True, overflow="fold")
    for name in ("labels", "demon-\nstrations", "accuracy", "full", "held out", "drift\n(nats)"):
        table.add_column(name, justify="right", overflow="fold")
    for r in rows:
        cells = [_shown(r[k]) for k in (*JUDGES, "drift")]
        failed = f" ({len(r['failed'])} failed)" if r["failed"] else ""
        accuracy = "" if r["accuracy"] is None else f"{r['accuracy']:.3f}"
        table.add_row(
            r["arm"] + failed, str(r["labels"]), str(r["demonstrations"]), accuracy, *cells
        )
    console.print(table)
    found = {r["arm"]: r["split"] for r in rows if r["split"]}
    on = " or ".join(sorted(set(found.values()))) or "no"
    if len(set(found.values())) > 1:
        on += f" ({', '.join(f'{arm}: {split}' for arm, split in found.items())})"
    console.print(
        f"Final weights, {on} prompts, mean ± standard deviation of {seeds} seeds, which "
        "share the reward models. `full` is the reward of the 100 % arm; `held out` saw none of "
        "the labels of any arm.",
        style="dim", markup=False,
    )  # fmt: skip
    console.print(str(folder / "budget.csv"), markup=False, soft_wrap=True)


def _shown(found: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return "absent"
    return f"{found['mean']:.3f}" + ("" if found["sd"] is None else f" ± {found['sd']:.3f}")
