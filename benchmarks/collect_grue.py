"""The real runs of the benchmark: from their folder to `benchmarks/results/grue.json`.

    python -m benchmarks.collect_grue RUNS --date 2026-01-31 --commit 0123abc
    python -m benchmarks.render

RUNS is the benchmark's folder (`runs` below --root of `benchmarks.grue_real`), its cells measured,
or what `--pack OUT.tgz` made of it. No torch; every number is one of the
records or of `tether.reports.grue`. Cells that have not finished are named, and leave their row
with the seeds that have.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import grue_ablations
from benchmarks.archive import PRIVATE, portable
from benchmarks.collect_imdb import ROOT, opened, write
from benchmarks.grue_pack import GROUPS
from benchmarks.grue_pilot import SEED
from benchmarks.grue_study import (
    DEVIATIONS,
    PILOT,
    PRETRAINED,
    REPEATED,
    WITHOUT_PILOT,
    WITHOUT_WARM_START,
)
from benchmarks.published_grue import DATE, PAPER, TABLES
from tether.analysis.grue import Family, Score
from tether.config.errors import UserError
from tether.reports.grue.results import Cell, Results, Row, Task, Weights, read

NAME = "grue"
COMMAND = "python -m benchmarks.grue_real {group} --root W --out O --from {sources}"
SOURCES = {"t5": ".grue/t5", "smollm2": ".grue/smollm2 .grue/gguf"}
"""Group -> folders of `benchmarks.grue_pack` that its runs read."""
NAMES = {
    "imdb": "IMDB", "commongen": "CommonGen", "dailydialog": "DailyDialog",
    "fairytaleqa": "FairytaleQA", "multi30k": "Multi30k English-German", "scitldr": "SciTLDR",
    "dart": "DART",
}  # fmt: skip
METRICS = {
    "classifier": "Sentiment", "perplexity": "Perplexity", "msttr": "MSTTR",
    "distinct_1": "Distinct-1", "distinct_2": "Distinct-2", "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L", "rouge_lsum": "ROUGE-Lsum",
    "rouge_l_max": "ROUGE-L max", "meteor": "METEOR", "cider_d": "CIDEr-D", "bleu": "BLEU",
    "coverage": "Coverage", "sacre_bleu": "SacreBLEU", "chrf": "chrF", "ter": "TER",
    "intent_accuracy": "Intent", "parent": "PARENT",
}  # fmt: skip
GROUP_OF = {task: group for group, tasks in GROUPS.items() for task in tasks}
SHOWN_BUDGETS = (1.0, 4.0, 16.0)


def score_of(score: Score | None) -> dict[str, Any] | None:
    """A score as a cell: mean, interval over examples, each seed's value."""
    if score is None:
        return None
    return {"mean": score.mean, "values": list(score.seeds), "low": score.low, "high": score.high}


def each(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Mean over seeds with each seed's value; None where one is missing."""
    found = [v for v in values if v is not None]
    if not found or len(found) < len(values):
        return None
    return {"mean": sum(found) / len(found), "values": found, "low": None, "high": None}


def seeds_of(results: Results, task: Task, row: Row) -> list[int]:
    cells = task.cells.get(row.label, {})
    return [s for s in results.seeds if s in cells] if row.has_seeds else []


def label(task: Task, row: Row) -> str:
    """The method, what an ablation changes of it, and whether it is a pilot here."""
    pilot = row.method == "ppo" and task.name not in WITHOUT_WARM_START
    name = grue_ablations.NAMES.get(row.method, row.label)
    return f"{name} (pilot)" if pilot else name


def score_row(results: Results, task: Task, row: Row) -> dict[str, Any]:
    """Scores at the primary budget and at the end, reward at each budget, drift at the end."""
    out: dict[str, Any] = {"kind": f"scores-{task.name}", "method": label(task, row)}
    families: tuple[tuple[Family, str], ...] = (("task", "task"), ("naturalness", "natural"))
    for family, name in families:
        for budget, when in ((results.budget, "budget"), (None, "final")):
            out[f"{name}_{when}"] = score_of(results.score(task, row, family, budget))
    for budget in SHOWN_BUDGETS:
        found = results.weights(task, row, budget) if row.tuned else []
        out[f"reward_{budget:g}"] = each([w.reward for w in found])
    final = results.weights(task, row, None)
    out["reward_final"] = each([w.reward for w in final])
    out["drift_final"] = each([w.drift for w in final])
    return out


def metric_row(results: Results, task: Task, row: Row) -> dict[str, Any]:
    """The paper's metrics of the final weights, as they are."""
    final = results.weights(task, row, None)
    values = {c: each([_value(w, c) for w in final]) for c in TABLES[task.name].columns}
    return {"kind": f"metrics-{task.name}", "method": label(task, row), "of": "here", **values}


def _value(weights: Weights, metric: str) -> float | None:
    if metric == "perplexity":
        return weights.perplexity
    return weights.measured.values.get(metric)


def published_rows(task: str) -> list[dict[str, Any]]:
    found = TABLES[task]
    common = {
        "kind": f"metrics-{task}", "of": f"paper, {found.task}", "seeds": [], "date": DATE,
        "card": "as published", "command": f"none: {PAPER}, {found.table}",
    }  # fmt: skip
    return [
        {**common, "method": method, **dict(zip(found.columns, values, strict=True))}
        for method, values in found.rows.items()
    ]


def tables(results: Results) -> list[dict[str, Any]]:
    """Two a task: scores here; metrics beside the paper's."""
    out = []
    for task in results.tasks:
        name, found = NAMES[task.name], TABLES[task.name]
        dropped = [f"{a.metric} ({a.dropped})" for a in task.anchors if a.dropped]
        left = f" Left out: {'; '.join(dropped)}." if dropped else ""
        out.append({
            "title": f"{name}: scores",
            "rows": [f"scores-{task.name}"],
            "columns": {
                "method": "Method", "task_budget": f"Task, {results.budget:g} nats",
                "natural_budget": f"Naturalness, {results.budget:g} nats",
                "task_final": "Task, final", "natural_final": "Naturalness, final",
                **{f"reward_{b:g}": f"Reward, {b:g} nat{'s' * (b > 1)}" for b in SHOWN_BUDGETS},
                "reward_final": "Reward, final", "drift_final": "Drift, final",
            },
            "text": f"{task.examples} test examples; anchors {task.sha256[:12]}.{left}",
        })  # fmt: skip
        stands = "" if found.task == name else f" {name} stands for {found.task}."
        out.append({
            "title": f"{name}: metrics beside the paper's",
            "rows": [f"metrics-{task.name}"],
            "columns": {
                "method": "Method", "of": "Of",
                **{c: METRICS[c] for c in found.columns},
            },
            "text": f"Final weights; the paper's {found.table}.{stands} {found.differs}",
        })  # fmt: skip
    return out


def rows_of(
    results: Results, card: str, date: str, others: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows of what has finished, and the paper's. others: group, task, TASK/METHOD or a cell's
    folder -> the commit that it ran at."""
    out = []
    for task in results.tasks:
        group = GROUP_OF[task.name]
        about: dict[str, Any] = {
            "command": COMMAND.format(group=group, sources=SOURCES[group]),
            "card": card,
            "date": date,
        }
        if other := others.get(task.name, others.get(group)):
            made = environments(results, [task])
            about |= {"commit": other, "versions": _versions(made), "row": NAMES[task.name]}
        there = [r for r in results.rows if task.cells.get(r.label)]
        for make in (score_row, metric_row):
            for row in there:
                more: dict[str, Any] = {"seeds": seeds_of(results, task, row), **about}
                if alone := others.get(f"{task.name}/{row.label}"):
                    name = f"{NAMES[task.name]}: {row.label}"
                    made = environments(results, [task], row.label)
                    more |= {"commit": alone, "versions": _versions(made), "row": name}
                cells = {name_of(results, c) for c in task.cells[row.label].values()}
                cells -= {f"{task.name}/{row.label}"}
                if of_cells := {c: others[c] for c in sorted(cells) if c in others}:
                    more["commits"] = of_cells
                if row.method in grue_ablations.LAYERS:
                    more["command"] += " --ablations"
                out.append({**make(results, task, row), **more})
        out += published_rows(task.name)
    return out


def name_of(results: Results, cell: Cell) -> str:
    """The cell's folder, as errors and commands call it."""
    return cell.folder.relative_to(results.folder).as_posix()


def environments(
    results: Results, tasks: Sequence[Task], row: str | None = None
) -> list[dict[str, Any]]:
    """What the finished cells of some tasks, or of one row of them, ran on."""
    found = []
    for task in tasks:
        for label, cells in task.cells.items():
            for cell in cells.values() if row in (None, label) else ():
                file = cell.folder / "environment.json"
                if file.is_file():
                    found.append(json.loads(file.read_text(encoding="utf-8")))
    if not found:
        raise UserError(f"{results.folder}: no cell has an environment.json")
    return found


def _versions(made: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {k: v for k, v in made[0]["versions"].items() if v and k != "tether-rl"}


def collect(
    folder: Path, *, date: str, commit: str, others: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The result file's content. others: group, task, TASK/METHOD or a cell's folder -> another
    commit that it ran at.

    Raises UserError: nothing has finished, or there is a task that the real runs do not have.
    """
    results = read(folder)
    if unknown := [t.name for t in results.tasks if t.name not in GROUP_OF]:
        raise UserError(
            f"{folder} has {', '.join(unknown)}, and the tables here are of {', '.join(GROUP_OF)}; "
            "`tether grue report` makes those of any benchmark"
        )
    others = others or {}
    tasks = {t.name for t in results.tasks}
    rows = {f"{t}/{r.label}" for t in tasks for r in results.rows}
    ended = [c for t in results.tasks for found in t.cells.values() for c in found.values()]
    alone = {name_of(results, c) for c in ended} - rows  # zero-shot's only cell is its row
    if absent := sorted(others.keys() - GROUPS.keys() - tasks - rows - alone):
        raise UserError(
            f"--other {absent[0]} is no task or row of {folder}, nor a finished cell of it; there "
            "are TASK, TASK/METHOD, and cells as their folders are called"
        )
    of_commit = [t for t in results.tasks if not {t.name, GROUP_OF[t.name]} & others.keys()]
    if not of_commit:
        raise UserError("--other names every task: one of these commits is --commit")
    made = environments(results, results.tasks)
    card = " and ".join(sorted({str(e["device"]) for e in made}))
    finished = results.cells - len(results.missing)
    rates = _rates(folder, [t.name for t in results.tasks])
    notes = [
        f"{finished} of {results.cells} cells. "
        f"Seeds {', '.join(map(str, results.seeds))}: each seed's value stands in parentheses "
        "behind the mean; intervals in brackets are over examples only and say nothing about "
        "another seed; there are no tests and no verdicts. Rows without seeds are single runs.",
        "A row called pilot is one seed of PPO without a warm start, where the study has no more.",
        "Drift is in nats per completion from the weights where a method starts; a reward at a "
        "budget is that of the best weights within it (the initial ones where training passed it "
        "at once). Final weights stand at whatever drift they ended at.",
        "What differs from RL4LMs' settings:\n\n"
        + "\n".join(f"* {d}" for d in (*DEVIATIONS[:5], rates, *DEVIATIONS[5:])),
    ]
    file = folder / PRETRAINED.name
    if file.is_file():
        notes.append(_pretrained(json.loads(file.read_text(encoding="utf-8"))))
    file = folder / REPEATED
    if file.is_file() and (again := json.loads(file.read_text(encoding="utf-8"))):
        notes.append(
            "Trained twice, since their weights did not travel; methods that had finished by then "
            f"start from the first: {', '.join(again)}."
        )
    there = [r.method for r in results.rows if any(t.cells.get(r.label) for t in results.tasks)]
    if ablations := grue_ablations.note(there):
        notes.append(ablations)
    if of_cells := {k: v for k, v in others.items() if k in alone}:
        notes.append(_mixed(of_cells))
    if lacking := [t for t in GROUP_OF if t not in {task.name for task in results.tasks}]:
        notes.append(f"Not run, or not among these files: {', '.join(lacking)}.")
    if results.missing:
        notes.append("Not finished: " + ", ".join(results.missing) + ".")
    if results.failures:
        notes.append("Failed: " + "; ".join(f"{k}: {v}" for k, v in results.failures.items()) + ".")
    return {
        "name": NAME,
        "page": "docs/grue.md",
        "date": date,
        "card": card,
        "commit": commit,
        "versions": _versions(environments(results, of_commit)),
        "notes": notes,
        "tables": tables(results),
        "rows": rows_of(results, card, date, others),
    }


def _mixed(commits: Mapping[str, str]) -> str:
    """Cells, name -> commit, of another commit than their row."""
    told = [
        f"at {commit} {', '.join(sorted(n for n, c in commits.items() if c == commit))}"
        for commit in sorted(set(commits.values()))
    ]
    return f"Ran at another commit than the other seeds of their row: {'; '.join(told)}."


def _pretrained(t5: Mapping[str, Any]) -> str:
    """What the small T5 has seen."""
    return (
        f"The T5: {t5['parameters']:,} parameters, span corruption for {t5['steps']:,} steps of "
        f"{t5['tokens_seen'] // t5['steps']:,} tokens from texts of {t5['tokens_of_texts']:,}; "
        f"loss {t5['held_out_loss']:.2f} on texts held out."
    )


def _rates(folder: Path, tasks: Sequence[str]) -> str:
    """Of the learning rates, and how they were found."""
    file = folder / PILOT.name
    if not file.is_file():
        return WITHOUT_PILOT
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    told = []
    for task, x in found.items():
        tried = ", ".join(f"{lr} {reward:.3f}" for lr, reward in x["reward"].items())
        failed = f"; failed: {', '.join(x['failed'])}" if x["failed"] else ""
        told.append(f"{NAMES[task]} {x['lr']:g} (reward at {tried}{failed})")
    if others := [t for t in tasks if t not in found]:
        told.append(f"{', '.join(NAMES[t] for t in others)}: no pilot, 3e-5 for the T5, 1e-4 else")
    updates = ", ".join(sorted({str(x["updates"]) for x in found.values()}))
    return (
        "Learning rates by pilots, where RL4LMs has 5e-7 to 2e-6: supervised + PPO on seed "
        f"{SEED}, {updates} updates; that with the largest reward on validation prompts. "
        f"{'; '.join(told)}."
    )


def pack(folder: Path, out: Path) -> int:
    """The numbers of a benchmark as one small file: no completion, no prompt, of a path what
    another machine has too. The number of its files."""
    count = 0
    with tarfile.open(out, "w:gz", compresslevel=9, format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(p for p in folder.rglob("*.json") if "policy" not in p.parts):
            of_all = file.parent == folder or file.parent.name == "anchors"
            if not of_all and file.name not in ("scores.json", "environment.json"):
                continue
            data = file.read_bytes()
            if file.name == "environment.json":
                found = json.loads(data)
                kept = {k: portable(v) for k, v in found.items() if k not in PRIVATE}
                data = json.dumps(kept, indent=1, sort_keys=True).encode()
            info = tarfile.TarInfo(file.relative_to(folder).as_posix())
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            count += 1
    return count


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.collect_grue")
    p.add_argument("runs", type=Path, help="the benchmark's folder, or an archive of it")
    p.add_argument("--pack", type=Path, help="write an archive of the numbers, and nothing else")
    p.add_argument("--date", help="day of the runs, YYYY-MM-DD")
    p.add_argument("--commit", help="commit of the code that ran")
    p.add_argument(
        "--other",
        nargs="+",
        default=[],
        metavar="WHAT=COMMIT",
        help="another one, of t5 or smollm2, of a TASK, a row: TASK/METHOD, or a cell: its folder",
    )
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{NAME}.json")
    given = p.parse_args(words)
    if given.pack is not None:
        print(f"{given.pack}: {pack(given.runs, given.pack)} files")
        return 0
    if not given.date or not given.commit:
        p.error("--date and --commit are needed")
    pairs = [o.partition("=")[::2] for o in given.other]
    others = dict(pairs)
    known = {*GROUPS, *GROUP_OF}
    wrong = [what for what, one in pairs if not one or not (what in known or "/" in what)]
    if wrong or len(others) < len(pairs) or GROUPS.keys() <= others.keys():
        p.error(
            "--other is t5=COMMIT or smollm2=COMMIT, where the other one ran at --commit, "
            "TASK=COMMIT, TASK/METHOD=COMMIT, or TASK/CELL=COMMIT, each once"
        )
    try:
        with opened(given.runs) as folder:
            write(collect(folder, date=given.date, commit=given.commit, others=others), given.out)
    except UserError as e:
        print(f"collect_grue: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
