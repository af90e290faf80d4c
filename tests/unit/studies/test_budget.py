"""The budget study: what it trains, what it runs, what it reports, and that it goes on."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.reports.folders import point, write_run
from tether.cli.main import main as command
from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.config.settings import parse
from tether.config.text_values import read_yaml, to_yaml
from tether.records import EvalPoint
from tether.studies.budget import (
    Budget,
    main,
    models,
    read_budget,
    report,
    study,
)
from tether.studies.budget_table import COLUMNS, show
from tether.studies.compare import plan

ASSETS = Path(__file__).parents[3] / "src" / "tether" / "studies" / "quickstart_assets"
PROMPTS = ASSETS / "prompts"


def written(folder: Path, **changes: Any) -> Path:
    model = {"path": str(ASSETS / "model"), "dtype": "float32", "device": "cpu"}
    small: dict[str, Any] = {
        "updates": 1,
        "batch": {"prompts": 8},
        "evaluation": {"every": 1, "prompts": 8, "test_prompts": 8, "human_rows": 2,
                       "human_tokens": 16, "samples": 1},
        "sampling": {"max_new_tokens": 6},
    }  # fmt: skip
    mapping: dict[str, Any] = {
        "name": "tiny",
        "folder": str(folder / "study"),
        "seeds": 1,
        "shares": [0.5, 1.0],
        "more": 2,
        "demonstrations": 16,
        "reward_model": {
            "kind": "model",
            "model": model,
            "threads": 1,
            "data": {"path": str(PROMPTS / "train.jsonl"), "text": "reference", "label": "mood",
                     "validation_rows": 64, "limit": 128},
            "crop_tokens": [8, 24], "max_tokens": 32, "evaluate_crops": [], "lr": 1e-3,
        },
        "rl": {"recipe": "toy", **small},
        "supervised": {
            "recipe": "toy", **small, "rewards": {"praise": None},
            "algorithm": {"kind": "supervised", "lr": 1e-4, "minibatches": 2},
        },
    }  # fmt: skip
    file = folder / "study.yaml"
    file.write_text(to_yaml({**mapping, **changes}))
    return file


def pairs(**changes: Any) -> dict[str, Any]:
    data = {"path": "pairs.jsonl", "validation_rows": 64, **changes}
    return {"kind": "pairs", "model": {"path": str(ASSETS / "model")}, "data": data}


def test_what_it_trains_and_runs(tmp_path: Path) -> None:
    b = read_budget(written(tmp_path))
    found = models(b)
    assert {k: (s.half, s.share) for k, s in found.items()} == {
        "50-percent": ("first", 0.5),
        "100-percent": ("first", 1.0),
        "held-out": ("second", 1.0),
    }
    jobs = {j.method: j.settings for j in plan(study(b))}
    assert list(jobs) == ["reward 50-percent", "reward 100-percent", "supervised", "supervised x2"]
    assert [s.updates for s in jobs.values()] == [1, 1, 1, 2]
    assert jobs["supervised"].data.limit == 16 and jobs["supervised x2"].data.limit == 32
    half = jobs["reward 50-percent"]
    assert list(half.rewards) == ["learned"]  # the recipe's own reward is not added to it
    assert half.rewards["learned"]["path"].endswith("reward-models/50-percent")
    for s in jobs.values():
        assert s.judges["full"]["path"].endswith("reward-models/100-percent")
        assert s.judges["held_out"]["path"].endswith("reward-models/held-out")


def test_the_whole_study_and_again(tmp_path: Path, capsys: Any) -> None:
    b = read_budget(written(tmp_path))
    console = Console(quiet=True)
    assert main(b, workers=2, console=console) == 0
    rows = {r["arm"]: r for r in json.loads((b.folder / "budget.json").read_text())["rows"]}
    assert list(rows) == ["reward 50-percent", "reward 100-percent", "supervised", "supervised x2"]
    assert rows["reward 50-percent"]["labels"] == 32  # half of the first half of 128
    assert rows["reward 100-percent"]["labels"] == 64
    assert rows["supervised"]["labels"] == 0 and rows["supervised"]["accuracy"] is None
    assert rows["supervised x2"]["demonstrations"] == 32
    for r in rows.values():
        assert r["split"] == "test" and r["seeds"] == [0] and not r["failed"]
        assert 0 <= r["full"]["mean"] <= 1 and 0 <= r["held_out"]["mean"] <= 1
        assert r["drift"]["mean"] >= 0 and r["drift"]["sd"] is None  # one seed
    last = json.loads((b.folder / "budget.json").read_text())
    records = {p: p.read_bytes() for p in b.folder.glob("*/record.jsonl")}
    assert len(records) == 4
    stamps = {p: p.stat().st_mtime_ns for p in b.folder.glob("reward-models/*/results.json")}
    assert command(["reward-model", "budget", str(tmp_path / "study.yaml")]) == 0
    said = capsys.readouterr().out
    assert "complete" in said and "drift" in said and "(nats)" in said  # a narrow head wraps
    assert {p: p.read_bytes() for p in records} == records
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    assert json.loads((b.folder / "budget.json").read_text()) == last
    head = (b.folder / "budget.csv").read_text().splitlines()[0].split(",")
    assert head[:5] == list(COLUMNS) and "drift_mean" in head
    (b.folder / "supervised-seed0" / "record.jsonl").unlink()
    failed = {r["arm"]: r["failed"] for r in report(b, plan(study(b)))}
    assert failed["supervised"] == [0]
    other = read_budget(written(tmp_path), ["--reward_model.lr", "1e-2"])
    with pytest.raises(UserError, match="holds a reward model with other settings"):
        main(other, console=console)


def test_overrides_reach_their_part(tmp_path: Path) -> None:
    b = read_budget(written(tmp_path), ["--rl.updates", "3", "--supervised.updates", "4"])
    assert [j.settings.updates for j in plan(study(b))] == [3, 3, 4, 8]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": [0.0, 1.0]}, "different numbers above 0"),
        ({"more": 1}, "'more' in .* is 1, must be a whole number of at least 2"),
        ({"more": 1.5}, "'more' in .* is 1.5, must be a whole number"),
        ({"demonstrations": 0}, "must be a whole number of at least 1"),
        ({"demonstrations": None}, "'demonstrations' in .* is None, must be a whole number"),
        ({"demonstrations": "lots"}, "'demonstrations' in .* is 'lots', must be a whole"),
        ({"shares": 0.5}, "'shares' in .* is 0.5, must be a list of numbers"),
        ({"shares": ["a"]}, "'shares' in .* is 'a', must be a number"),
        ({"shares": [float("nan")]}, "'shares' in .* is nan, must be a number"),
        ({"seeds": "many"}, "'seeds' in .* is 'many', must be a whole number"),
        ({"seeds": True}, "'seeds' in .* is True, must be a whole number"),
        ({"seeds": []}, "'seeds' in .* names none"),
        ({"seeds": [0, 0]}, "must differ"),
        ({"seeds": 10**9}, r"a study of 4,000,000,000 runs; at most 10,000"),
        ({"name": [1]}, r"'name' in .* is \[1\], must be text"),
        ({"rl": {"job": "classifier"}}, "'rl' in .* is a reward model, must be a policy run"),
        ({"supervised": {"recipe": "toy", "updates": "x"}}, "updates .*'supervised' in"),
        ({"supervised": {"recipe": "toy", "data": "x"}}, "data .*'supervised' in"),
        ({"demonstrations": 9999}, "2 x 9999 demonstrations are asked for"),
        ({"sharess": 1}, "unknown key 'sharess'"),
        ({"rl": "toy"}, "'rl' in .* must be a mapping"),
        ({"reward_model": {"share": 0.5}}, "reward_model.share in .* is set by the study"),
        ({"reward_model": {"kind": "tfidf"}}, "is of kind model or pairs"),
        ({"shares": [0.5, 0.5000000001]}, "different numbers above 0"),
        ({"reward_model": pairs(validation_rows=0)}, "normalised on validation pairs: set reward_"),
        ({"reward_model": pairs(), "label": "good"}, "'label' is for kind model"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as e:
        main(read_budget(written(tmp_path, **changes)), dry=True, console=Console(quiet=True))
    assert "\n" not in str(e.value)
    assert not (tmp_path / "study").exists()


def test_all_arms_are_judged_on_the_same_prompts_with_the_same_decoding(tmp_path: Path) -> None:
    """What `rl` leaves open or states holds for the supervised arms, whose recipe says otherwise
    (128 validation prompts)."""
    data = {"path": str(PROMPTS / "train.jsonl")}
    rl = {
        "recipe": "ppo-kl", "data": {**data, "validation_rows": 96},
        "sampling": {"max_new_tokens": 7, "top_k": 5},
    }  # fmt: skip
    supervised = {"recipe": "supervised", "data": {**data, "reference": "reference"}}
    b = read_budget(written(tmp_path, rl=rl, supervised=supervised))
    for job in plan(study(b)):
        s = job.settings
        assert s.data.validation_rows == 96 and s.evaluation.prompts == 512, job.method
        assert (s.sampling.max_new_tokens, s.sampling.top_k) == (7, 5), job.method
    quiet = Console(quiet=True)
    assert main(b, dry=True, console=quiet) == 0
    other = tmp_path / "other.jsonl"
    other.write_text((PROMPTS / "train.jsonl").read_text().replace("the", "a"))
    for key, value, message in (
        ("data", {**supervised["data"], "validation_rows": 64}, r"validation_rows \(96 and 64\)"),
        ("evaluation", {"prompts": 128}, r"evaluation.prompts \(512 and 128\)"),
        ("sampling", {"top_k": 6}, r"sampling.top_k \(5 and 6\); give both the same"),
        ("data", {"path": str(other), "reference": "reference"}, r"other validation prompts \(.*, "
         r"data.validation$"),
    ):  # fmt: skip
        changed = read_budget(written(tmp_path, rl=rl, supervised={**supervised, key: value}))
        with pytest.raises(UserError, match=message):
            main(changed, dry=True, console=quiet)


def test_an_override_of_no_part_is_refused(tmp_path: Path) -> None:
    for word in ("--updates", "--rll.updates"):
        with pytest.raises(UserError, match=rf"{word} is no setting of a budget study: say of whi"):
            read_budget(written(tmp_path), [word, "3"])


def test_the_label_that_is_rewarded(tmp_path: Path, capsys: Any) -> None:
    """It goes into every reward and judge; one that the data do not have stops the study before
    its first training, a dry one too."""
    b = read_budget(written(tmp_path, label="positive"))
    for job in plan(study(b)):
        parts = [*job.settings.rewards.values(), *job.settings.judges.values()]
        assert {p["label"] for p in parts} == {"positive"}
    wrong = written(tmp_path, label="happy", shares=[1.0])
    assert command(["reward-model", "budget", str(wrong)]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "unknown label 'happy' in " in said and "there are: mixed, negative, positive" in said
    assert not (tmp_path / "study").exists()
    main(read_budget(written(tmp_path, label="2")), dry=True, console=Console(quiet=True))


def test_a_share_without_all_classes_is_refused_before_a_training(tmp_path: Path) -> None:
    """Its last class would be another one than that of the other arms."""
    quiet = Console(quiet=True)
    for share, message in (
        (0.001, r"only the class 'negative' in the share 0.001 of the first half .*\(1 row\)"),
        (0.08, r"'positive' is held out but is no class in the share 0.08"),
    ):
        with pytest.raises(UserError, match=message):
            main(read_budget(written(tmp_path, shares=[share, 1.0])), dry=True, console=quiet)
    # without held-out rows nothing else would notice
    unheld = read_budget(
        written(tmp_path, shares=[0.04, 1.0]), ["--reward_model.data.validation_rows", "0"]
    )
    with pytest.raises(UserError, match=r"the share 0.04 of the first half of the labels has the "
                                        "classes .*raise 'shares'"):  # fmt: skip
        main(unheld, dry=True, console=quiet)
    assert not (tmp_path / "study").exists()


def test_scores_of_pairs_are_on_one_scale(tmp_path: Path) -> None:
    """Every learned reward and judge is normalised; probabilities of classes are not."""
    b = read_budget(written(tmp_path, reward_model=pairs()))
    for job in plan(study(b)):
        learned = [p for k, p in job.settings.rewards.items() if k == "learned"]
        assert len(learned) == job.method.startswith("reward ")
        parts = [*learned, *job.settings.judges.values()]
        assert {p["normalise"] for p in parts} == {"validation"}
    for job in plan(study(read_budget(written(tmp_path)))):
        assert {p["normalise"] for p in job.settings.judges.values()} == {None}


def test_what_is_not_said_is_as_in_a_run(tmp_path: Path) -> None:
    """Updates and evaluation times that the file leaves out, times `more`; seeds and shares."""
    supervised = {"recipe": "supervised", "data": {"path": str(PROMPTS), "reference": "reference"}}
    file = written(tmp_path, supervised=supervised)
    mapping = {k: v for k, v in read_yaml(file).items() if k not in ("more", "seeds", "shares")}
    file.write_text(to_yaml(mapping))
    b = read_budget(file)
    one = parse(b.supervised)
    assert isinstance(one, RunSettings)
    assert (list(b.seeds), list(b.shares), b.more) == ([0, 1, 2], [0.1, 0.5, 1.0], 5)
    arms = {name: parse(setting[0][1]) for name, setting in study(b).arms.items()}
    for name, times in (("supervised", 1), ("supervised x5", 5)):
        arm = arms[name]
        assert isinstance(arm, RunSettings)
        assert arm.updates == times * one.updates
        assert arm.evaluation.every == times * one.evaluation.every


def final(full: float, held_out: float, drift: float, **other: Any) -> EvalPoint:
    """Of the only update of a run, after an initial point."""
    return point(1, drift, 0.9, judges={"full": full, "held_out": held_out}, **other)


def hand_made(b: Budget) -> None:
    """Records of small numbers, with what must not be counted beside them."""
    start = point(0, 0.0, 0.5, judges={"full": 9.0, "held_out": 9.0})
    on_test = {"split": "test", "weights": "final"}
    beside = [
        final(8.0, 8.0, 8.0),  # validation, where there is a test
        final(7.0, 7.0, 7.0, split="test", weights="budget:4"),
        final(6.0, 6.0, 6.0, **{**on_test, "policy": "constrained"}),
    ]
    records = {
        ("reward 50-percent", 0): [*beside, final(0.5, 0.4, 2.0, **on_test)],
        ("reward 50-percent", 1): [final(0.7, 0.5, 4.0, **on_test), *beside],
        ("reward 100-percent", 0): [final(0.8, 0.6, 6.0, **on_test)],
        ("reward 100-percent", 1): [final(5.0, 5.0, 5.0)],  # stopped before its test
        ("supervised", 0): [final(0.3, 0.2, 0.1)],
        ("supervised", 1): [
            final(4.0, 4.0, 4.0, side="before", common=False),
            final(float("nan"), 0.4, 0.3, side="after"),
        ],
    }
    for job in plan(study(b)):
        if (job.method, job.seed) in records:
            points = [start, *records[job.method, job.seed]]
            ended = (job.method, job.seed) != ("reward 100-percent", 1)
            write_run(job.folder, job.method, job.seed, points, finished=ended)
    results = {
        "50-percent": {"train_rows": 32, "validation": {"accuracy": 0.9},
                       "test": {"accuracy": 0.75}},
        "100-percent": {"train_rows": 64, "validation": {"accuracy": 0.8}},
        "held-out": {"train_rows": 64, "validation": {"accuracy": 0.7}},
    }  # fmt: skip
    for name, values in results.items():
        file = b.folder / "reward-models" / name / "results.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values))


def test_the_values_of_a_report(tmp_path: Path) -> None:
    """Means and deviations (n - 1) worked out by hand: of .5 and .7, .6 and .1 sqrt 2. The seeds of
    the file are in another order than those of the report."""
    b = read_budget(written(tmp_path, seeds=[1, 0]))
    jobs = plan(study(b))
    hand_made(b)
    rows = report(b, jobs)
    facts = json.loads((b.folder / "budget.json").read_text())
    assert facts["rows"] == rows
    assert {k: v for k, v in facts.items() if k != "rows"} == {
        "name": "tiny", "more": 2, "shares": [0.5, 1.0], "held_out_judge_accuracy": 0.7,
    }  # fmt: skip
    about = ("arm", "share", "labels", "demonstrations", "accuracy", "failed", "seeds", "split")
    assert [tuple(r[k] for k in about) for r in rows] == [
        ("reward 50-percent", 0.5, 32, 0, 0.75, [], [0, 1], "test"),
        ("reward 100-percent", 1.0, 64, 0, 0.8, [1], [0], "test"),
        ("supervised", 0.0, 0, 16, None, [], [0, 1], "validation"),
        ("supervised x2", 0.0, 0, 32, None, [0, 1], [], None),
    ]
    one = math.sqrt(2) / 10  # the deviation of two numbers that are .2 apart
    expected = {
        "full": [([0.5, 0.7], 0.6, one), ([0.8], 0.8, None), ([0.3, None], 0.3, None),
                 ([], None, None)],
        "held_out": [([0.4, 0.5], 0.45, one / 2), ([0.6], 0.6, None), ([0.2, 0.4], 0.3, one),
                     ([], None, None)],
        "drift": [([2.0, 4.0], 3.0, 10 * one), ([6.0], 6.0, None), ([0.1, 0.3], 0.2, one),
                  ([], None, None)],
    }  # fmt: skip
    head, *lines = csv.reader((b.folder / "budget.csv").read_text().splitlines())
    assert head == [*COLUMNS, *(f"{m}_{k}" for m in expected for k in ("mean", "sd"))]
    for i, (row, cells) in enumerate(zip(rows, lines, strict=True)):
        wanted = ["" if row[k] is None else str(row[k]) for k in COLUMNS]
        assert cells[: len(COLUMNS)] == wanted
        written_here = [float(c) if c else None for c in cells[len(COLUMNS) :]]
        by_hand = [value for m in expected for value in expected[m][i][1:]]
        assert written_here == [v if v is None else pytest.approx(v) for v in by_hand]
        for m in expected:
            assert row[m]["values"] == expected[m][i][0]
    out = io.StringIO()
    show(b.folder, len(b.seeds), rows, Console(file=out, width=200))
    said = " ".join(out.getvalue().split())
    assert "0.600 ± 0.141 0.450 ± 0.071 3.000 ± 1.414" in said
    assert "reward 100-percent (1 failed) 64 0 0.800 0.800 0.600 6.000" in said
    assert "supervised x2 (2 failed) 0 32 absent absent absent" in said
    assert "Final weights, test or validation (reward 50-percent: test, reward" in said
