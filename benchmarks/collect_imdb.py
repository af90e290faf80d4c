"""The first IMDB study: from its records to `benchmarks/results/imdb_first.json`.

    python -m benchmarks.collect_imdb RECORDS --date 2026-01-31 --commit 0123abc
    python -m benchmarks.render

RECORDS is the folder that `benchmarks.imdb_first` packs: `study/<run>/`, `pilot.json`, and
`imdb-supervised/`, `imdb-classifier/`, `imdb-judge/`; or what `benchmarks.archive` made of it.
Rewards at budgets, areas, recoveries and means are those of `tether.reports` and `tether.analysis`;
nothing is computed twice. No torch.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.tables import TABLES
from tether.analysis.intervals import Summary, summarise
from tether.config.compose import recipe
from tether.config.settings import dump, parse
from tether.config.text_values import read_yaml
from tether.records import EvalPoint
from tether.reports.methods import Method, Study, study
from tether.reports.runs import Run, drift, find_runs, settings

ROOT = Path(__file__).resolve().parents[1]
NAME = "imdb_first"
BUDGETS = (1.0, 2.0, 4.0, 8.0, 16.0)
RECIPES = {
    "PPO": "imdb-ppo",
    "PPO + KL": "imdb-ppo-kl",
    "PPO + Elastic Reset": "imdb-elastic-reset",
}
GAUGES = {
    "entropy": "policy/entropy_nats_per_token",
    "perplexity": "human/perplexity",
    "perplexity_negative": "human/perplexity.label_0",
    "perplexity_positive": "human/perplexity.label_1",
    "perplexity_other": "human/perplexity.domain_wikitext",
    "distinct_2": "text/distinct_2",
    "common_4grams": "text/common_4gram_share",
    "length": "text/length_tokens",
    "finished": "text/finished_share",
}
"""column -> metric of the final validation point."""


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mapping -> dotted keys."""
    out: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def command(name: str, config: Mapping[str, Any]) -> str:
    """`tether train RECIPE ...`: exactly what differs from the recipe, machine paths shortened."""
    base, mine = flat(dump(parse(recipe(name)))), flat(dump(parse(config)))
    words = ["tether train", name]
    for key in sorted(mine, key=lambda k: (k != "seed", k)):
        value = mine[key]
        own = key in ("name", "root", "method", "threads", "model.device")
        # a place that this machine writes another way is no difference
        same = key in base and portable(value) == portable(base[key])
        same = same or (key not in base and value in (None, {}, []))
        if own or (same and key != "seed"):
            continue
        words += [f"--{key}", portable(value)]
    return " ".join(words)


def every_seed(text: str, seeds: Sequence[int]) -> str:
    """The command of one seed -> of all of them, as a line of shell."""
    if len(seeds) < 2:
        return text
    one_more = re.sub(r"--seed \d+", "--seed $seed", text, count=1)
    return f"for seed in {' '.join(map(str, seeds))}; do {one_more}; done"


def study_command(config: Mapping[str, Any]) -> str:
    """The whole study, with its data as this run names it."""
    data, domains = config["data"], config["evaluation"].get("domains") or {}
    named = {
        "model": config["model"]["path"],
        "train": data["path"],
        "validation": data.get("validation"),
        "test": data.get("test"),
        "domain": next(iter(domains.values()), None),
    }
    words = [f"--{k} {portable(v)}" for k, v in named.items() if v]
    return " ".join([f"python -m benchmarks.{NAME}", *words, "--root runs --out out"])


def portable(value: Any) -> str:
    """A value as a word of the command line; of an absolute path what another machine has too."""
    if isinstance(value, str) and Path(value).is_absolute():
        parts = Path(value).parts
        made = [i for i, p in enumerate(parts) if p.startswith("imdb-")]
        return "/".join(("runs", *parts[made[0] :])) if made else parts[-1]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    return "'" + json.dumps(value) + "'" if isinstance(value, list | dict) else json.dumps(value)


def setting_of(config: Mapping[str, Any]) -> str:
    """What distinguishes a run of its method."""
    if not config:
        return "unknown"
    tethers = config.get("tethers") or {}
    if "kl" in tethers:
        return f"coefficient {tethers['kl']['coef']:g}"
    if "elastic_reset" in tethers:
        t = tethers["elastic_reset"]
        return f"period {t['reset']['n']}, decay {t['decay']:g}"
    return "no tether"


def one(runs: Sequence[Run]) -> Study:
    """A study of these runs, all budgets."""
    return study(list(runs), None, BUDGETS)


def summary(s: Summary) -> dict[str, Any]:
    return {"mean": s.mean, "values": list(s.values), "low": s.low, "high": s.high}


def of_point(point: EvalPoint | None) -> dict[str, Any]:
    """Judge and naturalness at one evaluation."""
    if point is None:
        return dict.fromkeys(("judge", *GAUGES))
    judges = list(point.judges.values())
    gauges = {column: point.metrics.get(name) for column, name in GAUGES.items()}
    return {"judge": judges[0] if judges else None, **gauges}


def run_row(run: Run, config: Mapping[str, Any]) -> dict[str, Any]:
    """One (method, setting, seed)."""
    row: dict[str, Any] = {
        "kind": "run",
        "method": run.method,
        "setting": setting_of(config),
        "seeds": [run.seed],
        "updates": run.updates,
        "failed": run.failed or ("" if run.finished else "not finished"),
    }
    points = run.validation()
    last = points[-1] if points else None
    test = next((p for p in run.test() if p.weights == "final"), None)
    row |= {
        "reward_validation": None if last is None else last.reward,
        "drift_validation": None if last is None else drift(last),
        "reward_test": None if test is None else test.reward,
        "reward_test_se": None if test is None else test.reward_se,
        "drift_test": None if test is None else drift(test),
        "judge_test": next(iter(test.judges.values()), None) if test else None,
    }
    row |= of_point(last)
    seen = one([run]) if points else None
    for b in BUDGETS:
        row[f"at_{b:g}"] = seen.methods[0].seeds[0].reward_at(b) if seen else None
    found = seen.methods[0].recoveries() if seen else []
    row |= {
        "resets": len(found),
        "reset_at": [r.update for r in found],
        "reward_before": [r.reward_before for r in found],
        "drift_before": [r.drift_before for r in found],
        "reward_after": [r.reward_after for r in found],
        "drift_after": [r.drift_after for r in found],
        "regained_after": [r.updates for r in found],
        "regained_at_drift": [r.drift for r in found],
    }
    return row


def summary_row(kind: str, method: Method, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds, each seed's value beside them."""
    out: dict[str, Any] = {"kind": kind, "seeds": [s.seed for s in method.seeds]}
    out |= {
        "reward_test": summary(method.final_reward()),
        "drift_test": summary(method.final_drift()),
        "area_16": summary(method.area(16.0)),
        "area_4": summary(method.area(4.0)),
        "failed_runs": method.failed(),
        **{f"at_{b:g}": summary(method.reward_at(b)) for b in BUDGETS},
    }
    for column in ("judge", *GAUGES):
        values = [r[column] for r in rows if r[column] is not None]
        out[column] = summary(summarise(values)) if values else None
    return out


def rows_of(runs: Sequence[Run], configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the initial model, of every run, of every setting and of every method."""
    each = []
    for run in runs:
        row, name = run_row(run, configs[run.name]), RECIPES[run.method]
        known = configs[run.name]
        text = command(name, known) if known else f"tether train {name} --seed {run.seed}"
        each.append(row | {"command": text, "card": cards([run])})
    whole = study_command(next(c for c in configs.values() if c))
    out = [_initial(runs, each) | {"command": whole}, *each]
    named = [replace(r, method=f"{r.method}\0{setting_of(configs[r.name])}") for r in runs]
    for method in one(named).methods:
        name, setting = method.name.split("\0")
        mine = [r for r in each if (r["method"], r["setting"]) == (name, setting)]
        if method.seeds:
            row = summary_row("setting", method, mine) | {"method": name, "setting": setting}
            text = every_seed(mine[0]["command"], row["seeds"])
            out.append(row | {"command": text, "card": _cards_of(mine)})
    for method in one(runs).methods:
        chosen = {(s.seed, _chosen(s.runs, s.final)) for s in method.seeds}
        mine = [
            row
            for run, row in zip(runs, each, strict=True)
            if run.method == method.name and (run.seed, run.name) in chosen
        ]
        if method.seeds:
            row = summary_row("method", method, mine) | {"method": method.name}
            settings_used = sorted({r["setting"] for r in each if r["method"] == method.name})
            row["setting"] = "; ".join(settings_used)
            used = [r for r in each if r["method"] == method.name]
            out.append(row | {"command": whole, "card": _cards_of(used)})
    return out


def cards(runs: Sequence[Run]) -> str:
    """The devices of these runs, each once."""
    found = sorted({str(r.environment["device"]) for r in runs if r.environment})
    return " and ".join(found) or "unknown"


def _cards_of(rows: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join(sorted({c for r in rows for c in str(r["card"]).split(" and ")}))


def _chosen(runs: Sequence[Run], final: EvalPoint) -> str:
    """Which of a seed's runs the final weights are of."""
    return next(r.name for r in runs if any(p is final for p in r.points))


def _initial(runs: Sequence[Run], each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Update 0: the same weights in every run."""
    start = next(p for r in runs for p in r.validation() if p.update == 0)
    test = next((p for r in runs for p in r.test() if p.update == 0), None)
    row = dict.fromkeys(each[0]) | of_point(start)
    row |= {
        "kind": "initial", "method": "initial model", "setting": "-", "updates": 0, "failed": "",
        "reward_validation": start.reward, "drift_validation": 0.0, "drift_test": 0.0,
        "reward_test": None if test is None else test.reward,
        "reward_test_se": None if test is None else test.reward_se,
        "judge_test": next(iter(test.judges.values()), None) if test else None,
        "seeds": [], "resets": 0,
    }  # fmt: skip
    row |= {f"at_{b:g}": row["reward_test"] for b in BUDGETS}
    return row


def classifiers(folder: Path) -> list[dict[str, Any]]:
    """The reward model and the judge: accuracy, whole reviews and excerpts."""
    out = []
    for name, what in (("imdb-classifier", "reward"), ("imdb-judge", "judge, never a reward")):
        found = json.loads((folder / name / "results.json").read_text(encoding="utf-8"))
        config = read_yaml(folder / name / "config.yaml")
        facts = folder / name / "environment.json"
        card = json.loads(facts.read_text(encoding="utf-8"))["device"] if facts.exists() else None
        for split in ("validation", "test"):
            if split in found:
                out.append(
                    {
                        "kind": "classifier", "model": name, "use": what, "split": split,
                        "reviews": found[split]["rows"], "accuracy": found[split]["accuracy"],
                        "accuracy_112": found[split].get("accuracy_on_112_tokens"),
                        "training_reviews": found["train_rows"], "seeds": [int(config["seed"])],
                        "command": command(name, config), **({"card": card} if card else {}),
                    }
                )  # fmt: skip
    return out


def collect(folder: Path, *, date: str, commit: str, card: str | None = None) -> dict[str, Any]:
    """The result file's content. Raises UserError for a folder without runs."""
    runs, _ = find_runs([folder / "study"])
    configs = {r.name: settings(r) or _planned(folder, r.name) for r in runs}
    runs = [replace(r, method=str(configs[r.name].get("method") or r.method)) for r in runs]
    order = {m: i for i, m in enumerate(RECIPES)}
    runs = sorted(runs, key=lambda r: (order[r.method], setting_of(configs[r.name]), r.seed))
    made = next(r.environment for r in runs if r.environment)
    card = card or cards(runs)
    rows = classifiers(folder) + rows_of(runs, configs)
    for row in rows:
        row["card"] = row.get("card") or card
        row["date"] = date
    return {
        "name": NAME,
        "page": "docs/results.md",
        "date": date,
        "card": card,
        "commit": commit,
        "versions": {k: v for k, v in made["versions"].items() if v and k != "tether-rl"},
        "notes": _notes(folder, runs, configs),
        "tables": TABLES,
        "rows": rows,
    }


def _planned(folder: Path, name: str) -> dict[str, Any]:
    """The configuration that a run which never started was given; empty where it is not packed."""
    file = folder / "study" / "configs" / f"{name}.yaml"
    return read_yaml(file) if file.is_file() else {}


def _notes(
    folder: Path, runs: Sequence[Run], configs: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    shown = one(runs)
    first = next(c for c in configs.values() if c)
    e, b, a = first["evaluation"], first["batch"], first["algorithm"]
    notes = [
        f"{len(runs)} runs of {first['updates']} updates: {b['prompts']} completions an update, "
        f"{a['epochs']} epochs of {a['minibatches']} minibatches, learning rate {a['lr']:g}; "
        f"evaluated on {e['prompts']:,} validation prompts every {e['every']} updates and on "
        f"{e['test_prompts']:,} test prompts at the end. Reported rewards are of the {shown.split} "
        "split."
    ]
    pilot = folder / "pilot.json"
    if pilot.is_file():
        found = json.loads(pilot.read_text(encoding="utf-8"))
        rises = ", ".join(f"{k}: {v:+.3f}" for k, v in found["rise"].items())
        notes.append(
            f"The learning rate was chosen on a pilot seed that is not reported and on validation "
            f"prompts, by a rule written down before (benchmarks/{NAME}.py); rise of the reward by "
            f"learning rate: {rises}."
        )
    count = {m: len({r.seed for r in runs if r.method == m}) for m in RECIPES}
    fewest = min(n for n in count.values() if n) if any(count.values()) else 0
    if fewest < 6:
        notes.append(
            f"{fewest} seed{'s' if fewest != 1 else ''}: no interval and no verdict. Every seed's "
            "value stands in parentheses behind the mean."
        )
    by_card: dict[str, set[int]] = {}
    for r in runs:
        by_card.setdefault(cards([r]), set()).add(r.seed)
    if len(by_card) > 1:
        which = "; ".join(f"seeds {sorted(v)} on {k}" for k, v in sorted(by_card.items()))
        notes.append(f"One base and one commit for all runs; cards: {which}.")
    notes += list(shown.notes)
    return notes


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.collect_imdb")
    p.add_argument(
        "records", type=Path, help="folder with study/, pilot.json, imdb-*/, or an archive of it"
    )
    p.add_argument("--date", required=True, help="day of the runs, YYYY-MM-DD")
    p.add_argument("--commit", required=True, help="commit of the code that ran")
    p.add_argument("--card", default=None, help="default: the device that the runs recorded")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{NAME}.json")
    given = p.parse_args(words)
    with opened(given.records) as records:
        found = collect(records, date=given.date, commit=given.commit, card=given.card)
    write(found, given.out)
    return 0


@contextmanager
def opened(records: Path) -> Iterator[Path]:
    """A folder of records, or what `benchmarks.archive` made of one, unpacked for the time."""
    if not records.is_file():
        yield records
        return
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(records) as tar:
            tar.extractall(place, filter="data")
        yield Path(place)


def write(found: Mapping[str, Any], out: Path) -> None:
    """A result file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    out.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {out}: {len(found['rows'])} rows")


if __name__ == "__main__":
    sys.exit(main())
