"""The budget study: what it trains, what it runs, what it reports, and that it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tether.cli.main import main as command
from tether.config.errors import UserError
from tether.config.text_values import to_yaml
from tether.studies.budget import COLUMNS, main, models, read_budget, report, study
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
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as e:
        main(read_budget(written(tmp_path, **changes)), dry=True, console=Console(quiet=True))
    assert "\n" not in str(e.value)
    assert not (tmp_path / "study").exists()


def test_an_override_of_no_part_is_refused(tmp_path: Path) -> None:
    for word in ("--updates", "--rll.updates"):
        with pytest.raises(UserError, match=rf"{word} is no setting of a budget study: say of whi"):
            read_budget(written(tmp_path), [word, "3"])


def test_the_label_that_is_rewarded(tmp_path: Path, capsys: Any) -> None:
    """It goes into every reward and judge; one that the reward models do not have stops the study
    before its first run."""
    b = read_budget(written(tmp_path, label="positive"))
    for job in plan(study(b)):
        parts = [*job.settings.rewards.values(), *job.settings.judges.values()]
        assert {p["label"] for p in parts} == {"positive"}
    wrong = written(tmp_path, label="happy", shares=[1.0])
    assert command(["reward-model", "budget", str(wrong)]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "has no label 'happy'; there are [" in said
    assert not list((tmp_path / "study").glob("*/record.jsonl"))
