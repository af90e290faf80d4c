"""`tether reward-model`: words, several seeds, and what is refused before torch."""

from __future__ import annotations

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
