"""The IMDB runs with engine `graph` beside the first ones: from the records of both to
`benchmarks/results/imdb_graph.json`.

    python -m benchmarks.collect_imdb_graph RECORDS --date 2026-01-31 --commit 0123abc
    python -m benchmarks.render

RECORDS holds `graph/<run>/` as `benchmarks.imdb_graph` packs it, or is what `benchmarks.archive`
made of it. The runs before are `study/<run>/` of `--before`; a pair is two runs of one setting and
seed. No torch.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.collect_imdb import NAME as FIRST
from benchmarks.collect_imdb import (
    ROOT,
    cards,
    flat,
    opened,
    portable,
    setting_of,
    study_command,
    write,
)
from benchmarks.imdb_graph import COEF
from benchmarks.measuring import PAGE, spread
from tether.config.errors import UserError
from tether.config.settings import dump, parse
from tether.records import EvalPoint, read_lines
from tether.reports.runs import Run, drift, find_runs, settings

NAME = "imdb_graph"
MAY_DIFFER = re.compile(
    r"engine\..*|model\.(compile|capture)|batch\.(old_logprobs|microbatch)|"
    r"evaluation\.(drift_every|domains\..*)"
)
"""Settings by which the two runs of a pair may differ: those that cost time, not results."""
PLACES = re.compile(
    r"name|root|method|threads|model\.(path|gguf_file|tokenizer|adapter|device)|"
    r"data\.(path|test|validation)|rewards\.reward\.path|judges\.tfidf\.path"
)
"""Settings that say where something lies and how it is called. What the weights are is the
`initial_weights` of environment.json."""
TEST = "pytest -m gpu tests/gpu/test_graph_engine.py -k chi_square"
PHASES = ("rollout", "scoring", "learning")
LOGPROB_ERROR = "engine/logprob_error.mean"


def _sides(head: str, key: str, more: str = "") -> dict[str, str]:
    """Columns of a value before and after, and of a third one made of both."""
    out = {f"{key}_before": f"{head}, before", f"{key}_after": "after"}
    return out | ({f"{key}_{more}": more} if more else {})


_WHO = {"method": "Method", "setting": "Setting"}
TABLES: list[dict[str, Any]] = [
    {
        "title": "Validation prompts, last common evaluation",
        "rows": ["run"],
        "columns": {
            **_WHO,
            "update": "Update",
            **_sides("Reward", "reward", "difference"),
            **_sides("Drift", "drift", "difference"),
        },
        "text": "Drift: KL to the initial model, nats per completion. Difference: after - before.",
    },
    {
        "title": "Test prompts, final weights",
        "rows": ["run"],
        "columns": {
            **_WHO,
            **_sides("Reward", "reward_test", "difference"),
            **_sides("Drift", "drift_test", "difference"),
            "failed": "Failed",
        },
        "text": "",
    },
    {
        "title": "Seconds of an update",
        "rows": ["run"],
        "columns": {
            **_WHO,
            **_sides("Rollout", "rollout_s"),
            **_sides("scoring", "scoring_s"),
            **_sides("learning", "learning_s"),
            **_sides("Update", "update_s", "ratio"),
            "spread_before_s": "smallest, quartiles, largest, before",
            "spread_s": "after",
        },
        "text": "Medians over the updates of a run but its first, which compiles; of the run's "
        "timing.jsonl. Update: rollout, scoring, the wait for rewards and learning. The clock is "
        "the host's: device work of one phase may end in the next one. Ratio: before / after.",
    },
    {
        "title": "Whole runs",
        "rows": ["run"],
        "columns": {
            **_WHO,
            **_sides("First update, s", "first_s"),
            **_sides("Validation evaluations, s", "evaluations_s"),
            **_sides("Updates and evaluations, s", "whole_s", "ratio"),
            **_sides("Log-prob error", "logprob_error"),
            **_sides("Card", "card"),
        },
        "text": "Sums over a whole run, compilation included; loading, checkpoints and the test "
        "prompts are in neither record's clock. Log-prob error: mean |engine - scoring pass| of a "
        "sampled token in nats, mean over updates; after, where old log-probs are the engine's, of "
        "the one microbatch that is scored to check them.",
    },
]


@dataclass(frozen=True)
class Pair:
    """The runs of one setting and seed."""

    before: Run
    after: Run

    def __iter__(self) -> Iterator[tuple[str, Run]]:
        return iter((("before", self.before), ("after", self.after)))

    def differing(self) -> dict[str, tuple[Any, Any]]:
        """Settings that are not the same, but for names and places."""
        old, new = (flat(dump(parse(settings(r)))) for r in (self.before, self.after))
        return {
            k: (old.get(k), new.get(k))
            for k in sorted(old | new)
            if not PLACES.fullmatch(k) and not _same(k, old.get(k), new.get(k))
        }


def _same(key: str, old: Any, new: Any) -> bool:
    if key.startswith("evaluation.domains"):  # its file may be called otherwise
        return bool(old) == bool(new)
    return bool(old == new)


def pairs(before: Sequence[Run], after: Sequence[Run]) -> list[Pair]:
    """One for each run after, in its order.

    Raises:
        UserError: a run without its like before, or one that differs from it in what it trains.
    """
    known = {(setting_of(settings(r)), r.seed): r for r in before}
    out = []
    for run in after:
        setting = setting_of(settings(run))
        if (setting, run.seed) not in known:
            raise UserError(
                f"{run.name}: the records before have no run with {setting} and seed {run.seed}; "
                "leave it out, or give others with --before"
            )
        pair = Pair(known[setting, run.seed], run)
        for key, (old, new) in pair.differing().items():
            if not MAY_DIFFER.fullmatch(key):
                raise UserError(
                    f"{run.name}: {key} is {new!r} and was {old!r} in {pair.before.name}: not the "
                    "same run again"
                )
        out.append(pair)
    return out


def seconds(run: Run) -> dict[str, Any]:
    """Of a run's timing.jsonl; all None where it has none, or fewer than two updates."""
    file = run.folder / "timing.jsonl"
    lines = list(read_lines(file)) if file.is_file() else []
    updates = [x["seconds"] for x in lines if "seconds" in x]
    names = (*(f"{p}_s" for p in PHASES), "update_s", "first_s", "evaluations_s", "whole_s")
    out: dict[str, Any] = dict.fromkeys((*names, "spread_s"))
    if len(updates) < 2:
        return out
    whole = [sum(x.values()) for x in updates]
    evaluations = sum(x["evaluation_seconds"] for x in lines if "evaluation_seconds" in x)
    out |= {f"{p}_s": statistics.median(x[p] for x in updates[1:]) for p in PHASES}
    out |= {
        "update_s": statistics.median(whole[1:]),
        "spread_s": spread(whole[1:]),
        "first_s": whole[0],
    }
    if run.finished:
        out |= {"evaluations_s": evaluations, "whole_s": sum(whole) + evaluations}
    return out


def logprob_error(run: Run) -> float | None:
    """Mean over the updates that measured it, nats."""
    lines = read_lines(run.folder / "record.jsonl")
    found = [x["metrics"].get(LOGPROB_ERROR) for x in lines if x["kind"] == "update"]
    values = [v for v in found if v is not None]
    return statistics.fmean(values) if values else None


def _both(key: str, old: float | None, new: float | None) -> dict[str, float | None]:
    known = old is not None and new is not None
    return {
        f"{key}_before": old,
        f"{key}_after": new,
        f"{key}_difference": new - old if known else None,
    }


def _at(key: str, old: EvalPoint | None, new: EvalPoint | None) -> dict[str, float | None]:
    """Reward and drift at two evaluations."""
    rewards = (None if p is None else p.reward for p in (old, new))
    drifts = (None if p is None else drift(p) for p in (old, new))
    return _both(f"reward{key}", *rewards) | _both(f"drift{key}", *drifts)


def _method(run: Run) -> str:
    return str(settings(run).get("method") or run.method)


def row_of(pair: Pair) -> dict[str, Any]:
    """One setting and seed, without command and date."""
    points = [{p.update: p for p in run.validation()} for _, run in pair]
    shared = sorted(set(points[0]) & set(points[1]))
    last = [by_update[shared[-1]] if shared else None for by_update in points]
    final = [next((p for p in run.test() if p.weights == "final"), None) for _, run in pair]
    row: dict[str, Any] = {
        "kind": "run", "row": pair.after.name, "method": _method(pair.before),
        "setting": setting_of(settings(pair.after)), "seeds": [pair.after.seed],
        "update": shared[-1] if shared else None, "card": cards([pair.after]),
        **_at("", last[0], last[1]), **_at("_test", final[0], final[1]),
    }  # fmt: skip
    for side, run in pair:
        found = seconds(run)
        row["spread_before_s" if side == "before" else "spread_s"] = found.pop("spread_s")
        row |= {f"{k}_{side}": v for k, v in found.items()}
        row[f"logprob_error_{side}"] = logprob_error(run)
        row[f"card_{side}"] = cards([run])
    for key in ("update_s", "whole_s"):
        old, new = row[f"{key}_before"], row[f"{key}_after"]
        row[f"{key}_ratio"] = None if old is None or new is None else old / new
    failed = [
        f"{side}: {run.failed or 'not finished'}"
        for side, run in pair
        if run.failed or not run.finished
    ]
    return row | {"failed": "; ".join(failed)}


def command(config: Mapping[str, Any]) -> str:
    """The driver's, for the setting of this run."""
    words = [study_command(config).replace(f"benchmarks.{FIRST}", f"benchmarks.{NAME}")]
    model, kl = config["model"], (config.get("tethers") or {}).get("kl")
    if model.get("gguf_file"):
        words.append(f"--gguf {portable(model['gguf_file'])}")
    if model.get("tokenizer"):
        words.append(f"--tokenizer {portable(model['tokenizer'])}")
    if kl and kl["coef"] != COEF:
        words.append(f"--coefs {kl['coef']:g}")
    return " ".join(words)


def collect(
    before: Path, folder: Path, *, date: str, commit: str, before_commit: str
) -> dict[str, Any]:
    """The result file's content.

    Raises:
        UserError: a folder without runs, or runs that are no pairs.
    """
    runs = find_runs([folder / "graph"])[0]
    known = pairs(find_runs([before / "study"])[0], runs)
    known.sort(key=lambda p: (_place(settings(p.after)), p.after.seed))
    made = next(r.environment for r in runs if r.environment)
    rows = [row_of(p) | {"command": command(settings(p.after)), "date": date} for p in known]
    return {
        "name": NAME, "page": PAGE, "date": date, "card": cards(runs), "commit": commit,
        "versions": {k: v for k, v in made["versions"].items() if v and k != "tether-rl"},
        "notes": _notes(known, before_commit) + _told(folder / "graph" / "notes.json"),
        "tables": TABLES, "rows": rows,
    }  # fmt: skip


def _place(config: Mapping[str, Any]) -> tuple[int, float]:
    """As in the first study: no tether, penalties from weak to strong, Elastic Reset."""
    tethers = config.get("tethers") or {}
    if "kl" in tethers:
        return 1, float(tethers["kl"]["coef"])
    return (2, 0.0) if tethers else (0, 0.0)


def _notes(known: Sequence[Pair], before_commit: str) -> list[str]:
    """What differs between the two sides, what is the same, and what this cannot show."""
    first = settings(known[0].after)
    b, a = first["batch"], first["algorithm"]
    seeds = len({p.after.seed for p in known})
    return [
        f"Before: runs of the IMDB study ({FIRST}), at commit {before_commit}. After: these "
        f"{len(known)} again, {first['updates']} updates each, at the commit above. Settings that "
        f"differ: {_changed(known)}. A minibatch is {b['prompts'] // a['minibatches']} "
        f"completions, a microbatch {b['microbatch']}.",
        _starts(known),
        f"{seeds} seed{'s' if seeds != 1 else ''} cannot show equality. What shows that the engine "
        "samples from the model's distribution is a chi-square test against exact probabilities: "
        f"`{TEST}`. A seed gives both sides the same prompts, not the same completions, since the "
        "engines draw random numbers in different ways: the runs of a pair are two draws.",
        "How many runs shared a card at a time, which seconds depend on, is in neither record "
        "(--per-device of the drivers, by default 3)." + _other_cards(known),
    ]


def _told(file: Path) -> list[str]:
    """What a person adds, because no record says it: a list of texts beside the runs."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []


def _other_cards(known: Sequence[Pair]) -> str:
    other = [p.after.name for p in known if cards([p.before]) != cards([p.after])]
    return f" Another card than before: {', '.join(other)}." if other else ""


def _changed(known: Sequence[Pair]) -> str:
    """`key old -> new; ...`; options that only one of two engines has are left out."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for pair in known:
        for key, values in pair.differing().items():
            if key != "engine.kind" and key.startswith("engine."):
                continue
            for seen, value in zip(found.setdefault(key, (set(), set())), values, strict=True):
                seen.add(portable(value))
    return "; ".join(
        f"{key} {' or '.join(sorted(old))} -> {' or '.join(sorted(new))}"
        for key, (old, new) in found.items()
    )


def _starts(known: Sequence[Pair]) -> str:
    """Are the initial weights the same ones, and what do the engines say of them?"""
    hashes = [[r.environment.get("initial_weights") for r in (p.before, p.after)] for p in known]
    if any(None in pair for pair in hashes):
        text = "Whether the initial weights are the same is not in the records."
    elif all(old == new for old, new in hashes):
        text = "The initial weights are the same in both runs of every pair (hash)."
    else:
        text = "The initial weights are not the same in every pair (hash)."
    starts = [next((p for p in r.validation() if p.update == 0), None) for _, r in known[0]]
    if any(p is None for p in starts):
        return text
    told = ", ".join(
        f"{p.reward:.3f} {side}" for p, side in zip(starts, ("before", "after"), strict=True) if p
    )
    error = max(p.reward_se for p in starts if p)
    return f"{text} Their reward on the validation prompts: {told} (standard error {error:.3f})."


def first_commit() -> str:
    """Of the committed first study."""
    file = ROOT / "benchmarks" / "results" / f"{FIRST}.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["commit"])


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog=f"python -m benchmarks.collect_{NAME}")
    p.add_argument("records", type=Path, help="folder with graph/, or an archive of it")
    p.add_argument("--date", required=True, help="day of the runs, YYYY-MM-DD")
    p.add_argument("--commit", required=True, help="commit of the code that ran")
    p.add_argument(
        "--before", type=Path, default=ROOT / "benchmarks" / "records" / f"{FIRST}.tgz",
        help="folder with study/, or an archive of it",
    )  # fmt: skip
    p.add_argument("--before-commit", help=f"default: that of benchmarks/results/{FIRST}.json")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{NAME}.json")
    given = p.parse_args(words)
    earlier = given.before_commit or first_commit()
    with opened(given.before) as before, opened(given.records) as records:
        found = collect(
            before, records, date=given.date, commit=given.commit, before_commit=earlier
        )
    write(found, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
