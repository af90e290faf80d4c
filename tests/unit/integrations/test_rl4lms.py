"""Import of RL4LMs configurations: all published shapes, numbers by hand, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.integrations.rl4lms_shapes import (
    IMDB,
    SHAPES,
    changed,
    imported,
    notes,
    rl,
    runnable,
)
from tether.config.catalog import CATALOG
from tether.config.errors import UserError
from tether.config.settings import dump, parse, read
from tether.config.text_values import parse_yaml
from tether.integrations.rl4lms_draft import leaves, lookup
from tether.integrations.rl4lms_units import fitting, nearest_whole, rollout, supervised_updates
from tether.integrations.rl4lms_yaml import convert, import_file


def test_there_are_44() -> None:
    assert len(SHAPES) == 44
    by_alg = [c["alg"]["id"] for c in SHAPES.values()]
    counts = {a: by_alg.count(a) for a in sorted(set(by_alg))}
    assert counts == {"a2c": 2, "nlpo": 16, "ppo": 19, "supervised": 6, "trpo": 1}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("as_", ["released", "published"])
def test_every_shape(name: str, as_: str) -> None:
    """It imports, parses, says something of every key once, and reads back from its text."""
    config = runnable(SHAPES[name])
    found = imported(config, as_=as_)
    settings = parse(found.settings)
    text = parse_yaml(found.yaml, "the text")
    assert text == found.settings
    assert dump(parse(text)) == dump(settings)
    keys = [n.key for n in found.notes]
    assert len(keys) == len(set(keys)), "a key is reported twice"
    assert set(leaves(config)) <= set(keys)
    for n in found.notes:
        assert n.why != "not read by the importer"
        assert n.status in ("carried",) or n.why, f"{n.key}: no reason"
        assert n.given == (n.key in set(leaves(config)) or lookup(config, n.key) is not None)
        assert n.key in found.report
    assert settings.algorithm["kind"] in CATALOG["algorithm"]


# ---- numbers by hand


def test_imdb_ppo_by_hand() -> None:
    """50 iterations of 10 x 128 = 1280 tokens; completions of exactly 48: 26.67, so 27 prompts
    (1296 tokens). Minibatches of 64 tokens: whole completions of 48, so one each: 27 an epoch."""
    s = parse(imported(SHAPES["imdb_ppo"]).settings)
    assert (s.updates, s.batch.prompts, s.seed) == (50, 27, 0)
    a = s.algorithm
    assert a["kind"] == "ppo" and a["lr"] == 1e-6
    assert (a["epochs"], a["minibatches"], a["group_size"]) == (5, 27, 1)
    assert (a["gamma"], a["gae_lambda"], a["clip_range"], a["ent_coef"]) == (0.99, 0.95, 0.2, 0.0)
    assert a["vf_coef"] == 1.0  # .5 of the whole squared error = 1.0 of half of it
    assert a["clip_range_value"] is None and a["target_kl"] is None
    assert a["normalize_advantages"] is True and a["average"] == "tokens"
    assert (s.sampling.max_new_tokens, s.sampling.min_new_tokens) == (48, 48)
    assert (s.sampling.top_k, s.sampling.scored) == (50, "full")
    kl = s.tethers["kl"]
    assert (kl["kind"], kl["coef"], kl["estimator"], kl["reference"]) == (
        "kl", 0.1, "k1", "initial",
    )  # fmt: skip
    assert kl["controller"] == {"kind": "rl4lms", "target": 0.1}
    assert set(s.tethers) == {"kl"}
    assert (s.optimizer.weight_decay, s.optimizer.max_grad_norm) == (1e-6, 0.5)
    assert (s.data.path, s.data.text, s.data.max_prompt_tokens) == ("stanfordnlp/imdb", None, 64)
    assert (s.data.too_long, s.data.validation_rows, s.data.seed) == ("truncate_left", 5000, 42)
    assert s.data.task is not None and (s.data.task["kind"], s.data.task["share"]) == ("imdb", 0.5)
    assert s.data.task["positive_only"] is False
    assert (s.evaluation.every, s.evaluation.prompts, s.checkpoint.every) == (10, 5000, 20)
    reward = s.rewards["learned_reward"]
    assert (reward["kind"], reward["path"], reward["label"], reward["reads"]) == (
        "classifier", "lvwerra/distilbert-imdb", 1, "prompt_and_completion",
    )  # fmt: skip


def test_imdb_nlpo_by_hand() -> None:
    """Released: the mask stays the initial policy's, .9, at least 100 tokens, then the 50
    likeliest; scored as sampled. Published: refreshed every 5 updates."""
    released = imported(SHAPES["imdb_nlpo"])
    s = parse(released.settings)
    mask = s.tethers["nlpo_mask"]
    assert (mask["mask"], mask["top_p"], mask["top_k"], mask["floor"]) == ("initial", 0.9, 0, 100)
    assert (s.sampling.top_k, s.sampling.scored) == (50, "sampled")
    key = "alg.policy.args.target_update_iterations"
    n = notes(released)[key]
    assert n.status == "ignored" and "--as published" in n.why and n.value == 5
    assert s.algorithm["kind"] == "ppo" and s.batch.prompts == 27
    published = imported(SHAPES["imdb_nlpo"], as_="published")
    mask = parse(published.settings).tethers["nlpo_mask"]
    assert mask["mask"] == "copy"
    assert mask["refresh"] == {"kind": "every", "n": 5, "unit": "update", "start": None}
    assert notes(published)[key].status == "changed"
    beyond = changed(SHAPES["imdb_nlpo"], key, 51)
    assert (
        parse(imported(beyond, as_="published").settings).tethers["nlpo_mask"]["mask"] == "initial"
    )


@pytest.mark.parametrize(
    ("tokens", "horizon", "step", "prompts", "minibatches"),
    [
        (1280, 48, 64, 27, 27),  # imdb: 26.67 completions; 48 is the nearest step to 64
        (5120, 128, 64, 40, 40),  # iwslt: exactly 40 completions, each longer than a minibatch
        (5120, 100, 64, 51, 51),  # cnn: 51.2
        (2560, 50, 64, 51, 51),  # totto: 51.2, steps of 50
        (20, 20, 128, 1, 1),  # toys
        (96, 48, 96, 2, 1),
        (640, 10, 20, 64, 32),  # all exact: 64 completions, two a step
    ],
)
def test_units(tokens: int, horizon: int, step: int, prompts: int, minibatches: int) -> None:
    r = rollout(tokens, horizon, step)
    assert (r.prompts, r.minibatches) == (prompts, minibatches)
    assert r.prompts % r.minibatches == 0


def test_no_pair_is_nearer() -> None:
    """Against every pair with up to twice the prompts, by the measure that the page states."""
    import math

    def cost(p: int, m: int, t: int, h: int, b: int) -> float:
        return abs(math.log(p * h / t)) + abs(math.log(p * h / m / b))

    for t, h, b in [(1280, 48, 64), (2560, 20, 64), (1000, 30, 100), (700, 9, 50), (5, 48, 64)]:
        r = rollout(t, h, b)
        most = max(2, 2 * t // h)
        best = min(
            cost(p, m, t, h, b) for p in range(1, most) for m in range(1, p + 1) if p % m == 0
        )
        assert cost(r.prompts, r.minibatches, t, h, b) == pytest.approx(best)


def test_small_numbers() -> None:
    assert [fitting(12, 10, x) for x in (10, 25, 60, 500)] == [12, 4, 2, 1]
    assert [nearest_whole(x) for x in (0.2, 26.5, 26.49, 3)] == [1, 27, 26, 3]
    assert supervised_updates(1000, 4, 8) == 500
    assert supervised_updates(1001, 2, 8) == 252  # a smaller batch ends every pass


def test_supervised_by_hand() -> None:
    """Half of 20,000 rows are positive: 10,000 in batches of 16, 10 passes: 6,250 optimizer steps,
    4 an update: 1,562.5."""
    s = parse(imported(SHAPES["imdb_supervised"]).settings)
    assert (s.updates, s.batch.prompts, s.algorithm["minibatches"]) == (1563, 64, 4)
    assert s.data.task is not None and s.data.task["positive_only"] is True
    some = changed(SHAPES["imdb_supervised"], "datapool.args.positive_ratio", 0.5)
    assert notes(imported(some))["datapool.args.positive_ratio"].status == "none"
    assert (s.algorithm["lr"], s.optimizer.schedule) == (1e-5, "constant")
    s = parse(imported(SHAPES["commongen_supervised"]).settings)  # 1000 / 8 x 4 = 500 steps
    assert (s.updates, s.batch.prompts, s.optimizer.weight_decay) == (125, 32, 0.01)
    found = imported(SHAPES["commongen_supervised"])
    assert notes(found)["alg.training_args.lr_scheduler_type"].status == "none"
    assert found.settings["optimizer"]["schedule"] == "linear"
    s = parse(imported(SHAPES["totto_supervised"]).settings)
    assert (s.optimizer.schedule, s.optimizer.warmup_steps) == ("constant", 5000)


def test_minimum_length_of_the_two_families() -> None:
    """transformers counts the decoder's start token, so 10 are 9 new ones; RL4LMs adds the prompt
    for causal models, so 2 are 2."""
    found = imported(SHAPES["totto_ppo"])
    assert found.settings["sampling"]["min_new_tokens"] == 9
    key = "alg.policy.args.generation_kwargs.min_length"
    assert notes(found)[key].status == "changed"
    assert imported(SHAPES["dialog_ppo"]).settings["sampling"]["min_new_tokens"] == 2


def test_trpo_and_a2c_by_hand() -> None:
    a = parse(imported(SHAPES["numbers_gpt2_trpo"]).settings).algorithm
    assert (a["lr"], a["target_kl"], a["cg_steps"], a["damping"]) == (1e-6, 0.01, 15, 0.1)
    assert (a["backtracks"], a["shrink"], a["critic_epochs"], a["minibatches"]) == (10, 0.8, 10, 1)
    assert (a["gamma"], a["gae_lambda"], a["normalize_advantages"]) == (0.99, 0.95, True)
    s = parse(imported(runnable(SHAPES["imdb_a2c"])).settings)
    a = s.algorithm
    assert (s.batch.prompts, a["epochs"], a["minibatches"]) == (2, 1, 1)  # 2 x 48 tokens
    assert (a["gae_lambda"], a["vf_coef"], a["normalize_advantages"]) == (1.0, 1.0, False)
    found = notes(imported(runnable(SHAPES["imdb_a2c"])))
    assert found["alg.args.use_rms_prop"].status == "none"


FORK = changed(
    changed(rl("imdb", "ppo", "lvwerra/gpt2-imdb", **{**IMDB, "pool": ("imdb", {})},),
            "alg.id", "emappo"),
    "alg.args.ema_decay", 0.995,
)  # fmt: skip


def fork(alg: str = "emappo", **run: Any) -> dict[str, Any]:
    out = copy.deepcopy(FORK)
    out["alg"]["kl_div"] = {"coeff": 0.001, "target_kl": 1.0}
    out["train_evaluation"] |= run
    if alg == "ppo":
        out["alg"]["id"] = "ppo"
        del out["alg"]["args"]["ema_decay"]
        out["datapool"]["args"] = {"seed": 0}
    return out


EVERY_17 = {"kind": "every", "n": 17, "unit": "update", "start": 1}


def test_elastic_reset_fork() -> None:
    """Resets after iterations 0, 17, 34 = updates 1, 18, 35; KL to the average itself."""
    found = imported(fork(reset_freq=17, reset_ema=True, reset_opt=True, reset_critic=False))
    s = parse(found.settings)
    er = s.tethers["elastic_reset"]
    assert er["reset"] == EVERY_17
    assert er["average"] == {"kind": "every", "n": 1, "unit": "update", "start": None}
    assert (er["decay"], er["optimizer"], er["critic"]) == (0.995, "clear", "keep")
    assert (s.tethers["kl"]["reference"], s.tethers["kl"]["coef"]) == ("ema", 0.001)
    assert s.data.seed == 0
    own = imported(fork(reset_freq=17, reset_ema=True, separate_ema_model=True))
    assert own.settings["tethers"]["kl"]["reference"] == "initial"
    only = parse(imported(fork(reset_freq=17)).settings).tethers
    assert set(only) == {"reset_to_ema", "kl"} and only["reset_to_ema"]["reset"] == EVERY_17
    anchor = parse(imported(fork()).settings).tethers
    assert set(anchor) == {"ema_anchor"} and anchor["ema_anchor"]["coef"] == 0.001
    assert anchor["ema_anchor"]["controller"] == {"kind": "rl4lms", "target": 1.0}
    plain = parse(imported(fork("ppo", reset_freq=17)).settings).tethers
    assert set(plain) == {"reset_to_init", "kl"} and plain["reset_to_init"]["reset"] == EVERY_17
    rarer = notes(imported(fork(reset_freq=20, reset_ema=True, reset_ema_freq=40)))
    assert rarer["train_evaluation.reset_ema_freq"].status == "none"
    idle = imported(fork(separate_ema_model=True))
    assert set(idle.settings["tethers"]) == {"kl"}
    assert notes(idle)["alg.args.ema_decay"].status == "ignored"


def test_odd_values_are_carried_or_named() -> None:
    base = SHAPES["imdb_ppo"]
    n = notes(imported(changed(base, "alg.kl_div.norm_reward", True)))
    assert n["alg.kl_div.norm_reward"].status == "none"
    none = imported(changed(base, "alg.kl_div.coeff", 0))
    assert "tethers" not in none.settings
    fixed = imported(changed(base, "alg.kl_div.target_kl", ...))
    assert "controller" not in fixed.settings["tethers"]["kl"]
    greedy = imported(changed(base, "alg.policy.args.generation_kwargs.do_sample", False))
    assert greedy.settings["algorithm"]["greedy"] is True
    stops = changed(SHAPES["dialog_ppo"], "env.args.terminate_on_eos", False)
    assert notes(imported(stops))["env.args.terminate_on_eos"].status == "none"
    exact = changed(base, "env.args.terminate_on_eos", False)
    assert notes(imported(exact))["env.args.terminate_on_eos"].status == "ignored"
    seed = imported(changed(base, "alg.args.seed", 7))
    assert seed.settings["seed"] == 7
    other = changed(base, "train_evaluation.metrics",
                    [{"id": "learned_reward", "args": {"model_name": "another/one"}}])  # fmt: skip
    judge = imported(other).settings["judges"]["learned_reward"]
    assert judge == {"kind": "classifier", "path": "another/one"}
    foreign = changed(base, "alg.policy.args.generation_kwargs.diversity_penalty", 0.5)
    key = "alg.policy.args.generation_kwargs.diversity_penalty"
    assert notes(imported(foreign))[key].status == "none"
    shorter = changed(SHAPES["dialog_ppo"], "env.args.max_episode_length", 15)
    assert imported(shorter).settings["sampling"]["max_new_tokens"] == 15
    assert notes(imported(shorter))["env.args.max_episode_length"].status == "changed"
    cut = imported(changed(base, "env.args.max_episode_length", 20))
    assert cut.settings["sampling"]["min_new_tokens"] == 20
    side = changed(SHAPES["cnn_ppo"], "alg.policy.args.prompt_truncation_side", "left")
    assert imported(side).settings["data"]["too_long"] == "truncate_right"
    assert notes(imported(side))["alg.policy.args.prompt_truncation_side"].status == "none"
    tokenizer = imported(changed(base, "tokenizer.model_name", "gpt2"))
    assert tokenizer.settings["model"]["tokenizer"] == "gpt2"


# ---- what is refused


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("datapool.args.seed", ..., "datapool.args.seed is missing (the pool imdb shuffles by it"),
        ("alg.kl_div.coeff", ..., "alg.kl_div.coeff is missing"),
        ("alg.id", ..., "alg.id is missing; one of ppo"),
        ("alg.id", 3, "alg.id is 3, it must be text"),
        ("alg.id", "pppo", "alg.id is 'pppo', RL4LMs has no such algorithm; did you mean 'ppo'?"),
        ("alg.id", "nlpo", "alg.policy.id causal_lm_actor_critic_policy does not go with alg.id"),
        ("alg.args.n_step", 3, "unknown key 'alg.args.n_step'; did you mean 'n_steps'?"),
        ("alg.args.n_steps", "many", "alg.args.n_steps is 'many', it must be a whole number"),
        ("alg.args.n_steps", 0, "alg.args.n_steps is 0, it must be at least 1"),
        ("alg.args.batch_size", 0, "alg.args.batch_size is 0, it must be at least 1"),
        ("alg.args.learning_rate", True, "alg.args.learning_rate is True, it must be a number"),
        ("alg.args.ema_decay", 0.9, "unknown key 'alg.args.ema_decay'"),
        ("alg.kl_div.coeff", -1, "alg.kl_div.coeff is -1, it must not be negative"),
        ("alg.kl_div.target_kl", 0, "alg.kl_div.target_kl is 0, it must be greater than 0"),
        ("alg.policy.args.top_mask", 0.9, "unknown key 'alg.policy.args.top_mask'"),
        ("alg.policy.args.generation_kwargs.min_lenght", 3, "did you mean 'min_length'?"),
        ("reward_fn.id", "metoer", "RL4LMs has no such reward; did you mean 'meteor'?"),
        ("reward_fn.args.label_ix", ..., "reward_fn.args.label_ix is missing"),
        ("reward_fn", {"expand": True, "values": []}, "reward_fn holds a sweep"),
        ("reward_fn", ..., "reward_fn is missing"),
        ("datapool.id", "imbd", "RL4LMs has no such data pool; did you mean 'imdb'?"),
        ("env.args", [1], "env.args is [1], it must be a mapping"),
        ("env.args.prompt_truncation_side", "lefft", "it must be one of left, right; did you mean"),
        ("env.args.max_episode_length", 0, "a completion has 0 tokens"),
        ("train_evaluation.metrics", [{"id": "roug"}], "metrics.0.id is 'roug', RL4LMs has"),
        ("train_evaluation.metrics", ["rouge"], "metrics.0 is 'rouge', it must be a mapping"),
        ("train_evaluation.seed", 3, None),
        ("tokenizer", ..., "tokenizer is missing"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_their_place(key: str, value: Any, message: str | None) -> None:
    config = changed(SHAPES["imdb_ppo"], key, value)
    if message is None:
        imported(config)
        return
    with pytest.raises(UserError) as e:
        imported(config)
    said = str(e.value)
    assert said.startswith("old.yml: ") and message in said and "\n" not in said


def test_the_published_a2c_is_broken_and_says_where() -> None:
    with pytest.raises(UserError, match=r"^old.yml: datapool.args.seed is missing .*have 42"):
        imported(SHAPES["imdb_a2c"])


def test_supervised_needs_rows() -> None:
    config = SHAPES["cnn_supervised"]
    with pytest.raises(UserError, match="say how many training rows there are with --rows N"):
        convert(config, "old.yml")
    steps = changed(config, "alg.training_args.max_steps", 100)
    assert convert(steps, "old.yml").settings["updates"] == 25
    with pytest.raises(UserError, match="--rows is for supervised runs"):
        convert(SHAPES["imdb_ppo"], "old.yml", rows=3)
    with pytest.raises(UserError, match="top_mask is missing; RL4LMs' default -1 crashes"):
        imported(changed(SHAPES["imdb_nlpo"], "alg.policy.args.top_mask", ...))
    two = changed(changed(SHAPES["imdb_ppo"], "alg.args.seed", 1), "train_evaluation.seed", 2)
    with pytest.raises(UserError, match=r"alg.args.seed and train_evaluation.seed differ"):
        imported(two)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "must hold a mapping"),
        ("hello", "must hold a mapping"),
        ("", "tokenizer is missing"),
        ("alg: {id: ppo}\nalg: {id: nlpo}\n", "line 2, column 1: not valid YAML: the key 'alg'"),
        ("alg:\n\tid: ppo\n", "line 2, column 1: not valid YAML"),
        ("alg: [\n", "not valid YAML"),
    ],
)
def test_broken_files(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "old.yml"
    file.write_text(text)
    with pytest.raises(UserError) as e:
        import_file(file, tmp_path / "out.yaml")
    assert message in str(e.value) and "\n" not in str(e.value)
    with pytest.raises(UserError, match="there is no configuration file"):
        import_file(tmp_path / "none.yml", tmp_path / "out.yaml")


def test_the_toy_writes_its_prompts(tmp_path: Path) -> None:
    file = tmp_path / "old.yml"
    file.write_text(yaml.safe_dump(SHAPES["numbers_gpt2_ppo"]))
    found = import_file(file, tmp_path / "deep" / "toy.yaml")
    assert set(found.files) == {"toy.prompts.jsonl"}
    rows = [json.loads(x) for x in found.files["toy.prompts.jsonl"].splitlines()]
    assert rows == [{"prompt": "<|endoftext|>"}] * 50
    assert found.settings["data"]["path"] == str(tmp_path / "deep" / "toy.prompts.jsonl")
    (tmp_path / "toy.yaml").write_text(found.yaml)
    assert dump(read(tmp_path / "toy.yaml")) == dump(parse(found.settings))
