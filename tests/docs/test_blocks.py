"""Every python block of README and docs runs; every `tether ...` line is a command that works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import tether
from tests.docs.blocks import PAGES, Block, blocks, commands, smaller, world, write_files
from tests.forked import launch
from tether.cli import studies
from tether.cli.main import main
from tether.studies.compare import from_recipes, plan
from tether.studies.grue.cells import jobs
from tether.studies.grue.planning import Asked, plan_of

SPECIAL = ("compare", "quickstart")
LINES = [(page, line, words) for page in PAGES for line, words in commands(page)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small world and one finished run in it, `runs/done`."""
    folder = tmp_path_factory.mktemp("world")
    world(folder)
    tether.train(
        "ppo-kl",
        model=str(folder / "tiny"),
        data=str(folder / "prompts.jsonl"),
        reward="length",
        root=str(folder / "runs"),
        name="done",
        updates=1,
        threads=1,
        **{"data.validation_rows": 8, "sampling.max_new_tokens": 4, "batch.prompts": 8},
    )
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(finished / "tiny", tmp_path / "tiny")
    for name in ("prompts", "labelled"):
        shutil.copy(finished / f"{name}.jsonl", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runs_of(finished: Path, here: Path, text: str) -> None:
    """Copies the finished run to every `runs/NAME` that the text mentions."""
    for word in re.split(r"""[\s"'=)]+|@\d+""", text):
        if word.startswith("runs/"):
            name = word.split("/")[1]
            target = here / "runs" / name
            if not target.exists():
                shutil.copytree(finished / "runs" / "done", target)


def programs(page: Path) -> list[Block]:
    return [b for b in blocks(page) if b.language == "python" and not b.file]


@pytest.mark.parametrize("page", [p for p in PAGES if programs(p)], ids=lambda p: p.name)
def test_python_blocks_run(page: Path, here: Path, finished: Path) -> None:
    found = programs(page)
    write_files(here, page)
    program = "\n\n".join(smaller(b.text) for b in found)
    if "tether.train(" not in program:
        runs_of(finished, here, program)
    (here / "page.py").write_text(program, encoding="utf-8")
    said = here / "page.log"
    process = launch(["page.py"], said, folder=here, env={"HF_HUB_OFFLINE": "1"})
    assert process.wait() == 0, f"{page.name}:\n{said.read_text()[-4000:]}"


@pytest.mark.parametrize(
    ("page", "line", "words"), LINES, ids=[f"{p.name}:{n}:{w[0]}" for p, n, w in LINES]
)
def test_commands_work(
    page: Path,
    line: int,
    words: list[str],
    here: Path,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    write_files(here, page)
    runs_of(finished, here, " ".join(words))
    if words[0] == "train" and "--help" not in words:
        words = [*words, "--dry-run"]
    if words[0] in SPECIAL:
        monkeypatch.setattr(f"tether.studies.{words[0]}.main", planned)
    if words[:2] == ["grue", "run"]:
        monkeypatch.setattr("tether.studies.grue.run.main", benchmarked)
        monkeypatch.setattr("tether.cli.grue._show", print)
    if words[0] == "reward-model":
        words = rewarded(words, monkeypatch)
    if words[:2] == ["doctor", "ppo-kl"]:
        words = [*words, "--model", "tiny", "--data", "prompts.jsonl"]
    assert main(words) == 0, f"{page.name}:{line}: {capsys.readouterr().err}"
    said = capsys.readouterr()
    assert said.out or words[0] in SPECIAL


def rewarded(words: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trains is planned; what samples, averages or reads a form gets its words and no more."""
    if words[1] in ("train", "budget"):
        return [*words, "--dry-run"]

    def told(*given: Any, **named: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
        print(given, named)
        return [{}], {"ties": 0, "unanswered": 0}

    monkeypatch.setattr("tether.studies.pairs.collect", told)
    monkeypatch.setattr("tether.train.reward_average.average", told)
    monkeypatch.setattr("tether.studies.raters.read_form", told)
    return words


def benchmarked(asked: Asked, **given: Any) -> tuple[Path, bool]:
    """Stands in for a benchmark: every cell's settings are resolved and checked, nothing runs."""
    return Path(jobs(plan_of(asked))[0][1].folder), True


def planned(recipes: list[str] | None = None, **given: Any) -> int:
    """Stands in for a study: everything is read and checked, nothing runs."""
    if recipes is not None:
        study = from_recipes(
            recipes,
            seeds=given["seeds"],
            folder=given["folder"],
            overrides=given["overrides"],
        )
        assert len(plan(study)) >= 3
    return 0


def test_there_are_blocks_of_each_kind() -> None:
    assert sum(b.language == "python" for p in PAGES for b in blocks(p)) >= 12
    assert {w[0] for _, _, w in LINES} >= {"train", "resume", "compare", "frontier", "generate"}
    assert callable(studies.compare)


def test_blocks_have_a_language() -> None:
    known = {"python", "bash", "yaml", "text"}
    odd = [(b.page, b.line) for p in PAGES for b in blocks(p) if b.language not in known]
    assert not odd
