"""`tether reward-model`: words, several seeds, and what is refused before torch."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs_for_tests import make_world
from tether.cli.main import main
from tether.config.text_values import parse_yaml


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_world(tmp_path)
    rows = [{"prompt": f"q{i} ", "chosen": f"zz {i}", "rejected": f"qq {i}"} for i in range(24)]
    text = "".join(json.dumps(r) + "\n" for r in rows)
    (tmp_path / "pairs.jsonl").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


WORDS = ["reward-model", "train", "--model", "model", "--data", "pairs.jsonl",
         "--data.validation_rows", "8", "--model.device", "cpu", "--threads", "1"]  # fmt: skip


def test_a_dry_run_is_a_configuration(world: Path, capsys: Any) -> None:
    assert (
        main([*WORDS, "--pairs.chosen", "best", "--seeds", "2", "--name", "rm", "--dry-run"]) == 0
    )
    found = [parse_yaml(t, "x") for t in capsys.readouterr().out.split("---\n")]
    assert [f["name"] for f in found] == ["rm-seed0", "rm-seed1"]
    assert [f["seed"] for f in found] == [0, 1]
    assert found[0]["kind"] == "pairs" and found[0]["pairs"]["chosen"] == "best"
    assert not (world / "runs").exists()


def test_several_seeds_and_again(world: Path, capsys: Any) -> None:
    words = [*WORDS, "--seeds", "2", "--start_seed", "0"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "validation, 8 rows: accuracy" in said and "winner is longer" in said
    files = sorted((world / "runs").glob("*/results.json"))
    assert [f.parent.name for f in files] == ["reward-model-seed0", "reward-model-seed1"]
    stamps = [f.stat().st_mtime_ns for f in files]
    assert main(words) == 0
    assert capsys.readouterr().out.count("complete already") == 2
    assert [f.stat().st_mtime_ns for f in files] == stamps
    assert main(["reward-model", "average", *(str(f.parent) for f in files), "--out", "w"]) == 0
    assert (world / "w" / "classifier").is_dir()
    assert main([*words, "--lr", "1e-3"]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert main([*WORDS, "--start_seed", "0"]) == 2  # one seed by name: never written again
    assert "already holds this run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "ppo"], "'ppo' is a policy run: tether train"),
        (["train", "--pairs.chosn", "x"], "did you mean 'chosen'"),
        (["average", "a"], "--out"),
        (["average", "a", "b", "--out", "c", "--weights", "x"], "is no list of numbers"),
        (["average", "a", "b", "--out", "c", "--weights", "1e308,1e308"], "weights add up to inf"),
        (["budget", "none.yaml"], "none.yaml"),
        (["read", "none.csv", "--out", "x.jsonl"], "has no key none.csv.key.json beside it"),
    ],
)
def test_mistakes_are_one_line(world: Path, words: list[str], message: str, capsys: Any) -> None:
    assert main(["reward-model", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["--help"], ["train", "--help"]])
def test_help(words: list[str], capsys: Any) -> None:
    assert main(["reward-model", *words]) == 0
    said = capsys.readouterr().out
    assert "pairs" in said and "--seeds N" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.compile", "true"], "model.compile cannot have an effect"),
        (["--model.capture", "true"], "model.capture cannot have an effect"),
        (["--model.copies", "cpu"], "model.copies cannot have an effect"),
        (["--model.gradient_checkpointing", "true"], "gradient_checkpointing cannot have an"),
        (["--data.too_long", "drop"], "data.too_long cannot have an effect"),
        (["--data.max_prompt_tokens", "3"], "data.max_prompt_tokens cannot have an effect"),
        (["--seeds", "1", "--seed", "7"], "--seed 7 cannot have an effect: --seeds 1 trains"),
        (["--kind", "model", "--pairs.margin", "m"], "pairs.margin cannot have an effect"),
        (["--evaluate_crops", "[0,-5]"], "must be lengths of at least 1 token"),
    ],
)
def test_what_has_no_effect_is_refused(
    world: Path, words: list[str], message: str, capsys: Any
) -> None:
    assert main([*WORDS, *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert not (world / "runs" / "reward-model" / "results.json").exists()


@pytest.mark.parametrize("least", ["nan", "inf"])
def test_a_bound_that_is_no_number_is_refused(world: Path, least: str, capsys: Any) -> None:
    words = ["pairs", "model", "model", "--data", "prompts.jsonl", "--form", "f.csv",
             "--filter", "length", "--least", least]  # fmt: skip
    assert main(["reward-model", *words]) == 2
    assert f"--least is {least}, must be a finite number" in capsys.readouterr().err


def form(folder: Path, *changed: str, choice: str = "left", rater: str = "") -> Path:
    """A form of two pairs, its key beside it; changed: what the left texts became."""
    key = {
        f"p0-{i}-0": {"left": 0, "prompt": "a\nq", "completions": [f"x  y{i}\x07", "z"],
                      "sources": ["a", "b"], "columns": {}}
        for i in (1, 2)
    }  # fmt: skip
    out = folder / "form.csv"
    out.with_name("form.csv.key.json").write_text(json.dumps(key))
    with open(out, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(["pair", "prompt", "left", "right", "choice", "rater"])
        for i, left in enumerate(changed, 1):
            writer.writerow([f"p0-{i}-0", "a\r\nq ", left, " z", choice, rater])
    return out


def test_answers_beside_the_key_of_another_form_are_refused(world: Path, capsys: Any) -> None:
    """Pairs have the same names in every round of one seed; spreadsheets change white space."""
    words = ["reward-model", "read", str(form(world, "x y1 ", "x\r\ny2")), "--out", "o.jsonl"]
    assert main(words) == 0
    assert [json.loads(x)["chosen"] for x in (world / "o.jsonl").read_text().splitlines()] == [
        "x  y1\x07", "x  y2\x07",
    ]  # fmt: skip
    (world / "o.jsonl").unlink()
    form(world, "x y1", "x y3")
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "the column left of pair 'p0-2-0' holds another text than form.csv.key.json" in said
    assert said.count("\n") == 1 and not (world / "o.jsonl").exists()


def test_raters_are_the_same_but_for_case(world: Path, capsys: Any) -> None:
    file = form(world, "x y1", "x y2", rater="Ann")
    again = f"p0-1-0,{'a q'},x y1,z,right, ann \r\n"
    file.write_bytes(file.read_bytes() + again.encode())
    assert main(["reward-model", "read", str(file), "--out", "o.jsonl"]) == 2
    assert "answers pair 'p0-1-0' a second time (by 'Ann'" in capsys.readouterr().err


def test_a_form_of_ties_says_so(world: Path, capsys: Any) -> None:
    file = form(world, "x y1", "x y2", choice="tie")
    assert main(["reward-model", "read", str(file), "--out", "o.jsonl"]) == 2
    assert "every answer is a tie (2)" in capsys.readouterr().err


@pytest.mark.parametrize("left", [7, -1, 0.5, "x", None])
def test_a_key_with_a_wrong_side_is_one_line(world: Path, left: Any, capsys: Any) -> None:
    file = form(world, "x y1", "x y2")
    place = file.with_name("form.csv.key.json")
    key = json.loads(place.read_text())
    key["p0-1-0"]["left"] = left
    place.write_text(json.dumps(key))
    assert main(["reward-model", "read", str(file), "--out", "o.jsonl"]) == 2
    said = capsys.readouterr().err
    assert "key.json is damaged" in said and said.count("\n") == 1
