"""Which cells there are, that they share their terms, and what is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tether.cli.main import main as tether
from tether.config.catalog import CATALOG
from tether.config.errors import UserError
from tether.config.run import AfterSettings
from tether.config.settings import dump
from tether.studies.grue.cells import Plan, cells, free_cells, jobs, settings_of
from tether.studies.grue.methods import DEFAULT, ZERO_SHOT, mapping_of, parse
from tether.studies.grue.planning import Asked, data_of, plan_of
from tether.studies.grue.scoring import completions_trained
from tether.studies.grue.terms import TASKS, Terms, house, joined
from tether.train.build import build_parts


def plan(
    tmp_path: Path, *methods: str, tasks: tuple[str, ...] = ("commongen",), **more: Any
) -> Plan:
    terms = {t: joined(house(t), more.pop("terms", Terms())) for t in tasks}
    return Plan(
        **{
            "folder": tmp_path / "out",
            "tasks": tasks,
            "methods": parse([ZERO_SHOT, *methods]),
            "seeds": range(2),
            "terms": terms,
            "data": {},
            **more,
        }
    )


def test_methods_are_recipes_tethers_and_starts() -> None:
    found = parse(["supervised+elastic_reset", "kl", "zero-shot", "mine.py:recipe"])
    assert [(m.name, m.recipe, m.start) for m in found.values()] == [
        ("supervised", "supervised", ""),
        ("supervised+elastic_reset", "elastic-reset", "supervised"),
        ("kl", "kl", ""),
        ("zero-shot", "", ""),
        ("mine.py:recipe", "mine.py:recipe", ""),
    ]
    assert parse(["a2c+ppo+nlpo"])["a2c+ppo+nlpo"].start == "a2c+ppo"
    assert mapping_of("kl")["tethers"] == {"kl": {"kind": "kl"}}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["nplo"], "unknown method 'nplo' in --methods; did you mean 'nlpo'"),
        (["supervised+pppo"], "did you mean 'ppo'"),
        (["supervised+"], "is not A\\+B"),
        (["zero-shot+ppo"], "write the method alone"),
        (["ppo", "ppo"], "names 'ppo' twice"),
        ([""], "--methods is empty"),
    ],
)
def test_names_that_are_no_method(names: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(names)


def test_a_recipe_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def held():\n    return {'tethers': {'kl': {'kind': 'kl', 'coef': 0.7}}, 'updates': 3}\n"
    )
    p = plan(tmp_path, "mine.py:held", seeds=[4])
    zero, mine = jobs(p)
    assert (zero[1].name, zero[1].settings.seed) == ("commongen/zero-shot", 0)
    s = mine[1].settings
    assert (s.tethers["kl"]["coef"], s.algorithm["kind"], s.seed) == (0.7, "ppo", 4)
    assert s.updates == 200  # the task's terms, not the recipe's


def test_a_reward_model_is_no_method() -> None:
    with pytest.raises(UserError, match="trains no policy"):
        mapping_of("imdb-classifier")


def test_zero_shot_is_once_a_task_and_starts_come_first(tmp_path: Path) -> None:
    p = plan(tmp_path, "supervised+ppo", "ppo", tasks=("imdb", "commongen"))
    names = [c.name for c in cells(p)]
    assert names == [
        "imdb/zero-shot", "imdb/supervised-seed0", "imdb/supervised-ppo-seed0", "imdb/ppo-seed0",
        "commongen/zero-shot", "commongen/supervised-seed0", "commongen/supervised-ppo-seed0",
        "commongen/ppo-seed0",
        "imdb/supervised-seed1", "imdb/supervised-ppo-seed1", "imdb/ppo-seed1",
        "commongen/supervised-seed1", "commongen/supervised-ppo-seed1", "commongen/ppo-seed1",
    ]  # fmt: skip
    started = {c.name: j for c, j in jobs(p)}["commongen/supervised-ppo-seed1"]
    assert started.after == ("commongen/supervised-seed1",)
    warm = tmp_path / "out" / "commongen" / "supervised-seed1" / "policy"
    assert started.settings.model.path == str(warm)
    assert started.settings.seed == 1


@pytest.mark.parametrize("task", sorted(CATALOG["task"]))
def test_methods_of_a_task_train_on_equal_samples(task: str, tmp_path: Path) -> None:
    names = ("ppo", "nlpo", "elastic-reset", "kl", "supervised+ppo", "supervised+nlpo", "rloo")
    p = plan(tmp_path, *names, tasks=(task,), seeds=[0])
    found = {c.method.name: dump(settings_of(p, c)) for c in cells(p)}
    ppo = found["ppo"]
    for name in names:
        s = found[name]
        for key in ("data", "sampling", "rewards", "updates", "optimizer"):
            assert s[key] == ppo[key], (name, key)
        assert {**s["evaluation"]} == ppo["evaluation"], name
        assert s["algorithm"]["lr"] == ppo["algorithm"]["lr"]
        group = s["algorithm"].get("group_size", 1)
        assert abs(completions_trained(s) - completions_trained(ppo)) < s["updates"] * group
        if s["algorithm"]["kind"] == "ppo":
            assert s["algorithm"] == ppo["algorithm"], name
    for name in (ZERO_SHOT, "supervised"):
        s = found[name]
        assert s["evaluation"]["test_prompts"] == ppo["evaluation"]["test_prompts"]
        assert s["evaluation"]["sampling"] == ppo["evaluation"]["sampling"]
        assert s["model"] == ppo["model"]
    assert found[ZERO_SHOT]["updates"] == 0
    assert "nlpo_mask" in found["nlpo"]["tethers"] and "kl" in found["kl"]["tethers"]


def test_the_recipe_of_the_task_brings_its_tethers(tmp_path: Path) -> None:
    p = plan(tmp_path, "supervised+nlpo", "nlpo", "elastic-reset", seeds=[0])
    found = {c.method.name: settings_of(p, c) for c in cells(p)}
    assert found["nlpo"].tethers["kl"]["coef"] == 0.001
    assert found["supervised+nlpo"].tethers["kl"]["coef"] == 0.01
    assert set(found["elastic-reset"].tethers) == {"elastic_reset"}
    assert found["supervised"].data.task is not None
    assert found["supervised"].data.task["one_row_a_reference"] is True


def test_settings_by_task_and_method(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "all: {evaluation: {test_prompts: 100}}\n"
        "tuned: {updates: 7, algorithm: {clip_range: 0.1}}\n"
        "methods: {nlpo: {tethers: {kl: {coef: 0.5}}}}\n"
        "tasks:\n"
        "  imdb: {tuned: {updates: 9}, metrics: [rouge_1]}\n"
    )
    asked = Asked(
        ["imdb", "dailydialog"], ["nlpo", "a2c", "supervised"], settings=file, mini=True,
        out=tmp_path / "o", overrides=["--algorithm.lr", "1e-4"],
    )  # fmt: skip
    p = plan_of(asked)
    found = {c.name: s.settings for c, s in jobs(p)}
    nlpo = found["imdb/nlpo-seed0"]
    assert (nlpo.updates, found["dailydialog/nlpo-seed0"].updates) == (9, 7)
    assert nlpo.tethers["kl"]["coef"] == 0.5
    assert (nlpo.algorithm["clip_range"], nlpo.algorithm["lr"]) == (0.1, 1e-4)
    assert "clip_range" not in found["imdb/a2c-seed0"].algorithm  # it has none
    assert found["imdb/supervised-seed0"].algorithm["lr"] == 1e-4
    assert found["imdb/zero-shot"].evaluation.test_prompts == 100
    assert p.terms["imdb"].metrics == ["rouge_1"]


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "7"],
        ["--name=x"],
        ["--root", "/nowhere"],
        ["--method", "q"],
        ["--evaluation.test_samples", "3"],
        ["--checkpoint.export", "false"],
        ["--checkpoint", "{export: false}"],
    ],
)
def test_what_the_benchmark_sets_itself_is_refused(words: list[str]) -> None:
    name = "checkpoint.export" if "checkpoint" in words[0] else words[0].strip("-").split("=")[0]
    with pytest.raises(UserError, match=f"the command line: '{name}' would have no effect"):
        plan_of(Asked(["imdb"], ["ppo"], mini=True, overrides=words))


def test_updates_where_nothing_trains() -> None:
    words = ["--updates", "3"]
    with pytest.raises(UserError, match="zero-shot trains nothing"):
        plan_of(Asked(["imdb"], [ZERO_SHOT], mini=True, overrides=words))
    assert plan_of(Asked(["imdb"], ["ppo"], mini=True, overrides=words)).overrides == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all: {seed: 3}", "settings.yaml, all: 'seed' would have no effect"),
        ("tasks: {imdb: {tuned: {name: x}}}", "tasks.imdb, tuned: 'name' would"),
        ("methods: {zero-shot: {updates: 3}}", "methods, zero-shot: 'updates' would"),
        ("methods: {supervised+ppo: {model: {path: x}}}", "from the final weights of supervised"),
        ("all: {evaluation: {budgets: []}}", "evaluation.budgets of imdb/zero-shot is empty"),
        (
            "tasks: {imdb: {all: {evaluation: {budgets: [3]}}}}",
            r"budgets differ: \[3.0\] in imdb/zero-shot, \[1.0, 2.0",
        ),
        ("tuned: {evaluation: {budgets: [3]}}", "in imdb/zero-shot, .* in imdb/supervised-ppo"),
    ],
)
def test_a_settings_file_without_effect(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text + "\n")
    asked = Asked(["imdb", "totto"], ["supervised+ppo"], mini=True, settings=file)
    with pytest.raises(UserError, match=said):
        jobs(plan_of(asked))


def test_one_reward_at_a_time(tmp_path: Path) -> None:
    p = plan(tmp_path, "supervised", "ppo", seeds=[0], rewards=["chrf", "rouge_2"])
    found = {c.name: s.settings for c, s in jobs(p)}
    assert sorted(found) == [
        "commongen/ppo-chrf-seed0", "commongen/ppo-rouge-2-seed0",
        "commongen/supervised-seed0", "commongen/zero-shot",
    ]  # fmt: skip
    one = found["commongen/ppo-chrf-seed0"]
    assert list(one.rewards) == ["chrf"] and one.rewards["chrf"]["metric"]["kind"] == "chrf"
    assert one.method == "ppo (reward chrf)"
    assert list(found["commongen/supervised-seed0"].rewards) == ["meteor", "repeat_penalty"]
    with pytest.raises(UserError, match="did you mean 'rouge_2'"):
        jobs(replace(p, rewards=["rouge2"]))
    with pytest.raises(UserError, match="no reward"):
        jobs(replace(p, rewards=["perplexity"]))


def test_two_starts_by_two_references(tmp_path: Path) -> None:
    p = plan(tmp_path, "ppo-kl", "supervised+ppo-kl", seeds=[3], references=["raw", "supervised"])
    found = {c.name.partition("/")[2]: j for c, j in jobs(p) if "ppo" in c.name}
    home = {k: j.settings.tethers["kl"]["model"] for k, j in found.items()}
    warm = str(tmp_path / "out" / "commongen" / "supervised-seed3" / "policy")
    assert home == {
        "ppo-kl-raw-seed3": None,  # where it starts
        "ppo-kl-supervised-seed3": warm,
        "supervised-ppo-kl-raw-seed3": "google-t5/t5-base",
        "supervised-ppo-kl-supervised-seed3": None,
    }
    assert found["ppo-kl-supervised-seed3"].after == ("commongen/supervised-seed3",)
    assert found["ppo-kl-raw-seed3"].after == ()
    with pytest.raises(UserError, match="'elastic-reset' has no KL penalty"):
        jobs(replace(p, methods=parse([ZERO_SHOT, "supervised", "elastic-reset"])))


def test_the_raw_reference_is_the_whole_of_the_model(tmp_path: Path) -> None:
    """What a start from a run has no use for, a reference to the model as it is has."""
    model = {"path": "a/b", "revision": "v2", "gguf_file": "x.gguf", "adapter": "runs/a/adapter"}
    more = {"tokenizer": "a/c", "lora": {"rank": 4}}
    terms = Terms(all={"model": model | more})
    p = plan(tmp_path, "supervised+ppo-kl", seeds=[3], references=["raw"], terms=terms)
    held = next(j for c, j in jobs(p) if c.reference)
    assert held.settings.tethers["kl"]["model"] == model
    assert held.settings.model.gguf_file is None
    build_parts(held.settings)
    random = replace(p, overrides=["--model.random_weights=true"])
    with pytest.raises(UserError, match=r"--kl-reference raw: model\.random_weights are others"):
        jobs(random)


FREE = ["--after.best_of_n", "--after.oracle", "--after.interpolate", "--after.samples=64",
        "--after.shares=[0, 1]"]  # fmt: skip


def test_what_costs_no_training_is_measured_once(tmp_path: Path) -> None:
    """Best-of-n and the oracle for each set of initial weights, interpolation for each run."""
    names = ("supervised", "ppo", "nlpo", "supervised+ppo", "supervised+nlpo")
    p = plan(tmp_path, *names, overrides=FREE, terms=Terms(tuned={"evaluation": {"prompts": 99}}))
    free = jobs(p, free_cells(p))
    assert [c.name for c, _ in free] == [
        "commongen/baselines", "commongen/supervised-baselines-seed0",
        "commongen/supervised-baselines-seed1",
    ]  # fmt: skip
    raw, warm = free[0][1], free[2][1]
    wanted = AfterSettings(best_of_n=True, oracle=True, samples=64)
    assert all(j.settings.after == wanted for _, j in free)
    assert (raw.settings.updates, raw.settings.model.path) == (0, "google-t5/t5-base")
    assert raw.after == () and warm.after == ("commongen/supervised-seed1",)
    assert warm.settings.model.path.endswith("out/commongen/supervised-seed1/policy")
    of_rows = {c.name: j.settings for c, j in jobs(p)}
    assert not [n for n in of_rows if "baselines" in n]  # no row
    ppo = of_rows["commongen/ppo-seed1"]
    assert ppo.after == AfterSettings(interpolate=True, shares=[0.0, 1.0])
    # rewarded and sampled as the runs are that they stand beside
    assert (raw.settings.rewards, raw.settings.sampling) == (ppo.rewards, ppo.sampling)
    # CommonGen is evaluated on the likeliest token: its baselines are sampled as training is
    assert ppo.evaluation.sampling is not None and ppo.evaluation.sampling.greedy
    assert raw.settings.evaluation == replace(ppo.evaluation, sampling=None)
    assert raw.settings.evaluation.prompts == 99
    for name in ("zero-shot", "supervised-seed0"):
        assert of_rows[f"commongen/{name}"].after == AfterSettings()


def test_baselines_are_sampled_as_evaluations_are(tmp_path: Path) -> None:
    sampling = {"evaluation": {"sampling": {"greedy": False, "temperature": 0.7}}}
    p = plan(tmp_path, "ppo", overrides=FREE, terms=Terms(tuned=sampling), seeds=[0])
    free, ppo = jobs(p, free_cells(p))[0][1], jobs(p)[1][1]
    assert free.settings.evaluation == ppo.settings.evaluation
    assert free.settings.evaluation.sampling is not None
    assert free.settings.evaluation.sampling.temperature == 0.7


def test_what_costs_no_training_by_reward(tmp_path: Path) -> None:
    p = plan(tmp_path, "ppo", "ppo+nlpo", seeds=[3], rewards=["chrf", "ter"], overrides=FREE[:1])
    free = jobs(p, free_cells(p))
    assert [c.name for c, _ in free] == [
        "commongen/baselines-chrf", "commongen/baselines-ter",
        "commongen/ppo-baselines-chrf-seed3", "commongen/ppo-baselines-ter-seed3",
    ]  # fmt: skip
    assert list(free[3][1].settings.rewards) == ["ter"]
    assert free[3][1].after == ("commongen/ppo-ter-seed3",)
    assert not free_cells(replace(p, overrides=[]))
    with pytest.raises(UserError, match=r"after\.samples.* has no effect"):
        free_cells(replace(p, overrides=FREE[3:4]))


def test_what_costs_no_training_needs_a_method_that_trains_on_a_reward(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("tuned: {after: {oracle: true}}")
    second.write_text("tasks: {imdb: {all: {after: {samples: 8}}}}")
    asking: list[dict[str, Any]] = [{"after": ["best_of_n"]}, {"overrides": ["--after.samples=16"]}]
    for more in [*asking, {"settings": first}, {"settings": second}]:
        where = rf"after in {file} \(imdb\)" if (file := more.get("settings")) else "--after"
        with pytest.raises(UserError, match=f"^{where} measures for methods that train on a rew"):
            plan_of(Asked(["imdb"], ["supervised"], out=tmp_path, **more))
        plan_of(Asked(["imdb"], ["ppo"], out=tmp_path, **more))
    first.write_text("all: {after: {oracle: false}}")  # asks for nothing
    plan_of(Asked(["imdb"], ["supervised"], out=tmp_path, settings=first))


@pytest.mark.parametrize("key", ["demonstrations: {%s}", "methods: {ppo: {%s}}"])
def test_what_costs_no_training_is_no_matter_of_one_method(key: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(key % "after: {oracle: true}")
    with pytest.raises(UserError, match=r"'after' would have no effect: .* for all methods"):
        plan_of(Asked(["imdb"], ["ppo"], mini=True, settings=file))


def test_references_are_models_that_no_reward_has_touched(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'supervised'"):
        plan_of(Asked(["imdb"], ["ppo-kl", "supervised"], references=["supervise"], mini=True))
    with pytest.raises(UserError, match="trains on human completions"):
        plan_of(Asked(["imdb"], ["ppo-kl"], references=["ppo-kl"], mini=True))


def test_where_the_data_are(tmp_path: Path) -> None:
    (tmp_path / "imdb").mkdir()
    (tmp_path / "commongen.jsonl.gz").touch()
    (tmp_path / "iwslt17_de_en.jsonl").touch()
    assert data_of(tmp_path, "imdb") == str(tmp_path / "imdb")
    assert data_of(tmp_path, "commongen") == str(tmp_path / "commongen.jsonl.gz")
    assert data_of(tmp_path, "iwslt17") == str(tmp_path / "iwslt17_de_en.jsonl")
    with pytest.raises(UserError, match=r"has no 'totto'.*it holds commongen\.jsonl\.gz, imdb"):
        data_of(tmp_path, "totto")
    (tmp_path / "iwslt17_more.jsonl").touch()
    with pytest.raises(UserError, match="several sets for iwslt17"):
        data_of(tmp_path, "iwslt17")
    with pytest.raises(UserError, match="is no folder"):
        data_of(tmp_path / "none", "imdb")


def test_every_task_and_method_by_default() -> None:
    assert len(TASKS) == 7 and set(TASKS) <= set(CATALOG["task"])
    p = plan_of(Asked(mini=True))
    assert len(cells(p)) == 7 * 4
    assert set(parse(DEFAULT)) == set(DEFAULT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grue", "rum"], "unknown action 'rum' in tether grue; did you mean 'run'"),
        (["grue", "run", "--tasks", "imbd"], "unknown task 'imbd' in --tasks; did you mean 'imdb'"),
        (["grue", "run", "--tasks", "imdb,"], "has an empty name"),
        (["grue", "run", "--mini", "--methods", "pppo"], "did you mean 'ppo'"),
        (["grue", "run", "--mini", "--data", "nowhere"], "--data nowhere is no folder"),
        (["grue", "run", "--mini", "--after", "oracel"], "none of best_of_n, oracle, interpolate"),
        (["grue", "run", "--mini", "--primary", "ppo"], "write METHOD:AGAINST"),
        (["grue", "run", "--mini", "--rewards", "praise,praise"], "--rewards names 'praise' twice"),
        (["grue", "run", "--mini", "--kl-reference", "raw,raw"], "names 'raw' twice"),
        (["grue", "run", "--mini", "--budgets", "4,4"], "'4,4' names 4 twice"),
        (
            ["grue", "run", "--mini", "--methods", "ppo", "--kl-reference", "foo"],
            "unknown reference 'foo' in --kl-reference (raw, or one of --methods that trains on "
            "human completions); there are: raw",
        ),
        (["grue", "run", "--mini", "--margin", "much"], "--margin: invalid float value: 'much'"),
        (["grue", "run", "--mini", "--methods", "ppo-kl", "--updates", "x"], "updates"),
        (["grue", "run", "--mini", "--evaluation.budgets", "[]"], "is empty: the benchmark"),
        (["grue", "report", "nowhere"], "there is no folder 'nowhere' of a benchmark"),
    ],
)
def test_one_line_for_a_mistake(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert tether(words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_a_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tether(["grue", "report", str(tmp_path)]) == 2
    assert "holds no benchmark: `tether grue run --out" in capsys.readouterr().err
    assert tether(["grue"]) == 0 and "report" in capsys.readouterr().out
