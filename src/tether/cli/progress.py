"""A bar with the time left on a terminal, a plain line an update elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from tether.cli.helping import console

Report = Callable[[int, int, str], None]
"""(completed updates, all updates, a few words)"""
Say = Callable[[str], None]


@contextlib.contextmanager
def showing() -> Iterator[tuple[Report, Say]]:
    """What `train` and `resume` tell: a progress function and a function for single lines."""
    if not sys.stdout.isatty():
        yield _line, _say
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("update"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}", markup=False),
    )
    with Progress(*columns, console=console()) as bar:
        task = bar.add_task("", total=None, words="loading")

        def report(done: int, total: int, words: str) -> None:
            bar.update(task, completed=done, total=total, words=words)

        yield report, lambda text: bar.console.print(text, markup=False)


def _line(done: int, total: int, words: str) -> None:
    _say(f"update {done}/{total}  {words}")


def _say(text: str) -> None:
    """A line; where the reader of a pipe went away (`| head`), the work goes on without one."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
