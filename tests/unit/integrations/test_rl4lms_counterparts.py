"""Rewards, tasks and judges that an import writes, by hand, and what has no counterpart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.integrations.rl4lms_shapes import (
    SHAPES,
    changed,
    imported,
    notes,
    runnable,
)
from tether.config.catalog import load
from tether.config.checks import check_complete
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.parts import build
from tether.config.settings import parse
from tether.integrations import rl4lms_schema as schema
from tether.integrations.rl4lms_rewards import REWARDS
from tether.integrations.rl4lms_yaml import Imported

METEOR = {"kind": "metric", "metric": {"kind": "meteor"}, "references": "references"}
PENALTY = {"kind": "repeat_penalty"}
INTENT = {
    "kind": "metric",
    "metric": {
        "kind": "intent_accuracy",
        "classifier": {"path": "rajkumarrrk/roberta-daily-dialog-intent-classifier"},
    },
    "references": "references",
}
TASKS = {
    "imdb": "imdb", "commongen": "commongen", "cnn": "cnn_dailymail", "totto": "totto",
    "iwslt": "iwslt17", "narrqa": "narrativeqa", "dialog": "dailydialog",
}  # fmt: skip
TOYS = ("numbers", "dates")


def expected_rewards(name: str) -> dict[str, Any]:
    """By hand, from the table of published configurations (facts: section 5)."""
    ter = {"kind": "metric", "metric": {"kind": "ter"}, "references": "references"}
    rouge = {"kind": "rouge_1", "several": "first"}
    intent, overlap = (0.5, 0.5) if "_on_" in name else (0.75, 0.25)
    task = name.split("_")[0]
    if name == "cnn_ppo":
        return {"rouge_1": {**METEOR, "metric": rouge}}
    if name == "commongen_ppo_on_supervised":
        liked = {"kind": "classifier", "path": "", "output": "probability"}
        preference = {
            "kind": "concept_preference", "preference": liked,
            "references": "references", "concepts": "concepts", "meteor_coef": 0.0,
        }  # fmt: skip
        return {"preference": preference}
    return {
        "commongen": {"meteor": METEOR, "repeat_penalty": PENALTY},
        "cnn": {"meteor": METEOR},
        "totto": {"meteor": METEOR},
        "iwslt": {"ter": ter},
        "narrqa": {"rouge_l_max": {**METEOR, "metric": {"kind": "rouge_l_max"}}},
        "dialog": {
            "intent": {**INTENT, "weight": intent}, "meteor": {**METEOR, "weight": overlap},
        },
    }[task]  # fmt: skip


REINFORCED = [n for n in SHAPES if not n.endswith("_supervised") or "_on_" in n]


@pytest.mark.parametrize("name", REINFORCED)
def test_rewards_and_tasks(name: str) -> None:
    """What has a counterpart becomes it, what has none is named."""
    config = runnable(SHAPES[name])
    found = imported(config)
    n, settings, task = notes(found), parse(found.settings), name.split("_")[0]
    if task in TOYS:
        assert n["reward_fn.id"].status == "none" and "nearest" in n["reward_fn.id"].why
        assert found.settings["rewards"] == {}
        assert f"reward_fn.id {config['reward_fn']['id']} has no counterpart" in found.yaml
        with pytest.raises(UserError, match=r"no reward|no data"):
            check_complete(settings)
    else:
        check_complete(settings)
        assert n["reward_fn.id"].status in ("carried", "changed")
        assert found.settings["data"]["task"]["kind"] == TASKS[task]
        assert settings.data.path == load("task", TASKS[task]).hub
        if task != "imdb":
            assert found.settings["rewards"] == expected_rewards(name)
    evaluation = config["train_evaluation"].get("generation_kwargs") or {}
    if "num_beams" in evaluation:
        assert n["train_evaluation.generation_kwargs.num_beams"].status == "none"
        assert settings.evaluation.sampling is not None and settings.evaluation.sampling.greedy


@pytest.mark.parametrize("name", SHAPES)
def test_a_task_proposes_nothing_for_an_import(name: str) -> None:
    """What RL4LMs left open is what RL4LMs did, not what the task is used with here."""
    found = imported(runnable(SHAPES[name]))
    settings = {**found.settings, "name": "same"}
    assert compose(values=settings) == parse(settings)
    assert "rewards" in settings
    if SHAPES[name]["alg"]["id"] == "supervised":
        assert settings["rewards"] == {}
        assert settings["data"]["task"]["one_row_a_reference"] is True


def test_settings_of_a_task_by_hand() -> None:
    """Arguments of the pool, and RL4LMs' own defaults where they are not given."""
    task = imported(SHAPES["commongen_ppo"]).settings["data"]["task"]
    want = {"kind": "commongen", "prefix": "generate: ", "separator": " ", "end": "."}
    assert task == want
    bare = imported(changed(SHAPES["commongen_ppo"], "datapool.args", {}))
    assert bare.settings["data"]["task"] == {**want, "prefix": "summarize: ", "end": " "}
    assert not notes(bare)["datapool.args.prefix"].given
    dialog = imported(SHAPES["dialog_ppo"]).settings["data"]
    assert dialog["task"] == {"kind": "dailydialog", "context_size": 5, "end": "<EOU>"}
    assert (dialog["max_prompt_tokens"], dialog["too_long"]) == (128, "truncate_left")
    s = parse(imported(SHAPES["dialog_ppo"]).settings)
    assert (s.sampling.max_new_tokens, s.sampling.min_new_tokens, s.sampling.top_k) == (20, 2, 20)
    plain = imported(changed(SHAPES["iwslt_ppo"], "datapool.args", {})).settings["data"]["task"]
    assert plain == {"kind": "iwslt17", "prefix": "", "suffix": ""}
    # the task would decode greedily: this configuration says nothing, so as in training
    key = "train_evaluation.generation_kwargs"
    silent = parse(imported(changed(SHAPES["iwslt_ppo"], key, ...)).settings)
    assert silent.evaluation.sampling is None and silent.sampling.top_k == 10
    shorter = changed(SHAPES["imdb_ppo"], "alg.policy.args.generation_kwargs.min_length", ...)
    assert parse(imported(shorter).settings).sampling.min_new_tokens == 0
    first = imported(changed(SHAPES["cnn_ppo"], "datapool.args.max_size", 500))
    assert first.settings["data"]["limit"] == 500
    assert notes(first)["datapool.args.max_size"].status == "changed"
    cut = imported(changed(SHAPES["cnn_ppo"], "datapool.args.truncate_article", 500))
    assert notes(cut)["datapool.args.truncate_article"].status == "none"


WMT = {"wmt_id": "wmt16", "source_language": "en", "target_language": "de"}


@pytest.mark.parametrize(
    ("pool", "args", "task"),
    [
        ("wmt16", WMT, "wmt16"),
        ("wmt16", {**WMT, "target_language": "ro"}, ""),
        ("wmt16", {**WMT, "wmt_id": "wmt14"}, ""),
        ("wmt14_processed_en_de", {}, ""),
        ("wmt16newsonly", {}, ""),
        ("crd3", {"max_context_size": 3}, ""),
        ("totto", {"representation": "fulltable"}, ""),
        ("totto", {}, "totto"),
    ],
    ids=str,
)
def test_pools(pool: str, args: dict[str, Any], task: str) -> None:
    config = changed(SHAPES["iwslt_ppo"], "datapool", {"id": pool, "args": args})
    found = imported(config)
    data, n = found.settings["data"], notes(found)["datapool.id"]
    if task:
        assert data["task"]["kind"] == task and n.status in ("carried", "changed")
    else:
        assert "task" not in data and n.status == "none" and "write the pool to a file" in n.why
        assert (data["path"], data["prompt"], data["reference"]) == ("", "prompt", "reference")
        assert found.settings["rewards"]["ter"]["references"] == "reference"


def with_reward(name: str, **args: Any) -> Imported:
    return imported(changed(SHAPES["cnn_ppo"], "reward_fn", {"id": name, "args": args}))


def part(kind: str, **settings: Any) -> dict[str, Any]:
    return {**METEOR, "metric": {"kind": kind, **settings}}


THIRD = {"weight": 1 / 3}


@pytest.mark.parametrize(
    ("name", "args", "want", "status"),
    [
        ("meteor", {}, {"meteor": METEOR}, "carried"),
        ("rouge", {"rouge_type": "rouge2"}, {"rouge_2": part("rouge_2", several="first")},
         "carried"),
        ("rouge", {"rouge_type": "rougeLsum", "use_single_ref": False},
         {"rouge_lsum": part("rouge_lsum", several="max", split="newline")}, "carried"),
        ("rouge_combined", {},
         {k: {**part(k, several="first"), **THIRD} for k in ("rouge_1", "rouge_2", "rouge_l")},
         "carried"),
        ("bert_score", {"language": "en"},
         {"bert_score": part("bert_score", model="roberta-large", layer=17)}, "carried"),
        ("bert_score", {"language": "de"},
         {"bert_score": part("bert_score", model="bert-base-multilingual-cased", layer=9)},
         "carried"),
        ("bleu", {}, {"bleu": part("bleu", tokens="none")}, "carried"),
        ("bleurt", {"checkpoint": "bleurt-base-512"}, {"bleurt": part("bleurt", model="")},
         "changed"),
        ("sacre_bleu", {"tokenize": "intl", "lowercase": True},
         {"sacre_bleu": part("sacre_bleu", tokens="intl", lowercase=True)}, "changed"),
        ("rouge_l_max", {}, {"rouge_l_max": part("rouge_l_max")}, "changed"),
        ("ter", {}, {"ter": part("ter")}, "carried"),
        ("chrf", {}, {"chrf": part("chrf")}, "carried"),
        ("parent", {}, {"parent": part("parent")}, "carried"),
        ("spider", {"spice_coeff": 0.5, "cider_coeff": 0.25,
                    "shaping_fn": "common_gen_repeat_penalty_batched"},
         {"spice": {**part("spice"), "weight": 0.5},
          "cider_d": {**part("cider_d", frequencies=""), "weight": 0.25},
          "repeat_penalty": PENALTY}, "changed"),
        ("common_gen_repeat_penalty", {}, {"repeat_penalty": PENALTY}, "carried"),
        ("intent_accuracy", {}, {"intent": {**INTENT, "weight": 1.0},
                                 "meteor": {**METEOR, "weight": 1.0}}, "changed"),
        ("intent_accuracy", {"shape": False, "intent_coeff": 2.0},
         {"intent": {**INTENT, "weight": 2.0}}, "carried"),
    ],
    ids=str,
)  # fmt: skip
def test_every_reward(name: str, args: Any, want: dict[str, Any], status: str) -> None:
    found = with_reward(name, **args)
    assert found.settings["rewards"] == want
    n = notes(found)
    assert n["reward_fn.id"].status == status
    assert n["reward_fn.id"].to == ", ".join(f"rewards.{k}" for k in want if k != "repeat_penalty"
                                             or name.startswith("common_gen"))  # fmt: skip
    for argument in args:
        assert f"reward_fn.args.{argument}" in n
    for reward in parse(found.settings).rewards.values():
        build("reward", reward, "rewards")  # its class takes these settings


def test_a_reward_for_each_id() -> None:
    """Nothing of RL4LMs' list is left without a word."""
    assert {*REWARDS, "learned_reward", "increasing_numbers", "sentences_with_dates"} == {
        *schema.REWARDS
    }
    for name in schema.METRICS:
        config = changed(SHAPES["cnn_ppo"], "train_evaluation.metrics", [{"id": name, "args": {
            "model_name": "a/b", "label_ix": 1}}])  # fmt: skip
        n = notes(imported(config))["train_evaluation.metrics.0.id"]
        assert n.status == "carried" or n.why, name


def test_odd_shaping_and_arguments_are_named() -> None:
    n = notes(with_reward("meteor", shaping_fn="rouge"))["reward_fn.args.shaping_fn"]
    assert n.status == "none" and "one more entry of rewards" in n.why
    with pytest.raises(UserError, match=r"^old.yml: reward_fn.args.rouge_type is 'rouge9'"):
        with_reward("rouge", rouge_type="rouge9")
    n = notes(with_reward("sacre_bleu", smooth_method="floor"))
    assert n["reward_fn.args.smooth_method"].status == "none"


def test_metrics_judge_evaluations() -> None:
    found = imported(SHAPES["iwslt_ppo"])
    judges, n = found.settings["judges"], notes(found)
    assert judges == {"meteor": METEOR, "sacre_bleu": part("sacre_bleu"), "chrf": part("chrf")}
    # ter is the reward: every evaluation has it
    assert n["train_evaluation.metrics.2.id"].to == "rewards.ter"
    assert n["train_evaluation.metrics.1.id"].status == "changed", "a mean of sentences"
    assert n["train_evaluation.metrics.0.id"].status == "carried"
    assert n["train_evaluation.metrics.4.id"].status == "none", "bert_score needs a package"
    totto = imported(SHAPES["totto_ppo"]).settings["judges"]
    assert totto["parent"] == part("parent") and totto["sacre_bleu"] == part("sacre_bleu")
    for name, value in (("parent_overlap", True), ("parent_non_overlap", False)):
        own = {"where": {"overlap_subset": value}, "missing": "drop"}
        assert totto[name] == {**part("parent"), **own}
    full = changed(SHAPES["totto_ppo"], "datapool.args", {"representation": "fulltable"})
    assert "parent" not in imported(full).settings["judges"], "a file has no tables"
    found = imported(SHAPES["cnn_ppo"])
    kinds = {k: v["metric"] for k, v in found.settings["judges"].items()}
    assert kinds["rouge_lsum"] == {"kind": "rouge_lsum", "several": "first", "split": "newline"}
    assert "rouge_1" not in kinds and "meteor" in kinds
