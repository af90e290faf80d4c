"""`tether baselines`, `tether interpolate`, `tether merge`: what finished runs give for free."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.cli.helping import console
from tether.cli.parsing import Parser, as_typed, positive
from tether.cli.runs import run_folder

if TYPE_CHECKING:
    from tether.records import BaselinePoint

HOW = ("linear", "product", "slerp", "slerp_global")
OPTIONS = {
    f"after.{name}": f"--{name}" for name in ("samples", "prompts", "split", "shares", "how")
}
"""Setting -> option of `baselines` and `interpolate`."""


def baselines(words: list[str]) -> int:
    """Best-of-n and the oracle frontier of a run's initial model."""
    p = Parser(
        "baselines",
        "Best-of-n and the oracle frontier of a run's initial model: the best reward that is to\n"
        "be had at each drift, from samples alone. One run of a study is enough; `tether\n"
        "frontier` draws them.",
    )
    p.add_argument("run", help="folder of a finished run; its weights are not needed")
    p.add_argument("--samples", type=positive, default=None, help="a prompt; default: the run's")
    _common(p)
    given = p.parse(words)
    folder = run_folder(given.run)
    from tether.train.after_run import initial_baselines

    table = _Table(given.json)
    options = {k: v for k, v in OPTIONS.items() if k not in ("after.shares", "after.how")}
    with as_typed(given, options):
        initial_baselines(
            folder, samples=given.samples, prompts=given.prompts, split=given.split, seen=table.add
        )
    return table.done()


def interpolate(words: list[str]) -> int:
    """Reward and drift of weights between a run's initial and final ones."""
    p = Parser(
        "interpolate",
        "Reward and drift of weights between a run's initial (0) and final ones (1), added to its\n"
        "frontier. linear: every tensor that trains (an adapter's A and B apart); product: an\n"
        "adapter's BA; slerp: on the sphere, an angle for each tensor; slerp_global: one angle.",
    )
    p.add_argument("run", help="folder of a finished run that has its weights")
    p.add_argument("--shares", type=_numbers, default=None, help="default: 0,0.25,0.5,0.75,1")
    p.add_argument("--how", type=_ways, default=None, help="one or more, e.g. linear,slerp")
    _common(p)
    given = p.parse(words)
    folder = run_folder(given.run)
    from tether.train.after_run import interpolate as run

    table = _Table(given.json)
    with as_typed(given, {k: v for k, v in OPTIONS.items() if k != "after.samples"}):
        run(
            folder, given.shares, given.how, split=given.split, prompts=given.prompts,
            seen=table.add,
        )  # fmt: skip
    return table.done()


def merge(words: list[str]) -> int:
    """One model from several runs of one initial model."""
    p = Parser(
        "merge",
        "One model from several finished runs of one initial model: their changes are merged on\n"
        "the sphere (slerp: an angle for each tensor; slerp_global: one; or linear), then taken a\n"
        "share of the way from the initial weights. Writes a plain model folder and merge.json.",
    )
    p.add_argument("runs", nargs="+", help="folders of finished runs")
    p.add_argument("--out", type=Path, required=True, help="folder of the merged model")
    p.add_argument("--how", choices=("slerp", "slerp_global", "linear"), default="slerp")
    p.add_argument("--weights", type=_numbers, default=None, help="one a run; default: equal")
    p.add_argument("--share", type=float, default=1.0, help="1 = merged (default), 0 = initial")
    given = p.parse(words)
    folders = [run_folder(text) for text in given.runs]
    from tether.train.after_merge import merge as run

    facts = run(folders, given.out, how=given.how, weights=given.weights, share=given.share)
    names = ", ".join(f"{r['name']} ({r['weight']:.3g})" for r in facts["runs"])
    out = console()
    out.print(f"merged {names} by {facts['how']}, share {facts['share']:g}", markup=False)
    out.print(str(given.out), markup=False, soft_wrap=True)
    return 0


def _common(p: Parser) -> None:
    p.add_argument("--split", choices=["validation", "test"], default=None)
    p.add_argument("--prompts", type=positive, default=None, help="default: as in the run")
    p.add_argument("--json", action="store_true", help="one JSON object a line")


def _numbers(text: str) -> list[float]:
    try:
        return [float(t) for t in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers: 0,0.5,1") from None


def _ways(text: str) -> list[str]:
    found = text.split(",")
    if not set(found) <= set(HOW):
        raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(HOW)}")
    return found


class _Table:
    """Points as they come: lines of JSON at once, or a table at the end."""

    def __init__(self, as_json: bool) -> None:
        self.as_json, self.points = as_json, list[Any]()

    def add(self, point: BaselinePoint) -> None:
        if self.as_json:
            from tether.records import baseline_line

            print(baseline_line(point), flush=True)
        self.points.append(point)

    def done(self) -> int:
        if self.as_json:
            return 0
        from rich.table import Table

        from tether.records import setting_of

        table = Table(box=None, header_style="bold")
        for name in ("", "setting", "drift (nats)", "reward", "±"):
            table.add_column(name, justify="left" if name in ("", "setting") else "right")
        for p in self.points:
            drift = f"{'<= ' if p.drift_is == 'bound' else ''}{p.drift:.3f}"
            mark = "" if p.valid else " (beyond the range)"
            table.add_row(
                p.baseline.replace("_", "-"),
                setting_of(p) + mark,
                drift,
                f"{p.reward:.4f}",
                f"{p.reward_se:.4f}",
            )
        out = console()
        out.print(table)
        if self.points:
            p = self.points[0]
            out.print(f"{p.prompts} {p.split} prompts; ±: standard error over them", style="dim")
        return 0
