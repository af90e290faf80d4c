"""`tether reward-model budget`: are labels better spent on a reward, or on demonstrations?

One reward model for each share of the labels, RL with each, and supervised training with so many
demonstrations and with `more` times as many (no label at all: the 0 % row). All are scored by the
same two judges on the same prompts, and drift stands beside the score.

* `full`: the reward model of all labels, as in the paper. It is the reward of the 100 % arm, which
  it flatters.
* `held_out`: a reward model of the other half of the labels, which no arm has seen.

The raw score of a reward model of pairs has no scale of its own. As reward and as judge each is
normalised by its own mean and standard deviation on the validation pairs, so that the rewards of
all budgets, and what a coefficient of the KL costs beside them, are on one scale.

Source of the question: Ramamurthy et al. 2022, arXiv 2210.01241, section 5.3. There the judge is
`full` alone and drift is not reported.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tether.config.checks import check_complete
from tether.config.compose import recipe
from tether.config.differences import differences, told
from tether.config.errors import UserError
from tether.config.layers import apply_overrides, merge
from tether.config.run import ClassifierSettings, RunSettings
from tether.config.settings import fingerprint, parse
from tether.config.text_values import read_yaml
from tether.config.whole_file import write_whole
from tether.records import DRIFT, EvalPoint, finite, read_points
from tether.rewards.class_names import hint, position, shown
from tether.studies.budget_table import JUDGES, csv_of, show
from tether.studies.compare import SEEDS, Setting, Study, check_inputs, plan, run_study
from tether.studies.judged import check_judged_alike, shared
from tether.studies.study_file import known, numbers, seeds, text, whole
from tether.studies.workers import Job
from tether.tasks.loading import splits
from tether.train.labelled import load_labelled
from tether.train.run import complete, train

MODELS = "reward-models"
HELD_OUT = "held-out"
PARTS = ("reward_model", "rl", "supervised")
KEYS = ("name", "folder", "seeds", "shares", "more", "demonstrations", "label", *PARTS)


@dataclass(frozen=True)
class Budget:
    """A study of label budgets."""

    name: str
    folder: Path
    reward_model: Mapping[str, Any]
    """Settings of the reward model (job classifier); half and share are set by the study."""
    rl: Mapping[str, Any]
    """Settings of the RL runs; the reward is the study's, whatever the recipe has."""
    supervised: Mapping[str, Any]
    """Settings of the supervised runs."""
    demonstrations: int
    """Rows of the supervised baseline."""
    seeds: Sequence[int] = tuple(range(SEEDS))
    shares: Sequence[float] = (0.1, 0.5, 1.0)
    """Shares of the labels (of the first half of them). 0 is the supervised baseline."""
    more: int = 5
    """How many times more demonstrations the second supervised arm has; and updates, so that both
    pass their rows equally often."""
    label: str | None = None
    """Class that is rewarded, with a reward model of classes; default: the last one."""


def read_budget(file: Path, overrides: Sequence[str] = ()) -> Budget:
    """A study file. `reward_model`, `rl` and `supervised` are mappings of settings with an optional
    key `recipe`; overrides `--rl.updates 4` act on them. Raises UserError."""
    found = read_yaml(file)
    known(found, KEYS, file, "a budget study")
    _whose(overrides)
    parts: dict[str, Mapping[str, Any]] = {}
    for key in PARTS:
        entry = found.get(key)
        if not isinstance(entry, dict):
            raise UserError(
                f"'{key}' in {file} must be a mapping of settings, e.g. {{recipe: ...}}"
            )
        base = {"job": "classifier"} if key == "reward_model" else {}
        base |= recipe(entry["recipe"]) if entry.get("recipe") else {}
        if key == "supervised":  # judged as the others are, unless the file says otherwise
            base = merge(base, shared(parts["rl"], f"'rl' in {file}"))
        changes = {k: v for k, v in entry.items() if k != "recipe"}
        parts[key] = apply_overrides(merge(base, changes), _own(overrides, key))
    if "demonstrations" not in found:
        raise UserError(f"'demonstrations' is missing in {file}: rows of the supervised baseline")
    name = text(found, "name", file.stem, file)
    out = Budget(
        name=name,
        folder=Path(text(found, "folder", str(Path("runs") / name), file)),
        seeds=seeds(found, SEEDS, file),
        shares=numbers(found, "shares", Budget.shares, file),
        more=whole(found, "more", Budget.more, file, 2),
        demonstrations=whole(found, "demonstrations", None, file, 1),
        label=text(found, "label", "", file) if "label" in found else None,
        **parts,  # type: ignore[arg-type]
    )
    _check(out, file)
    return out


def _own(overrides: Sequence[str], key: str) -> list[str]:
    """`--rl.updates 4` -> `--updates 4` for the part `rl`."""
    out: list[str] = []
    mine = False
    for word in overrides:
        if word.startswith("--"):
            mine = word.startswith(f"--{key}.") or word.startswith(f"--{key.replace('_', '-')}.")
            word = f"--{word[3 + len(key) :]}"
        if mine:
            out.append(word)
    return out


def _whose(overrides: Sequence[str]) -> None:
    """Raises UserError for an override that is of no part of the study."""
    for word in overrides:
        head = word[2:].partition("=")[0].partition(".")[0].replace("-", "_")
        if word.startswith("--") and head not in PARTS:
            raise UserError(
                f"{word.partition('=')[0]} is no setting of a budget study: say of which part it "
                f"is, {', '.join(f'--{p}.KEY' for p in PARTS)}"
            )


def _check(b: Budget, file: Path) -> None:
    if (
        not b.shares
        or not all(0 < s <= 1 for s in b.shares)
        or len({*map(_percent, b.shares)}) < len(b.shares)
    ):
        raise UserError(
            f"'shares' in {file} must be different numbers above 0 and at most 1 (0 % is the "
            "supervised arm, which is always there)"
        )
    for key in ("share", "half"):
        if key in b.reward_model:
            raise UserError(f"reward_model.{key} in {file} is set by the study; leave it out")
    for key, part in (("rl", b.rl), ("supervised", b.supervised)):
        if not isinstance(parse(part, f"'{key}' in {file}"), RunSettings):
            raise UserError(f"'{key}' in {file} is a reward model, must be a policy run")


def models(b: Budget) -> dict[str, ClassifierSettings]:
    """Folder name -> settings of each reward model: one a share, all labels, and the judge."""
    wanted = {_percent(s): {"share": s, "half": "first"} for s in sorted({*b.shares, 1.0})}
    wanted[HELD_OUT] = {"share": 1.0, "half": "second"}
    out: dict[str, ClassifierSettings] = {}
    for name, changes in wanted.items():
        place = {"job": "classifier", "name": name, "root": str(b.folder / MODELS)}
        settings = parse(merge(b.reward_model, {**changes, **place}), f"the reward model {name}")
        assert isinstance(settings, ClassifierSettings)
        if settings.kind == "tfidf":
            raise UserError("the reward model of a budget study is of kind model or pairs")
        if settings.kind == "pairs" and b.label is not None:
            raise UserError("a reward model of pairs has one score: 'label' is for kind model")
        if settings.kind == "pairs" and not (
            settings.data.validation or settings.data.validation_rows
        ):
            raise UserError(
                "rewards of a budget study are normalised on validation pairs: set "
                "reward_model.data.validation_rows above 0"
            )
        check_complete(settings)
        out[name] = settings
    return out


def study(b: Budget) -> Study:
    """The runs: RL with each reward model, and the two supervised arms."""
    judges = {
        name: _reward(b, folder)
        for name, folder in zip(JUDGES, (_percent(1.0), HELD_OUT), strict=True)
    }
    arms: dict[str, list[Setting]] = {}
    for share in sorted(b.shares):
        learned = {"learned": _reward(b, _percent(share))}
        arms[f"reward {_percent(share)}"] = [
            (None, {**b.rl, "rewards": learned, "judges": {**b.rl.get("judges", {}), **judges}})
        ]  # fmt: skip
    base = parse(b.supervised, "'supervised'")
    assert isinstance(base, RunSettings)
    for times, name in ((1, "supervised"), (b.more, f"supervised x{b.more}")):
        own = {
            "updates": times * base.updates,
            "data": {**b.supervised.get("data", {}), "limit": times * b.demonstrations},
            "judges": {**b.supervised.get("judges", {}), **judges},
        }
        every = times * base.evaluation.every
        own["evaluation"] = {**b.supervised.get("evaluation", {}), "every": every}
        arms[name] = [(None, {**b.supervised, **own})]
    return Study(b.name, b.folder, arms, b.seeds)


def _reward(b: Budget, name: str) -> dict[str, Any]:
    more = {} if b.label is None else {"label": b.label}
    if b.reward_model.get("kind") == "pairs":
        more["normalise"] = "validation"
    return {"kind": "classifier", "path": str(b.folder / MODELS / name), **more}


def _percent(share: float) -> str:
    return f"{100 * share:g}-percent"


def main(
    b: Budget,
    *,
    workers: int | None = None,
    per_device: int = 1,
    retry: bool = False,
    dry: bool = False,
    console: Console | None = None,
) -> int:
    """Train what is missing, run what is not finished, report. Exit status: 0, or 1 when a run
    failed.

    dry: check everything and print the plan. Raises UserError before the first training for
    settings or data that are wrong, and for a folder with other settings in it.
    """
    console = console or Console()
    wanted = models(b)
    for settings in wanted.values():
        _refuse_other(settings)
    _check_classes(b, wanted)
    jobs = plan(study(b))
    _enough(b, jobs)
    arms = {j.method: j.settings for j in jobs}
    rl = arms[f"reward {_percent(b.shares[0])}"]
    check_judged_alike(rl, arms["supervised"], ("rl", "supervised"))
    if dry:
        for name in wanted:
            console.print(f"reward model {name}", markup=False)
        for job in jobs:
            console.print(f"run {job.name}: {job.settings.updates} updates", markup=False)
        return 0
    for name, settings in wanted.items():
        _trained(settings, name, console)
    check_inputs(study(b))
    run_study(study(b), workers=workers, per_device=per_device, retry=retry)
    rows = report(b, jobs)
    show(b.folder, len(b.seeds), rows, console)
    return 1 if any(r["failed"] for r in rows) else 0


def _enough(b: Budget, jobs: Sequence[Job]) -> None:
    """Raises UserError where the supervised data hold fewer rows than the larger arm asks for."""
    job = next(j for j in jobs if j.method == f"supervised x{b.more}")
    data = job.settings.data
    there = len(next(iter(splits(replace(data, limit=None))["train"][0].values())))
    if there < b.more * b.demonstrations:
        raise UserError(
            f"{b.more} x {b.demonstrations} demonstrations are asked for, {data.path} has {there} "
            "training rows; lower demonstrations or more"
        )


def _refuse_other(settings: ClassifierSettings) -> None:
    config = Path(settings.root) / settings.name / "config.yaml"
    if config.is_file() and fingerprint(old := read_yaml(config)) != fingerprint(settings):
        raise UserError(
            f"{config.parent} holds a reward model with other settings "
            f"({told(differences(old, settings))}): give those, or choose another folder: "
            "--folder FOLDER"
        )


def _trained(settings: ClassifierSettings, name: str, console: Console) -> None:
    folder = Path(settings.root) / settings.name
    if (folder / "results.json").is_file():
        console.print(f"reward model {name}: complete", markup=False)
        return
    console.print(f"reward model {name}: training", markup=False)
    train(settings, resume=True, say=lambda text: console.print(f"  {text}", markup=False))


def _check_classes(b: Budget, wanted: Mapping[str, ClassifierSettings]) -> None:
    """Raises UserError, before a training, for a share in which a class is missing (its last class
    would be another one), and for a label that the data do not have."""
    if wanted[HELD_OUT].kind == "pairs":
        return
    found = splits(wanted[HELD_OUT].data)
    labels = {name: load_labelled(s, found).labels for name, s in wanted.items()}
    whole = labels[_percent(1.0)]
    for name, own in labels.items():
        if own != whole:
            s = wanted[name]
            raise UserError(
                f"the share {s.share:g} of the {s.half} half of the labels has the classes "
                f"{shown(own)}, the whole first half {shown(whole)}: raise 'shares', or give more "
                "rows"
            )
    if b.label is not None and position(b.label, whole) is None:
        path = wanted[HELD_OUT].data.path
        raise UserError(f"unknown label {b.label!r} in {path}; {hint(b.label, whole)}")


def report(b: Budget, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Rows of the table, written to budget.json and budget.csv in the study's folder."""
    accuracy = {name: _results(b.folder / MODELS / name) for name in models(b)}
    rows = []
    for method in dict.fromkeys(j.method for j in jobs):
        mine = [j for j in jobs if j.method == method]
        last = {j.seed: _last(j) for j in sorted(mine, key=lambda j: j.seed)}
        share = next((s for s in b.shares if method == f"reward {_percent(s)}"), 0.0)
        found = accuracy.get(_percent(share), {})
        points = {s: p for s, p in last.items() if p is not None}
        row: dict[str, Any] = {
            "arm": method,
            "share": share,
            "labels": found.get("train_rows", 0) if share else 0,
            "demonstrations": 0 if share else mine[0].settings.data.limit,
            "accuracy": _accuracy(found) if share else None,
            "failed": [s for s, p in last.items() if p is None],
            "seeds": list(points),
        }
        for judge in JUDGES:
            row[judge] = _summary([p.judges.get(judge) for p in points.values()])
        row["drift"] = _summary([p.drift.get(DRIFT) for p in points.values()])
        row["split"] = next((p.split for p in points.values()), None)
        rows.append(row)
    facts = {
        "name": b.name, "more": b.more, "shares": list(b.shares), "rows": rows,
        "held_out_judge_accuracy": _accuracy(accuracy[HELD_OUT]),
    }  # fmt: skip
    write_whole(b.folder / "budget.json", json.dumps(finite(facts), indent=1) + "\n")
    write_whole(b.folder / "budget.csv", csv_of(rows))
    return rows


def _last(job: Job) -> EvalPoint | None:
    """The final weights: on test prompts where the run has them, else on validation prompts. None
    for a run without an end."""
    if not complete(job.folder):
        return None
    points = [p for p in read_points(job.folder / "record.jsonl") if p.policy == "exported"]
    test = [p for p in points if p.split == "test" and p.weights == "final"]
    here = [p for p in points if p.split == "validation" and p.update == job.settings.updates]
    return (test or here or [None])[-1]  # type: ignore[list-item]


def _results(folder: Path) -> dict[str, Any]:
    file = folder / "results.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _accuracy(results: Mapping[str, Any]) -> float | None:
    held = results.get("test") or results.get("validation") or {}
    value: float | None = held.get("accuracy")
    return value


def _summary(values: Sequence[float | None]) -> dict[str, Any]:
    """Every seed's value, their mean and standard deviation (n - 1)."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    return {
        "values": list(values),
        "mean": statistics.fmean(known) if known else None,
        "sd": statistics.stdev(known) if len(known) > 1 else None,
    }
