"""Recipe < files < overrides; parts are added, changed, dropped."""

import pytest

from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.layers import apply_overrides, merge, normalised, split


def test_later_layers_win_and_keep_the_rest() -> None:
    low = {"updates": 1, "batch": {"prompts": 2, "microbatch": 3}}
    assert merge(low, {"batch": {"prompts": 8}}) == {
        "updates": 1,
        "batch": {"prompts": 8, "microbatch": 3},
    }
    assert low["batch"] == {"prompts": 2, "microbatch": 3}  # a layer is never written


def test_a_new_kind_starts_afresh() -> None:
    low = {"algorithm": {"kind": "ppo", "gamma": 0.9}}
    assert merge(low, {"algorithm": {"kind": "supervised"}}) == {
        "algorithm": {"kind": "supervised"}
    }
    kept = merge(low, {"algorithm": {"kind": "ppo", "lr": 1.0}})
    assert kept == {"algorithm": {"kind": "ppo", "gamma": 0.9, "lr": 1.0}}
    assert merge({"algorithm": {"gamma": 0.9}}, {"algorithm": {"kind": "ppo"}}) == {
        "algorithm": {"kind": "ppo", "gamma": 0.9}
    }


def test_the_name_of_a_tether_is_its_kind() -> None:
    assert merge({"tethers": {"kl": {"coef": 0.1}}}) == {
        "tethers": {"kl": {"kind": "kl", "coef": 0.1}}
    }


def test_null_drops_a_tether() -> None:
    merged = merge({"tethers": {"kl": {"coef": 0.1}, "min_length": {}}}, {"tethers": {"kl": None}})
    assert list(normalised(merged)["tethers"]) == ["min_length"]
    assert compose("ppo-kl", overrides=["--tethers.kl", "null"]).tethers == {}
    assert compose("ppo-kl", overrides=["--tethers", "null"]).tethers == {}


def test_null_drops_all_tethers_of_the_layers_below() -> None:
    brought = {"tethers": {"kl": {"coef": 0.1}}}
    assert normalised(merge(brought, {"tethers": None}))["tethers"] == {}
    assert normalised(merge(brought, merge({"updates": 2}, {"tethers": None})))["tethers"] == {}
    assert merge(brought, {"tethers": {}}) == merge(brought)
    again = merge(brought, {"tethers": None}, {"tethers": {"ema": {}}})
    assert list(again["tethers"]) == ["ema"]


def test_a_dropped_tether_can_come_back() -> None:
    merged = merge(
        {"tethers": {"kl": {"coef": 0.1}}}, {"tethers": {"kl": None}}, {"tethers": {"kl": {}}}
    )
    assert merged["tethers"] == {"kl": {"kind": "kl"}}


def test_overrides_add_a_tether() -> None:
    words = ["--tethers.floor.tokens", "5", "--tethers.floor.kind", "min_length"]
    tethers = compose("ppo-kl", overrides=words).tethers
    assert tethers["floor"]["kind"] == "min_length" and tethers["floor"]["tokens"] == 5
    assert tethers["kl"]["coef"] == 0.05
    assert compose("ppo", overrides=["--tethers.kl"]).tethers["kl"]["kind"] == "kl"
    assert compose("ppo", overrides=["--tethers.kl.coef", ".2"]).tethers["kl"]["coef"] == 0.2


def test_overrides_reach_nested_parts() -> None:
    base = ["--tethers.elastic_reset.reset.n", "9"]
    reset = compose("elastic-reset", overrides=base).tethers["elastic_reset"]["reset"]
    assert (reset["kind"], reset["n"], reset["unit"]) == ("every", 9, "update")
    other = [
        "--tethers.elastic_reset.reset.budget",
        "4",
        "--tethers.elastic_reset.reset.kind",
        "drift_budget",
    ]
    reset = compose("elastic-reset", overrides=other).tethers["elastic_reset"]["reset"]
    assert reset["kind"] == "drift_budget" and reset["budget"] == 4.0 and "n" not in reset


def test_text_is_read_by_the_type_of_the_field() -> None:
    words = [
        "--name",
        "007",
        "--seed",
        "7",
        "--evaluation.budgets",
        "1,2.5",
        "--data.limit",
        "null",
        "--algorithm.lr",
        "1e-4",
        "--model.lora.rank",
        "8",
        "--model.random_weights",
        "--optimizer.betas",
        "[.8, .9]",
        "--sampling.stop",
        "a,b",
        "--data.reference=null",
    ]
    s = compose("ppo", overrides=words)
    assert (s.name, s.seed, s.evaluation.budgets, s.data.limit) == ("007", 7, [1.0, 2.5], None)
    assert s.algorithm["lr"] == 1e-4 and s.model.lora.rank == 8 and s.model.lora.alpha == 32.0
    assert s.model.random_weights is True and s.optimizer.betas == (0.8, 0.9)
    assert s.sampling.stop == ["a", "b"] and s.data.reference is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("length", ("length", None)),
        ("file.py:score", ("function", "file.py:score")),
        ("trl.rewards.think_format_reward", ("function", "trl.rewards.think_format_reward")),
        ("me/my-classifier", ("classifier", "me/my-classifier")),
    ],
)
def test_short_forms(text: str, expected: tuple[str, str | None]) -> None:
    s = compose("ppo", overrides=["--model", "gpt2", "--data", "x.jsonl", "--reward", text])
    assert s.model.path == "gpt2" and s.data.path == "x.jsonl"
    part = s.rewards["reward"]
    assert (part["kind"], part.get("function") or part.get("path")) == expected


def test_a_folder_is_a_classifier(tmp_path) -> None:
    s = compose("ppo", overrides=["--reward", str(tmp_path)])
    assert s.rewards["reward"]["kind"] == "classifier"


def test_split() -> None:
    assert split(["--a.b=1", "--c-d", "-1", "--e"]) == [("a.b", "1"), ("c_d", "-1"), ("e", "true")]
    assert split(["--tethers.my-kl.coef", "1"]) == [("tethers.my-kl.coef", "1")]


def test_files_lie_between_recipe_and_overrides(tmp_path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("updates: 7\nseed: 5\nalgorithm: {lr: 1e-3}\n")
    s = compose("ppo", [file], ["--seed", "9"])
    assert (s.updates, s.seed, s.algorithm["lr"], s.algorithm["epochs"]) == (7, 9, 1e-3, 4)


def test_a_run_is_called_after_recipe_and_seed() -> None:
    assert compose("ppo-kl", overrides=["--seed", "3"]).name == "ppo-kl-seed3"
    assert compose("ppo-kl", overrides=["--name", "x"]).name == "x"


def test_python_lists_of_tethers() -> None:
    tethers = normalised({"tethers": [{"kind": "kl"}, {"kind": "kl", "coef": 0.2}]})["tethers"]
    assert list(tethers) == ["kl", "kl_2"] and tethers["kl_2"]["coef"] == 0.2


def test_overrides_do_not_write_the_mapping() -> None:
    low = {"tethers": {"kl": {"kind": "kl", "coef": 0.1}}}
    apply_overrides(low, ["--tethers.kl.coef", "9"])
    assert low == {"tethers": {"kl": {"kind": "kl", "coef": 0.1}}}


def test_index_into_a_list() -> None:
    any_of = {"kind": "any_of", "triggers": [{"kind": "every", "n": 2}, {"kind": "every", "n": 3}]}
    low = {"tethers": {"elastic_reset": {"reset": any_of}}}
    out = apply_overrides(low, ["--tethers.elastic_reset.reset.triggers.1.n", "5"])
    assert [t["n"] for t in out["tethers"]["elastic_reset"]["reset"]["triggers"]] == [2, 5]
    with pytest.raises(UserError, match=r"triggers.7.*there are only 2 entries"):
        apply_overrides(low, ["--tethers.elastic_reset.reset.triggers.7.n", "5"])


def test_a_section_that_was_emptied_takes_keys_again() -> None:
    """`--rewards null --reward X` and its like: the section is empty, not broken."""
    words = ["--rewards", "null", "--reward", "length", "--tethers", "null"]
    found = apply_overrides({"rewards": {"a": {"kind": "length"}}}, words)
    assert found["rewards"] == {"reward": {"kind": "length"}}
    found = apply_overrides({}, ["--tethers", "null", "--tethers.kl.kind", "kl"])
    assert found["tethers"]["kl"]["kind"] == "kl"
