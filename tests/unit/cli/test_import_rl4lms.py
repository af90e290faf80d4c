"""`tether import-rl4lms`: what it writes, prints and refuses; that its result trains."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT, blocks
from tests.runs_for_tests import lines, make_world
from tests.unit.integrations.rl4lms_shapes import shapes
from tether.cli.main import main
from tether.config.settings import parse
from tether.config.text_values import parse_yaml, read_yaml
from tether.integrations.rl4lms_yaml import convert

SHAPES = shapes()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def old(name: str, config: dict[str, Any]) -> str:
    Path(name).write_text(yaml.safe_dump(config, sort_keys=False))
    return name


def test_writes_and_reports(here: Path, capsys: Any) -> None:
    old("gpt2_ppo.yml", SHAPES["imdb_ppo"])
    assert main(["import-rl4lms", "gpt2_ppo.yml"]) == 0
    said = capsys.readouterr().out
    heads = (
        "carried (",
        "carried with a changed meaning (",
        "no counterpart (",
        "ignored, because",
    )
    places = [said.index(h) for h in heads]
    assert places == sorted(places)
    assert "written: gpt2_ppo.tether.yaml\nnext: tether train --config gpt2_ppo.tether.yaml" in said
    assert main(["train", "--config", "gpt2_ppo.tether.yaml", "--dry-run"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["batch"]["prompts"] == 27 and shown["name"] == "gpt2_ppo.tether-seed0"
    assert main(["import-rl4lms", "gpt2_ppo.yml"]) == 2
    assert capsys.readouterr().err == (
        "tether: gpt2_ppo.tether.yaml exists; choose another --out, or --force to overwrite it\n"
    )
    assert main(["import-rl4lms", "gpt2_ppo.yml", "--force"]) == 0


def test_options(here: Path, capsys: Any) -> None:
    old("nlpo.yml", SHAPES["imdb_nlpo"])
    old("sup.yml", SHAPES["commongen_supervised"])
    assert main(["import-rl4lms", "nlpo.yml", "--as", "published", "--out", "deep/x.yaml"]) == 0
    assert read_yaml("deep/x.yaml")["tethers"]["nlpo_mask"]["mask"] == "copy"
    assert main(["import-rl4lms", "sup.yml", "--rows", "1000"]) == 0
    assert read_yaml("sup.tether.yaml")["updates"] == 125
    for words, message in {
        ("nlpo.yml", "--as", "publishd"): "tether import-rl4lms: argument --as: invalid choice",
        ("nlpo.yml", "--row", "3"): "unknown option '--row' in tether import-rl4lms; did you mean",
        ("nlpo.yml", "--rows", "0"): "tether import-rl4lms: argument --rows: '0' is not a whole",
        ("none.yml",): "there is no configuration file 'none.yml'",
        (): "tether import-rl4lms: the following arguments are required: config",
    }.items():
        capsys.readouterr()
        assert main(["import-rl4lms", *words]) == 2
        said = capsys.readouterr()
        assert said.err.startswith(f"tether: {message}") and said.err.count("\n") == 1
        assert said.out == ""


def test_a_mistake_writes_nothing(here: Path, capsys: Any) -> None:
    config = copy.deepcopy(SHAPES["imdb_ppo"])
    config["alg"]["args"]["n_epoch"] = 3
    old("x.yml", config)
    assert main(["import-rl4lms", "x.yml"]) == 2
    said = capsys.readouterr().err
    assert said == "tether: x.yml: unknown key 'alg.args.n_epoch'; did you mean 'n_epochs'?\n"
    assert {p.name for p in here.iterdir()} == {"x.yml"}


def test_the_page_shows_what_comes_out() -> None:
    page = [b for b in blocks(ROOT / "docs" / "from_rl4lms.md") if b.language == "yaml"]
    given, shown = page
    found = convert(parse_yaml(given.text, "the page"), given.file or "", Path("run.yaml"))
    assert shown.text == found.yaml


def test_needs_no_torch(here: Path) -> None:
    old("x.yml", SHAPES["imdb_ppo"])
    program = (
        "import sys; from tether.cli.main import main; "
        "code = main(['import-rl4lms', 'x.yml']); "
        "sys.exit(code or int('torch' in sys.modules))"
    )
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["numbers_gpt2_nlpo", "numbers_gpt2_trpo"])
def test_an_import_trains(name: str, here: Path, capsys: Any) -> None:
    """The toys on a tiny model: the file that was written runs as it is, but for the model, a
    reward (there is no counterpart) and the number of updates."""
    make_world(here)
    config = copy.deepcopy(SHAPES[name])
    config["tokenizer"]["model_name"] = "model"
    config["alg"]["policy"]["args"]["model_name"] = "model"
    config["datapool"]["args"] = {"n_samples": 6, "prompt": "One two"}
    config["env"]["args"] |= {"max_prompt_length": 8, "max_episode_length": 6}
    config["alg"]["policy"]["args"]["generation_kwargs"]["max_new_tokens"] = 6
    config["alg"]["args"]["n_steps"] = 12
    config["train_evaluation"] |= {"n_iters": 2, "eval_every": 2}
    old("toy.yml", config)
    assert main(["import-rl4lms", "toy.yml", "--out", "toy.yaml"]) == 0
    said = capsys.readouterr().out
    assert "written: toy.yaml, toy.prompts.jsonl" in said
    rows = [json.loads(x) for x in Path("toy.prompts.jsonl").read_text().splitlines()]
    assert rows == [{"prompt": "One two"}] * 6
    assert parse(read_yaml("toy.yaml")).data.path == "toy.prompts.jsonl"
    assert main(["train", "--config", "toy.yaml"]) == 2  # no reward: it says so
    assert "no reward: give --reward" in capsys.readouterr().err
    words = "--reward length --threads 1 --model.device cpu --evaluation.human_rows 0 --name toy"
    code = main(["train", "--config", "toy.yaml", *words.split(), "--evaluation.prompts", "4"])
    assert code == 0, capsys.readouterr().err
    record = lines(here / "runs/toy")
    updates = [r["metrics"] for r in record if r["kind"] == "update"]
    assert len(updates) == 2 and record[-1]["kind"] == "end"
    if name.endswith("nlpo"):
        assert record[0]["method"] == "ppo + kl + nlpo_mask"
        # floor 100, and the 50 likeliest of what is allowed (EOS may come on top)
        assert 1 <= updates[0]["tether/nlpo_mask/allowed_tokens"] <= 51


def test_an_import_of_a_task_trains_on_its_reward(here: Path, capsys: Any) -> None:
    """Translation with 1 - TER on the small bundled set: as it is written, but for the model, the
    lengths and the path."""
    make_world(here, kind="t5")
    config = copy.deepcopy(SHAPES["iwslt_nlpo"])
    config["tokenizer"]["model_name"] = "model"
    config["alg"]["policy"]["args"]["model_name"] = "model"
    config["env"]["args"] |= {"max_prompt_length": 40, "max_episode_length": 6}
    config["alg"]["policy"]["args"]["generation_kwargs"]["max_new_tokens"] = 6
    config["alg"]["args"]["n_steps"] = 3
    config["train_evaluation"] |= {"n_iters": 2, "eval_every": 2}
    config["train_evaluation"]["metrics"] = [{"id": "ter"}, {"id": "chrf"}]
    old("old.yml", config)
    assert main(["import-rl4lms", "old.yml", "--out", "new.yaml"]) == 0
    words = "--data.path mini --data.name null --data.revision null --threads 1 --model.device cpu"
    words += " --evaluation.human_rows 0 --evaluation.prompts 4 --name task"
    code = main(["train", "--config", "new.yaml", *words.split()])
    assert code == 0, capsys.readouterr().err
    record = lines(here / "runs/task")
    assert record[-1]["kind"] == "end"
    rewards = [r["metrics"]["reward/ter.mean"] for r in record if r["kind"] == "update"]
    assert len(rewards) == 2 and all(r <= 1.0 for r in rewards)
    points = [r for r in record if r["kind"] == "eval"]
    assert all(set(p["scores"]) == {"ter"} and set(p["judges"]) == {"chrf"} for p in points)
