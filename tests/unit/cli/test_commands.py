"""Every command through `main`: what it prints, and its exit code."""

import json

import pytest
import yaml

from tether.cli import main as command
from tether.cli.main import COMMANDS, main
from tether.config.catalog import CATALOG


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def go(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out = capsys.readouterr()
        return code, out.out, out.err

    return go


def test_help_names_every_command(run) -> None:
    code, out, err = run("--help")
    assert code == 0 and err == ""
    for name in COMMANDS:
        assert f"  {name} " in out
    assert run() == (code, out, err)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, run) -> None:
    try:
        code, out, _ = run(name, "--help")
    except SystemExit as e:  # argparse leaves this way
        code, out = e.code, "usage"
    assert code == 0 and "usage" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian ppo", "tether: unknown command 'trian'; did you mean 'train'?"),
        ("train", "tether: train needs a recipe or --config FILE; recipes: "),
        ("train pppo", "tether: unknown recipe 'pppo'; did you mean 'ppo'?"),
        ("train ppo --updats 3", "tether: unknown key 'updats' in the command line; did you mean"),
        ("train ppo", "tether: no data: give --data HUB_ID_OR_FILE"),
        ("train ppo --data x.csv", "tether: no reward: give --reward file.py:function"),
        ("train ppo --model= --data x.csv", "tether: no model: give --model"),
        ("train --config", "tether: --config needs a file"),
        ("train --config no.yaml", "tether: there is no configuration file 'no.yaml'"),
        (
            "train ppo stray",
            "tether: 'stray' is not an option; overrides are written --a.b.c VALUE",
        ),
        ("resume nowhere", "tether: nowhere is not the folder of a run: it holds no config.yaml"),
        ("evaluate nowhere", "tether: nowhere is not the folder of a run"),
        ("evaluate . --promts 3", "tether: unknown option '--promts' in tether evaluate; did you"),
        (
            "evaluate . --prompts 0",
            "tether: tether evaluate: argument --prompts: '0' is not a whole",
        ),
        ("generate . ", "tether: generate needs a prompt"),
        ("generate . x --temperature 0", "tether: --temperature must be greater than 0"),
        ("generate nowhere x", "tether: there is no folder 'nowhere'"),
        ("frontier nowhere", "tether: there is no folder 'nowhere' of runs"),
        (
            "frontier . --budgets 1,x",
            "tether: tether frontier: argument --budgets: '1,x' is no list",
        ),
        ("compare", "tether: tether compare: the following arguments are required: recipes"),
        ("list tether", "tether: unknown family 'tether' in tether list; did you mean 'tethers'?"),
        ("recipes show", "tether: recipes show needs a name"),
        ("recipes show nope", "tether: unknown recipe 'nope'"),
        ("quickstart --seeds 0", "tether: tether quickstart: argument --seeds: '0' is not a whole"),
        ("doctor ppo --updats 1", "tether: unknown key 'updats'"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, run, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("updates: 1\n")
    code, out, err = run(*words.split())
    assert code == 2 and out == ""
    assert err.startswith(message) and err.count("\n") == 1


def test_dry_run_prints_what_would_run(run, tmp_path) -> None:
    words = ["train", "ppo-kl", "--data", "x.csv", "--reward", "length", "--seed", "4", "--dry-run"]
    code, out, _ = run(*words)
    assert code == 0
    shown = yaml.safe_load(out)
    assert shown["seed"] == 4 and shown["name"] == "ppo-kl-seed4"
    file = tmp_path / "run.yaml"
    file.write_text(out)
    assert run("train", "--config", str(file), "--dry-run") == (0, out, "")
    changed = run("train", "--config", str(file), "--tethers.kl", "null", "--dry-run")[1]
    assert yaml.safe_load(changed)["tethers"] == {}


def test_help_of_a_recipe_shows_every_key_with_its_value(run) -> None:
    code, out, _ = run("train", "elastic-reset", "--help", "--seed", "8")
    assert code == 0
    assert "--seed 8" in out
    assert "--tethers.elastic_reset.reset.n 17" in out and "--algorithm.clip_range 0.2" in out
    assert "Folder name under `root`." in out
    assert "--data.limit null" in out and "--model.dropout false" in out
    code, out, _ = run("train", "imdb-classifier", "--help")
    assert "--crop_tokens [32, 256]" in out and "--algorithm" not in out


def test_help_of_train_lists_recipes(run) -> None:
    _, out, _ = run("train", "--help")
    assert all(name in out for name in CATALOG["recipe"])


def test_a_taken_folder_is_refused(run, tmp_path) -> None:
    words = ["train", "ppo", "--data", "x.csv", "--reward", "length", "--root", str(tmp_path)]
    folder = tmp_path / "ppo-seed0"
    folder.mkdir()
    (folder / "config.yaml").write_text("updates: 1\n")
    (folder / "checkpoints" / "000001").mkdir(parents=True)
    code, _, err = run(*words)
    assert code == 2
    assert err == (
        f"tether: {folder} holds another run; choose another name: --name NAME, "
        f"or go on with that one: tether resume {folder}\n"
    )


def test_list(run) -> None:
    code, out, _ = run("list", "--json")
    assert code == 0
    found = json.loads(out)
    assert set(found) == {
        "algorithms",
        "tethers",
        "triggers",
        "controllers",
        "rewards",
        "environments",
        "engines",
        "metrics",
        "tasks",
        "recipes",
    }
    for family, names in CATALOG.items():
        assert set(found[family + "s"]) == set(names)
        for name, entry in found[family + "s"].items():
            assert entry["source"] == names[name]
            assert entry["summary"], f"{family} {name} has no description"
    _, text, _ = run("list", "tethers")
    assert "elastic_reset" in text and "algorithms" not in text


def test_recipes_show_can_be_trained_from(run, tmp_path) -> None:
    for name in CATALOG["recipe"]:
        code, out, _ = run("recipes", "show", name)
        file = tmp_path / f"{name}.yaml"
        file.write_text(out)
        assert code == 0 and out.startswith("# ")
        words = ["--data", "x.csv", "--name", "x", "--dry-run"]
        if yaml.safe_load(out).get("job", "policy") == "policy":
            words += ["--reward", "length"]
        direct = run("train", name, *words)
        assert direct[0] == 0
        assert run("train", "--config", str(file), *words) == direct


def test_schema(run) -> None:
    code, out, _ = run("schema")
    found = json.loads(out)
    assert code == 0 and found["$ref"] == "#/$defs/RunSettings"
    run_keys = found["$defs"]["RunSettings"]["properties"]
    assert run_keys["updates"] == {
        "type": "integer",
        "description": "Rollout + optimise cycles; 0 = the model is evaluated as it is.",
        "default": 40,
    }
    assert run_keys["algorithm"]["$ref"] == "#/$defs/part_algorithm"
    kinds = [p["properties"]["kind"] for p in found["$defs"]["part_tether"]["anyOf"]]
    assert {"const": "kl"} in kinds and {"type": "string", "pattern": ":"} in kinds
    for reference in _references(found):
        assert reference.removeprefix("#/$defs/") in found["$defs"], reference
    assert json.loads(run("schema", "--job", "classifier")[1])["$ref"].endswith(
        "ClassifierSettings"
    )


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [r for v in value.values() for r in _references(v)]
    return [r for v in value for r in _references(v)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "tether: interrupted\n"),
        ("interrupted", 143, "tether: stopped and saved; `tether resume runs/x` goes on\n"),
    ],
)
def test_interruptions(error, code: int, message: str, run, monkeypatch) -> None:
    if error == "interrupted":
        from tether.train.signals import Interrupted

        error = Interrupted(143, "runs/x")

    def fail(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(command, "_run", fail)
    assert run("train") == (code, "", message)


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch) -> None:
    def fail(words: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(command, "_run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["train"])


def test_compare_divides_its_own_words_from_overrides(monkeypatch, run) -> None:
    seen = {}

    def study(recipes, **options) -> int:
        seen.update(recipes=recipes, **options)
        return 1

    from tether.studies import compare

    monkeypatch.setattr(compare, "main", study)
    words = "ppo --updates 3 ppo-kl --seeds 2 --reward=length --tethers.kl.coef .1"
    code, _, _ = run("compare", *words.split())
    assert code == 1
    assert seen["recipes"] == ["ppo", "ppo-kl"] and seen["seeds"] == 2
    assert seen["overrides"] == ["--updates", "3", "--reward=length", "--tethers.kl.coef", ".1"]


def test_version(run) -> None:
    code, out, _ = run("--version")
    assert code == 0 and out.strip()
