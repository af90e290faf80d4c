"""The goals of the performance work against what the result files say: a table for the page, made
of the files alone. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import PAGE

__all__ = ["GOALS", "NAME", "PAGE", "render"]

NAME = "goals"
"""Of the place on the page."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Goal:
    what: str
    known: str
    """The best that was known when the goal was set, as text."""
    goal: str
    file: str
    pick: Callable[[Mapping[str, Row]], Row | None]
    """Rows by name -> the one that tells."""
    value: Callable[[Row, Mapping[str, Row]], float | None]
    unit: str
    limit: float | None
    more: bool = False
    """True: at least the limit; False: at most."""
    compared: bool = False
    """True: a ratio of neighbours, told with an interval; it counts only as far as a step against
    itself gives 0."""

    def reached(self, value: float, row: Row, rows: Mapping[str, Row]) -> str:
        if self.limit is None:
            return "-"
        if self.compared and (open_ := self._undecided(row, rows)):
            return open_
        if self.more:
            return "yes" if value >= self.limit else f"no: {value / self.limit:.2f} of it"
        return "yes" if value <= self.limit else f"no: {value / self.limit:.2f} times it"

    def _undecided(self, row: Row, rows: Mapping[str, Row]) -> str | None:
        assert self.limit is not None
        key, nothing = "interval_percent", rows.get("nothing", {})
        if key not in row or key not in nothing:
            return "undecided: without an interval"
        if any(row.get(k) != nothing.get(k) for k in ("commit", "card")):
            return "undecided: the step against itself is of another commit or card"
        low, high = row[key]
        noise = max(abs(x) for x in nothing[key])
        if max(high, noise) <= self.limit or low > max(self.limit, noise):
            return None
        return (
            f"undecided: between {low:.2f} and {high:.2f} {self.unit}, and a step against itself "
            f"up to {noise:.2f}"
        )


def _named(name: str) -> Callable[[Mapping[str, Row]], Row | None]:
    return lambda rows: rows.get(name)


def _fastest(model: str) -> Callable[[Mapping[str, Row]], Row | None]:
    def pick(rows: Mapping[str, Row]) -> Row | None:
        mine = [r for r in rows.values() if r["model"] == model]
        return min(mine, key=lambda r: float(r["ms"])) if mine else None

    return pick


def _key(name: str) -> Callable[[Row, Mapping[str, Row]], float | None]:
    return lambda row, _: row[name]


def _over_short(row: Row, rows: Mapping[str, Row]) -> float | None:
    """A step with 512 new tokens over one with 64: 1 where the cost is linear in tokens."""
    short = rows.get(str(row["row"]).replace("x512-", "x64-"))
    return None if short is None else row["step_ms"] / short["step_ms"]


def _decoding(model: str, title: str, batch: int, known: str, limit: float) -> Goal:
    return Goal(
        f"decoding step, {title}, batch {batch}", known, f"{limit} ms", "rollout",
        _named(f"{model}-{batch}x64-graph"), _key("step_ms"), "ms", limit,
    )  # fmt: skip


def _agreement(model: str, title: str) -> Goal:
    what = f"log-probs of engine and scoring, mean difference, {title} in bf16, batch 256"
    pick = _named(f"{model}-256x64-graph")
    return Goal(what, "-", "0.002 nats", "rollout", pick, _key("logprob_difference"), "nats", 0.002)


def _long(model: str, title: str) -> Goal:
    what = f"{title}, batch 1024: a step with 512 new tokens over one with 64"
    pick = _named(f"{model}-1024x512-graph")
    return Goal(what, "-", "cost linear in tokens", "rollout", pick, _over_short, "", None)


GOALS = (
    _decoding("smollm2", "SmolLM2", 256, "4.1 ms compiled graph, 29 ms generate", 1.5),
    _decoding("smollm2", "SmolLM2", 64, "2.5 ms compiled graph, 26 ms generate", 0.9),
    _decoding("gpt2", "GPT-2", 256, "1.8 ms", 0.8),
    _decoding("gpt2", "GPT-2", 64, "1.0 ms", 0.5),
    Goal(
        "update (forward and backward, 256 x 96 tokens), GPT-2", "58 ms", "45 ms", "update",
        _fastest("gpt2"), _key("ms"), "ms", 45.0,
    ),
    Goal(
        "update (forward and backward, 256 x 96 tokens), SmolLM2", "179 ms", "110 ms", "update",
        _fastest("smollm2"), _key("ms"), "ms", 110.0,
    ),
    Goal(
        "whole GRPO step, 256 completions, 1 epoch, against TRL with HF generation",
        "2.35 s (TRL)", "6 times faster", "vs_trl", _named("grpo-hf"), _key("ratio"), "times", 6.0,
        more=True,
    ),
    Goal(
        "whole PPO step with critic, 64 completions, 4 epochs of 4 minibatches of 16, against TRL",
        "9.3 s (TRL 1.12)", "15 times faster", "vs_trl", _named("ppo"), _key("ratio"), "times",
        15.0, more=True,
    ),
    Goal(
        "peak memory, PPO with critic, full fine-tuning, SmolLM2, Elastic Reset on",
        "25.5 GiB (TRL GRPO without critic)", "12 GiB", "memory", _named("elastic-device"),
        _key("allocated_gib"), "GiB", 12.0,
    ),
    Goal(
        "Elastic Reset: share of a step, average per optimizer step on the device", "-",
        "under 1 %", "overhead", _named("ema-step-device"), _key("share_percent"), "%", 1.0,
        compared=True,
    ),
    Goal(
        "Elastic Reset: extra GPU memory, average per update in pinned CPU memory", "-",
        "under 0.1 GiB", "memory", _named("elastic-cpu"), _key("extra_gib"), "GiB", 0.1,
    ),
    _agreement("smollm2", "SmolLM2"),
    _agreement("gpt2", "GPT-2"),
    _long("smollm2", "SmolLM2"),
    _long("gpt2", "GPT-2"),
)  # fmt: skip


def render(results: Iterable[Mapping[str, Any]], missing: str) -> str:
    """The generated part, ending with a newline. missing: the cell of what is not in a file."""
    from benchmarks.render import shown

    files = {r["name"]: {str(x["row"]): x for x in r["rows"] if "row" in x} for r in results}
    lines = [
        "Set for one H100, from what was measured there before, by other programs (known).",
        "",
        "| | known | goal | measured | reached | card, date | command |",
        "|---|---|---|---|---|---|---|",
    ]
    for g in GOALS:
        rows = files.get(g.file, {})
        row = g.pick(rows)
        value = None if row is None else g.value(row, rows)
        if row is None or value is None:
            told = [missing.strip(), "", "", ""]
        else:
            told = [
                f"{shown(float(value))} {g.unit}".strip(), g.reached(value, row, rows),
                f"{row['card']}, {row['date']}", f"`{row['command']}`",
            ]  # fmt: skip
        lines.append("| " + " | ".join([g.what, g.known, g.goal, *told]) + " |")
    return "\n".join(lines) + "\n"
