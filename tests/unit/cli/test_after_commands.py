"""`tether baselines`, `interpolate` and `merge` through `main`: words, errors, what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs_for_tests import REWARDS, make_world, run, settings
from tether.cli.main import main
from tether.train.run import complete


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = make_world(tmp_path_factory.mktemp("cli"))
    low = {"reward": {"kind": "function", "function": f"{REWARDS}:low"}}
    ends = {"every": 1, "export": True}
    folder = run(settings(world, rewards=low, updates=1, checkpoint=ends, name="finished"))
    assert complete(folder)
    return folder


def go(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_interpolate_prints_and_writes(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = go(
        capsys, "interpolate", str(finished), "--shares", "0,1", "--how", "linear,slerp"
    )
    assert code == 0
    for text in ("linear 0", "linear 1", "slerp 0", "slerp 1", "4 validation prompts"):
        assert text in out
    code, out, _ = go(capsys, "interpolate", str(finished), "--shares", "0.5", "--json")
    [row] = [json.loads(x) for x in out.splitlines()]
    assert (code, row["baseline"], row["how"], row["at"]) == (0, "interpolation", "linear", 0.5)
    assert len((finished / "interpolation.jsonl").read_text().splitlines()) == 5


def test_baselines_print_the_bound_and_the_range(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = go(capsys, "baselines", str(finished), "--samples", "16", "--prompts", "2")
    assert code == 0
    assert "n = 16" in out and "<= 1.835" in out and "lambda = inf" in out
    assert "2 validation prompts" in out


def test_merge_writes_a_model(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out_folder = str(tmp_path / "merged")
    code, out, _ = go(capsys, "merge", str(finished), "--out", out_folder, "--share", "0.5")
    assert code == 0 and "merged finished (1) by slerp, share 0.5" in out
    assert (tmp_path / "merged" / "merge.json").is_file()
    code, out, _ = go(capsys, "generate", out_folder, "the film", "--max-new-tokens", "3")
    assert code == 0 and out.startswith("the film")
    code, _, err = go(capsys, "merge", str(finished), "--out", out_folder)
    assert code == 2 and "exists and is not empty" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("interpolate nowhere", "tether: nowhere is not the folder of a run"),
        ("interpolate . --shares a", "argument --shares: 'a' is no list of numbers: 0,0.5,1"),
        ("interpolate . --how cubic", "'cubic' is none of linear, product, slerp, slerp_global"),
        ("interpolate . --share 1", "unknown option '--share' in tether interpolate; did you mean"),
        ("baselines nowhere", "tether: nowhere is not the folder of a run"),
        ("baselines . --samples 0", "'0' is not a whole number"),
        ("merge nowhere --out x", "tether: nowhere is not the folder of a run"),
        ("merge .", "the following arguments are required: --out"),
        ("merge --out x", "the following arguments are required: runs"),
    ],
)
def test_errors_are_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = go(capsys, *words.split())
    assert code == 2 and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("baselines RUN --samples 4", "--samples is 4: the oracle frontier needs at least 16"),
        ("baselines RUN --split test", "--split is test, and evaluation.test_prompts is 0"),
        ("interpolate RUN --split test", "--split is test, and evaluation.test_prompts is 0"),
        ("interpolate RUN --shares 0,2", "--shares is [0.0, 2.0], must be numbers from 0 to 1"),
        ("interpolate RUN --how product", "--how: product is for adapters"),
    ],
)
def test_errors_name_the_option(
    finished: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = go(capsys, *words.replace("RUN", str(finished)).split())
    assert code == 2 and err.startswith(f"tether: {message}") and err.count("\n") == 1
    assert "after." not in err


def test_a_setting_of_the_run_comes_with_the_option_that_overrides_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    low = {"reward": {"kind": "function", "function": f"{REWARDS}:low"}}
    few = {"best_of_n": True, "samples": 4}
    ends = {"every": 1, "export": False}
    folder = run(settings(make_world(tmp_path), rewards=low, updates=1, after=few, checkpoint=ends))
    code, _, err = go(capsys, "baselines", str(folder))
    assert code == 2
    assert err.startswith("tether: after.samples (option --samples) is 4: the oracle frontier")
    assert go(capsys, "baselines", str(folder), "--samples", "16")[0] == 0
