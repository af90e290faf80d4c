"""`recipes eject`: the folder gives the library's run bit for bit, and its files are what runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from tests.forked import launch
from tests.runs_for_tests import REWARDS, make_world, numbers_of, quiet
from tether.cli.main import main
from tether.config.catalog import CATALOG
from tether.config.compose import compose, recipe
from tether.config.errors import UserError
from tether.studies.eject import HOUSE, LOOP, eject
from tether.train.run import train

ROOT = Path(__file__).parents[3]
RECIPE = '''
"""A recipe of somebody's own."""

def method():
    """PPO, KL to the average with a controller, Elastic Reset, a rule of one's own."""
    return {
        "updates": 3,
        "algorithm": {"kind": "ppo", "lr": 1e-3, "epochs": 2, "minibatches": 2},
        "batch": {"prompts": 4, "microbatch": 4},
        "tethers": {
            "kl": {"coef": 0.1, "reference": "ema", "controller": {"kind": "rl4lms"}},
            "elastic_reset": {"reset": {"kind": "every", "n": 2}, "decay": 0.8},
            "mine": {"kind": "half_way.py:HalfWay"},
        },
    }
'''
OWN = '''
from dataclasses import dataclass
from typing import ClassVar

from tether.tethers.base import Tether
from tether.types import Move


@dataclass
class HalfWay(Tether):
    """The average goes a bit of the way to the initial weights."""

    share: float = 0.1
    """How far."""

    acts_on: ClassVar = frozenset({"weights"})

    def keeps(self):
        return ("other",)

    def after(self, unit, clock, measured):
        return (Move("other", toward="policy", by=self.share),) if unit == "update" else ()
'''


def words(world: Path) -> list[str]:
    """Overrides of a small run in `world`."""
    chosen = {
        "threads": 1,
        "model": world / "model",
        "data": world / "prompts.jsonl",
        "data.reference": "reference",
        "data.validation_rows": 4,
        "reward": f"{REWARDS}:noisy",
        "model.device": "cpu",
        "model.dtype": "float32",
        "sampling.max_new_tokens": 5,
        "evaluation.every": 1,
        "evaluation.prompts": 4,
        "evaluation.human_rows": 2,
        "evaluation.human_tokens": 16,
        "evaluation.samples": 2,
        "checkpoint.every": 1,
        "root": world / "runs",
    }
    return [w for k, v in chosen.items() for w in (f"--{k}", str(v))]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def start(
    folder: Path, *given: str, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "run.py"), *given],
        cwd=cwd, env=ENVIRONMENT | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


def asked(folder: Path, *given: str, cwd: Path) -> tuple[int, str, str]:
    """Status, stdout and stderr of a start that trains nothing: a fork is enough for it."""
    out, errors = (Path(tempfile.mkstemp(dir=cwd)[1]) for _ in range(2))
    words = [str(folder / "run.py"), *given]
    status = launch(words, out, folder=cwd, env={}, errors=errors).wait()
    return status, out.read_text(), errors.read_text()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small world with a recipe of one's own, ejected to `ejected/`, and the library's run."""
    here = make_world(tmp_path_factory.mktemp("eject"), layers=1)
    (here / "recipe_of_mine.py").write_text(RECIPE)
    (here / "half_way.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as m:
        m.chdir(here)
        eject("recipe_of_mine.py:method", here / "ejected")
        chosen = compose("recipe_of_mine.py:method", overrides=[*words(here), "--name", "library"])
        train(chosen, say=quiet)
    return here


@pytest.fixture(scope="module")
def mine(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ejected files' run, from a folder that is neither the program's nor the library run's."""
    done = start(world / "ejected", *words(world), "--name", "mine", "--checkpoint.keep", "9",
                 cwd=tmp_path_factory.mktemp("elsewhere"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return world / "runs/mine"


def test_bitwise_the_library_run(world: Path, mine: Path) -> None:
    library, own = numbers_of(world / "runs/library"), numbers_of(mine)
    assert own["samples"] == library["samples"] and len(own["samples"]) > 500
    assert own["weights"] == library["weights"]
    for name in ("model.safetensors", "config.json"):
        a, b = (world / "runs" / n / "policy" / name for n in ("library", "mine"))
        assert a.read_bytes() == b.read_bytes()
    first, *rest = library["record"].splitlines()
    mine_first, *mine_rest = own["record"].splitlines()
    assert mine_rest == rest and any(b'"event"' in x for x in rest)
    a, b = json.loads(first), json.loads(mine_first)
    assert a.pop("config") != b.pop("config")
    assert a == b and a["method"] == "ppo + kl + elastic_reset + mine"


def test_a_run_goes_on_with_its_files_or_not_at_all(
    world: Path, mine: Path, tmp_path: Path
) -> None:
    """Cut back to its first checkpoint, resumed: the whole run, bit for bit. With another loop it
    is refused."""
    run = world / "runs/cut"
    shutil.copytree(mine, run)
    whole = numbers_of(run)
    for later in ("000002", "000003"):
        for path in (run / "checkpoints").glob(f"*{later}"):
            shutil.rmtree(path)
    shutil.rmtree(run / "policy")
    record = (run / "record.jsonl").read_text().splitlines(keepends=True)
    (run / "record.jsonl").write_text("".join(x for x in record if '"kind": "end"' not in x))
    copy = tmp_path / "edited"
    shutil.copytree(world / "ejected", copy, ignore=shutil.ignore_patterns("__pycache__"))
    loop = copy / "loop.py"
    loop.write_text(loop.read_text() + "\n# another loop\n")
    refused = start(copy, "--resume", str(run), cwd=tmp_path)
    assert refused.returncode == 2 and "written with another configuration" in refused.stderr
    assert refused.stderr.count("\n") == 1
    done = start(world / "ejected", "--resume", str(run), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resuming after update 1 of 3" in done.stdout
    assert numbers_of(run) == whole


def test_a_signal_tells_the_way_to_go_on(world: Path, tmp_path: Path) -> None:
    """Stopped in its second update: the last line is the command that resumes it, which does;
    `tether resume`, with another loop, is refused and names it too. So does a taken folder."""
    signals = {"TETHER_TEST_SIGNAL": "SIGTERM", "TETHER_TEST_UPDATE": "1"}
    reward = ["--reward", f"{REWARDS}:interrupting"]
    program, run = world / "ejected", world / "runs/stopped"
    done = start(program, *words(world), *reward, "--name", "stopped", cwd=tmp_path, **signals)
    assert done.returncode == 143
    said = done.stderr.strip().splitlines()[-1]
    command = f"python {program}/run.py --resume {run}"
    assert said == f"run.py: stopped and saved; `{command}` goes on"
    taken = start(program, *words(world), *reward, "--name", "stopped", cwd=tmp_path)
    assert taken.returncode == 2 and f"to go on: {command}, to repeat" in taken.stderr
    assert main(["resume", str(run)]) == 2
    done = subprocess.run(
        [sys.executable, *command.split()[1:]], cwd=tmp_path, capture_output=True, text=True,
        env=ENVIRONMENT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "resuming after update 2 of 3" in done.stdout


def test_the_library_names_the_program_of_a_run_of_ejected_files(
    world: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    done = start(world / "ejected", *words(world), "--name", "other", "--updates", "2",
                 cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = world / "runs/other"
    record = (run / "record.jsonl").read_text().splitlines(keepends=True)
    (run / "record.jsonl").write_text("".join(x for x in record if '"kind": "end"' not in x))
    assert main(["resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert f"go on with its program: python FOLDER/run.py --resume {run}" in said
    assert said.count("\n") == 1


REPORT = """    def report(self, e, t):
        return {"edited_own": 1.0}

"""
EDITS = {
    "loop.py": ('"update", agent=a.name,', '"update", edited_loop=1, agent=a.name,'),
    "loop_collect.py": ('put("rollout/sequences", (', 'put("rollout/edited_collect", ('),
    "loop_update.py": ("float] = {}", 'float] = {"edited_update": 1.0}'),
    "algorithm_ppo.py": ('"policy_loss": policy', '"edited_algorithm": policy'),
    "tether_penalty.py": ('{"coef": self.now}', '{"edited_penalty": self.now}'),
    "tether_elastic_reset.py": ('"averagings_since_reset"', '"edited_reset"'),
    "tether_half_way.py": ("    def keeps", f"{REPORT}    def keeps"),
}
"""File -> a text in it, and what stands there after the edit."""


def test_edited_files_are_what_runs(world: Path, tmp_path: Path) -> None:
    """Every copied file of the library (and one's own) has a mark put in; all are in the record,
    none in the library's."""
    copy = tmp_path / "mine"
    shutil.copytree(world / "ejected", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, (before, after) in EDITS.items():
        text = (copy / file).read_text()
        assert before in text, f"{file} has changed: this test edits '{before}'"
        (copy / file).write_text(text.replace(before, after, 1))
    done = start(copy, *words(world), "--name", "edited", "--updates", "2", "--checkpoint.export",
                 "false", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = (world / "runs/edited/record.jsonl").read_text()
    marks = set(re.findall(r"edited_[a-z]+", "".join(after for _, after in EDITS.values())))
    assert len(marks) == len(EDITS)
    assert {m for m in marks if m not in record} == set()
    assert "edited" not in (world / "runs/library/record.jsonl").read_text()


def test_a_new_field_is_a_setting(world: Path, tmp_path: Path) -> None:
    copy = tmp_path / "mine"
    shutil.copytree(world / "ejected", copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "algorithm_ppo.py"
    marker = "    needs_values: ClassVar"
    new = '    temper: float = 1.0\n    """Mine."""\n\n'
    file.write_text(file.read_text().replace(marker, new + marker, 1))
    new_setting = ["--algorithm.temper", "0.5", "--dry-run"]
    status, shown, said = asked(copy, *words(world), *new_setting, cwd=tmp_path)
    assert status == 0, said
    settings = yaml.safe_load(shown)
    assert settings["algorithm"]["temper"] == 0.5
    assert settings["algorithm"]["kind"] == "mine/algorithm_ppo.py:PPO"
    assert settings["name"] == "recipe_of_mine.py-method-seed0"
    status, _, said = asked(copy, "--algorithm.tempr", "1", cwd=tmp_path)
    assert status == 2 and said.startswith("run.py: unknown key 'tempr'")
    assert asked(copy, "--help", cwd=tmp_path)[1].startswith("Trains with the files")


@pytest.mark.parametrize("name", CATALOG["recipe"])
def test_every_recipe(name: str, tmp_path: Path) -> None:
    """Policy recipes give a folder that parses to the recipe's own settings; classifiers are
    refused."""
    folder = tmp_path / "out"
    mapping = recipe(name)
    if mapping.get("job") == "classifier":
        with pytest.raises(UserError, match="trains a classifier"):
            eject(name, folder)
        assert not folder.exists()
        return
    files = {p.name for p in eject(name, folder)}
    assert files == {p.name for p in folder.iterdir()}
    assert {"recipe.yaml", "run.py", "README.md", *LOOP} <= files
    shown = (folder / "README.md").read_text()
    for file in files - {"README.md"}:
        assert f"| `{file}` |" in shown
    for path in folder.iterdir():
        text = path.read_text()
        assert str(ROOT) not in text and str(tmp_path) not in text and "@" not in _marks(text)
        if path.suffix == ".py":
            compile(text, path.name, "exec")
            for package, module in re.findall(
                r"^from tether\.(algorithms|tethers)\.(\w+)", text, re.M
            ):
                assert module in HOUSE, f"{path.name} still reads the library's {package}.{module}"
    kept = yaml.safe_load((folder / "recipe.yaml").read_text())
    parts = [kept["algorithm"], *kept.get("tethers", {}).values()]
    for part in parts:
        file, _, cls = part["kind"].partition(":")
        assert f"class {cls}(" in (folder / file).read_text()
    assert kept.get("updates") == mapping.get("updates")


def _marks(text: str) -> str:
    return "".join(re.findall(r"@[A-Z]+@", text))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    assert main(["recipes", "eject", "ppo-kl", str(folder)]) == 0
    assert f"next: python {folder}/run.py --help" in capsys.readouterr().out
    assert main(["recipes", "eject", "ppo-kl", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said == f"tether: {folder} is not empty; choose a new folder, nothing is overwritten\n"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["recipes", "eject", "ppo", str(empty)]) == 0
    for given, message in {
        ("eject",): "recipes eject needs a name",
        ("eject", "ppo"): "recipes eject needs a folder: tether recipes eject ppo DIR",
        ("eject", "nope", str(tmp_path / "x")): "unknown recipe 'nope'",
        ("show", "ppo", "x"): "recipes show takes one name, not also 'x'",
        ("eject", "ppo", str(folder / "run.py")): f"{folder / 'run.py'} is a file",
    }.items():
        capsys.readouterr()
        assert main(["recipes", *given]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"tether: {message}") and said.count("\n") == 1
    assert not (tmp_path / "x").exists()
