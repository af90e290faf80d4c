"""`import tether`: settings from Python values; the folder is refused before anything is loaded."""

import pytest

import tether
from tether.config.errors import UserError
from tether.config.folder import refuse_taken
from tether.config.parts import build
from tether.config.settings import dump, parse
from tether.config.text_values import write_yaml
from tether.records import line


def long_ones(completions: list[str], **columns: object) -> list[float]:
    return [float(len(c)) for c in completions]


def test_a_dozen_lines() -> None:
    from tether.tethers.elastic_reset import ElasticReset
    from tether.tethers.triggers import Every

    s = tether.settings(
        "ppo-kl",
        model="some/model",
        data="prompts.jsonl",
        reward=long_ones,
        tethers=[ElasticReset(reset=Every(5))],
        updates=20,
        **{"algorithm.lr": 1e-4, "sampling": {"max_new_tokens": 7}},
    )
    assert s.updates == 20 and s.sampling.max_new_tokens == 7 and s.algorithm["lr"] == 1e-4
    assert s.model.path == "some/model" and s.data.path == "prompts.jsonl"
    assert list(s.tethers) == ["kl", "elastic_reset"]
    assert s.tethers["elastic_reset"]["reset"]["n"] == 5
    function = s.rewards["reward"]["function"]
    assert function == f"{__name__}:long_ones"
    assert parse(dump(s)) == s
    assert build("tether", s.tethers["elastic_reset"]) == ElasticReset(reset=Every(5))


def test_tethers_by_name_and_dropped() -> None:
    from tether.tethers.kl import KLPenalty

    s = tether.settings("ppo-kl", tethers={"kl": None, "near": KLPenalty(coef=0.3)})
    assert list(s.tethers) == ["near"]
    assert (s.tethers["near"]["kind"], s.tethers["near"]["coef"]) == ("kl", 0.3)


def test_reward_instances_and_kinds() -> None:
    from tether.rewards.length import LengthReward

    s = tether.settings("ppo", reward=LengthReward(weight=2.0))
    assert s.rewards["reward"]["kind"] == "length" and s.rewards["reward"]["weight"] == 2.0
    assert tether.settings("ppo", reward="length").rewards["reward"]["kind"] == "length"


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"define it with a name at the top level of a file"):
        tether.settings("ppo", reward=lambda completions, **columns: [0.0])


def test_misspelt_arguments() -> None:
    with pytest.raises(UserError, match=r"unknown key 'updats'.* did you mean 'updates'"):
        tether.settings("ppo", updats=3)


def test_train_is_callable_before_and_after_the_package_is_used(tmp_path) -> None:
    import tether.train.signals

    assert tether.train.signals.Interrupted  # the package is still a package
    with pytest.raises(UserError, match=r"no data: give --data"):
        tether.train("ppo", model="m", reward="length", root=str(tmp_path))


def test_a_taken_folder_is_refused_before_torch_runs(tmp_path) -> None:
    s = tether.settings("ppo", root=str(tmp_path), name="a")
    refuse_taken(s)
    folder = tmp_path / "a"
    folder.mkdir()
    refuse_taken(s)  # empty: free
    (folder / "notes.txt").write_text("x")
    with pytest.raises(
        UserError, match=r"holds files that are no run; choose another name: --name"
    ):
        refuse_taken(s)
    write_yaml(folder / "config.yaml", dump(s))
    with pytest.raises(UserError, match=r"ended before anything was saved: mend the cause"):
        refuse_taken(s)
    (folder / "record.jsonl").write_text(line("update", update=1) + "\n")
    with pytest.raises(UserError, match=r"already holds this run; to go on: tether resume"):
        refuse_taken(s)
    other = tether.settings("ppo", root=str(tmp_path), name="a", seed=1)
    with pytest.raises(UserError, match=r"holds another run; choose another name: --name NAME"):
        refuse_taken(other)
    (tmp_path / "b").write_text("x")
    with pytest.raises(UserError, match=r"is a file"):
        refuse_taken(tether.settings("ppo", root=str(tmp_path), name="b"))


def test_recipes_are_to_be_had() -> None:
    assert tether.recipe("elastic-reset")["tethers"]["elastic_reset"]["decay"] == 0.995
    assert tether.recipes.generic.ppo() == tether.recipe("ppo")
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'"):
        tether.nothing  # noqa: B018


def test_records(tmp_path) -> None:
    (tmp_path / "record.jsonl").write_text('{"kind": "start"}\n{"kind": "end"}\n{"kind": "cut')
    assert [row["kind"] for row in tether.load_record(tmp_path)] == ["start", "end"]
    assert tether.load_points(tmp_path) == []


def test_the_numbers_of_the_imdb_study() -> None:
    for name in ("imdb-ppo", "imdb-ppo-kl", "imdb-elastic-reset"):
        s = tether.settings(name)
        assert s.data.prompt_tokens == 64 and s.sampling.max_new_tokens == 48
        assert s.sampling.temperature == 1.0 and s.sampling.top_k == 0 and s.sampling.top_p == 1.0
        assert s.batch.prompts * s.algorithm["group_size"] == 256 and s.updates == 40
        assert s.algorithm["minibatches"] == 4 and s.sampling.min_new_tokens == 0
        assert (s.evaluation.every, s.evaluation.prompts, s.evaluation.test_prompts) == (
            5,
            1024,
            5000,
        )
    reset = s.tethers["elastic_reset"]
    assert list(s.tethers) == ["elastic_reset"]
    assert reset["reset"]["n"] == 17 and reset["reset"]["unit"] == "update"
    assert reset["decay"] == 0.995 and reset["average"]["n"] == 1
    assert reset["average"]["unit"] == "update"
