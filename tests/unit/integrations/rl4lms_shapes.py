"""The shapes of the 44 published RL4LMs configurations, from their tables of hyper-parameters.

Written for these tests in RL4LMs' schema: tasks x algorithms x models, with the numbers of the
published files (allenai/RL4LMs@97df0bd), not their text.
"""

from __future__ import annotations

import copy
from typing import Any

from tether.integrations.rl4lms_yaml import Imported, convert

Config = dict[str, Any]


def rl(
    task: str,
    alg: str,
    model: str,
    *,
    pool: tuple[str, Config],
    reward: tuple[str, Config],
    lengths: tuple[int, int],
    side: str = "left",
    n_steps: int = 128,
    n_iters: int = 50,
    lr: float = 1e-6,
    kl: tuple[float, float] = (0.1, 0.1),
    rollout: Config,
    mask: tuple[float, int] = (0.9, 20),
    evaluation: Config | None = None,
    ent: float | None = None,
    n_envs: int = 10,
    metrics: tuple[str, ...] = (),
) -> Config:
    seq2seq = any(word in model for word in ("t5", "bart", "blenderbot"))
    family = "seq2seq" if seq2seq else "causal"
    masked = "maskable_" if alg == "nlpo" else ""
    prompt, new = lengths
    env: Config = {
        "max_prompt_length": prompt,
        "max_episode_length": new,
        "terminate_on_eos": True,
    }
    policy: Config = {"model_name": model, "apply_model_parallel": True}
    if side == "right":
        env["prompt_truncation_side"] = policy["prompt_truncation_side"] = "right"
    if seq2seq:
        env["context_start_token"] = 0
    policy["generation_kwargs"] = {"do_sample": True, "max_new_tokens": new, **rollout}
    if alg == "nlpo":
        policy |= {
            "top_mask": mask[0],
            "mask_type": "learned_top_p",
            "target_update_iterations": mask[1],
        }
    args: Config = {"n_steps": n_steps, "verbose": 1, "learning_rate": lr}
    if alg in ("ppo", "nlpo"):
        args |= {"batch_size": 64, "n_epochs": 5}
    if ent is not None:
        args["ent_coef"] = ent
    out: Config = {
        "tokenizer": {
            "model_name": model,
            "padding_side": "left",
            "truncation_side": "left",
            "pad_token_as_eos_token": not seq2seq,
        },
        "reward_fn": {"id": reward[0], "args": reward[1]},
        "datapool": {"id": pool[0], "args": pool[1]},
        "env": {"n_envs": n_envs, "args": env},
        "alg": {
            "id": alg,
            "args": args,
            "kl_div": {"coeff": kl[0], "target_kl": kl[1]},
            "policy": {"id": f"{masked}{family}_lm_actor_critic_policy", "args": policy},
        },
        "train_evaluation": {
            "eval_batch_size": 100,
            "n_iters": n_iters,
            "eval_every": 10,
            "save_every": 20,
            "metrics": [{"id": m, "args": {}} for m in metrics],
        },
    }
    if evaluation is not None:
        out["train_evaluation"]["generation_kwargs"] = {"max_new_tokens": new, **evaluation}
    return copy.deepcopy(out)


def supervised(
    task: str,
    model: str,
    *,
    pool: tuple[str, Config],
    batch: int,
    epochs: int,
    lr: float,
    schedule: str,
    new: int,
    generation: Config,
    decay: float | None = None,
    warmup: int | None = None,
    metrics: tuple[str, ...] = (),
) -> Config:
    seq2seq = "t5" in model
    args: Config = {
        "per_device_train_batch_size": batch,
        "logging_steps": 1000,
        "num_train_epochs": epochs,
        "lr_scheduler_type": schedule,
        "learning_rate": lr,
        "save_total_limit": 1,
    }
    if decay is not None:
        args["weight_decay"] = decay
    if warmup is not None:
        args["warmup_steps"] = warmup
    out: Config = {
        "tokenizer": {
            "model_name": model,
            "padding_side": "left",
            "truncation_side": "left",
            "pad_token_as_eos_token": not seq2seq,
            "max_length": 64,
        },
        "datapool": {"id": pool[0], "args": pool[1]},
        "alg": {
            "id": "supervised",
            "training_args": args,
            "model_type": "seq2seq" if seq2seq else "causal",
            "model_name": model,
            "generation_kwargs": {"max_new_tokens": new, "post_processing_fn": None, **generation},
        },
        "train_evaluation": {
            "eval_batch_size": 100,
            "metrics": [{"id": m, "args": {}} for m in metrics],
        },
    }
    return copy.deepcopy(out)


IMDB: Config = {
    "pool": ("imdb", {"seed": 42}),
    "reward": (
        "learned_reward",
        {"model_name": "lvwerra/distilbert-imdb", "label_ix": 1, "include_prompt_for_eval": True},
    ),
    "lengths": (64, 48),
    "rollout": {"min_length": 48},
    "mask": (0.9, 5),
    "metrics": ("causal_perplexity", "diversity"),
}
COMMONGEN: Config = {
    "pool": (
        "commongen",
        {"concept_separator_token": " ", "concept_end_token": ".", "prefix": "generate: "},
    ),
    "reward": ("meteor", {"shaping_fn": "common_gen_repeat_penalty"}),
    "lengths": (20, 20),
    "side": "right",
    "lr": 2e-6,
    "n_iters": 100,
    "kl": (0.001, 2.0),
    "evaluation": {"num_beams": 5, "min_length": 5},
    "metrics": ("meteor", "rouge", "bleu", "bert_score", "cider", "spice", "diversity"),
}
CNN: Config = {
    "pool": ("cnn_daily_mail", {"prompt_prefix": "Summarize: "}),
    "reward": ("meteor", {}),
    "lengths": (512, 100),
    "side": "right",
    "n_steps": 512,
    "n_iters": 100,
    "lr": 2e-6,
    "kl": (0.001, 0.2),
    "rollout": {"top_k": 100, "min_length": 50},
    "evaluation": {"do_sample": True, "top_k": 0, "temperature": 0.7, "min_length": 50},
    "metrics": ("meteor", "rouge", "bleurt", "summaCZS", "summaCConv", "diversity"),
}
TOTTO: Config = {
    "pool": ("totto", {"representation": "subtable"}),
    "reward": ("meteor", {}),
    "lengths": (512, 50),
    "n_steps": 256,
    "n_iters": 100,
    "lr": 2e-6,
    "kl": (0.001, 2.0),
    "rollout": {"top_k": 0, "min_length": 10},
    "evaluation": {"num_beams": 5, "min_length": 10},
    "metrics": ("parent_totto", "bleu_totto", "rouge_l_max", "diversity"),
}
IWSLT: Config = {
    "pool": ("iwslt2017en_de", {"prompt_prefix": "translate English to German: "}),
    "reward": ("ter", {}),
    "lengths": (128, 128),
    "side": "right",
    "n_steps": 512,
    "kl": (0.001, 0.2),
    "rollout": {"top_k": 10},
    "mask": (0.5, 20),
    "evaluation": {"num_beams": 4, "length_penalty": 0.6},
    "metrics": ("meteor", "sacre_bleu", "ter", "chrf", "bert_score"),
}
NARRQA: Config = {
    "pool": ("narrative_qa", {}),
    "reward": ("rouge_l_max", {}),
    "lengths": (512, 50),
    "side": "right",
    "n_steps": 256,
    "n_iters": 100,
    "lr": 2e-6,
    "kl": (0.001, 1.0),
    "rollout": {"top_k": 50},
    "evaluation": {"num_beams": 4},
    "metrics": ("rouge_l_max", "meteor"),
}
DIALOG: Config = {
    "pool": ("daily_dialog", {"context_size": 5}),
    "reward": ("intent_accuracy", {"shape": True, "intent_coeff": 0.75, "auto_coeff": 0.25}),
    "lengths": (128, 20),
    "kl": (0.2, 0.5),
    "rollout": {"top_k": 20, "min_length": 2},
    "evaluation": {"do_sample": True, "top_k": 20, "min_length": 2},
    "metrics": ("intent_accuracy", "causal_perplexity", "diversity", "meteor", "sacre_bleu"),
}
NUMBERS: Config = {
    "pool": ("dummy_pool", {"n_samples": 50, "prompt": "<|endoftext|>"}),
    "reward": ("increasing_numbers", {"min_tokens": 20}),
    "lengths": (5, 20),
    "n_iters": 100,
    "kl": (0.02, 2.0),
    "rollout": {},
    "metrics": ("increasing_numbers",),
}


def shapes() -> dict[str, Config]:
    """Name -> configuration: 44 of them."""
    gpt2, t5 = "lvwerra/gpt2-imdb", "t5-base"
    warm = "rajkumarrrk/"
    out: dict[str, Config] = {}
    for alg in ("ppo", "nlpo"):
        out[f"imdb_{alg}"] = rl("imdb", alg, gpt2, **IMDB)
        on = {**IMDB, "kl": (0.1, 0.1)}
        model = f"{warm}gpt2-fine-tuned-on-imdb-positive-reviews"
        out[f"imdb_{alg}_on_supervised"] = rl("imdb", alg, model, **on)
    out["imdb_a2c"] = rl(
        "imdb", "a2c", gpt2, **{**IMDB, "pool": ("imdb", {})},
        n_steps=48, n_envs=2, n_iters=100,
    )  # fmt: skip
    out["imdb_supervised"] = supervised(
        "imdb", "gpt2", pool=("imdb_seq2seq", {"positive_ratio": 1.0}), batch=16, epochs=10,
        lr=1e-5, schedule="constant", new=48, generation={"do_sample": True, "min_length": 48},
    )  # fmt: skip
    out["commongen_ppo"] = rl("cg", "ppo", t5, **{**COMMONGEN, "n_iters": 200}, n_steps=256,
                              ent=0.01, rollout={"top_k": 0, "min_length": 5})  # fmt: skip
    out["commongen_nlpo"] = rl(
        "cg", "nlpo", t5,
        **{**COMMONGEN, "lengths": (15, 20), "evaluation": {"do_sample": True, "top_k": 50}},
        rollout={"top_k": 50, "min_length": 10},
    )  # fmt: skip
    model = f"{warm}t5-common-gen"
    preference = ("common_gen_preference_model", {"model_type": "t5-11b", "meteor_coeff": 0.0})
    out["commongen_ppo_on_supervised"] = rl(
        "cg", "ppo", model, **{**COMMONGEN, "kl": (0.01, 1.0), "reward": preference}, ent=0.01,
        rollout={"top_k": 50, "min_length": 5},
    )  # fmt: skip
    out["commongen_nlpo_on_supervised"] = rl(
        "cg", "nlpo", model, **{**COMMONGEN, "kl": (0.01, 1.0)}, ent=0.01, rollout={"top_k": 50}
    )
    out["commongen_supervised"] = supervised(
        "cg", t5, pool=COMMONGEN["pool"], batch=8, epochs=4, lr=1e-5, schedule="cosine", new=20,
        generation={"num_beams": 5, "min_length": 5}, decay=0.01, metrics=("meteor",),
    )  # fmt: skip
    for alg in ("ppo", "nlpo"):
        change = {"reward": ("rouge", {"rouge_type": "rouge1"})} if alg == "ppo" else {}
        change |= {"rollout": {"top_k": 50, "min_length": 50}} if alg == "ppo" else {}
        out[f"cnn_{alg}"] = rl("cnn", alg, t5, **{**CNN, **change})
        out[f"cnn_{alg}_on_supervised"] = rl(
            "cnn", alg, f"{warm}t5-base-fine-tuned-on-cnn-dm",
            **{**CNN, "kl": (0.01, 0.2), "n_iters": 50, "mask": (0.9, 30)},
        )  # fmt: skip
        out[f"totto_{alg}"] = rl("totto", alg, t5, **TOTTO)
        top_k = 50 if alg == "ppo" else 0
        out[f"totto_{alg}_on_supervised"] = rl(
            "totto", alg, f"{warm}t5-base-fine-tuned-on-totto",
            **{**TOTTO, "kl": (0.01, 0.2), "lr": 5e-7, "rollout": {"top_k": top_k}},
        )  # fmt: skip
        out[f"iwslt_{alg}"] = rl("iwslt", alg, t5, **IWSLT)
        out[f"iwslt_{alg}_on_supervised"] = rl(
            "iwslt", alg, f"{warm}t5-fine-tuned-on-iwslt2017en_de",
            **{**IWSLT, "lr": 5e-7, "rollout": {"top_k": 5 if alg == "ppo" else 10}},
        )  # fmt: skip
        out[f"narrqa_{alg}"] = rl("narrqa", alg, t5, **NARRQA)
        out[f"narrqa_{alg}_on_supervised"] = rl(
            "narrqa", alg, "allenai/unifiedqa-t5-base",
            **{**NARRQA, "lr": 5e-7, "kl": (0.001, 0.2), "n_steps": 512 if alg == "ppo" else 256},
        )  # fmt: skip
        out[f"dialog_{alg}"] = rl(
            "dialog", alg, "gpt2", **{**DIALOG, "n_iters": 50 if alg == "ppo" else 100}
        )
        half = {"intent_coeff": 0.5, "auto_coeff": 0.5}
        out[f"dialog_{alg}_on_supervised"] = rl(
            "dialog", alg, f"{warm}gpt2-fine-tuned-on-daily-dialog",
            **{**DIALOG, "kl": (0.2, 0.05), "reward": ("intent_accuracy", half)},
        )  # fmt: skip
    for task, pool, batch, epochs, lr, schedule, decay, warmup, new in (
        ("cnn", CNN["pool"], 16, 2, 1e-4, "cosine", 0.1, None, 100),
        ("totto", TOTTO["pool"], 8, 5, 1e-4, "constant_with_warmup", 0.1, 5000, 50),
        ("iwslt", IWSLT["pool"], 64, 5, 1e-5, "linear", 0.1, None, 128),
    ):
        out[f"{task}_supervised"] = supervised(
            task, t5, pool=pool, batch=batch, epochs=epochs, lr=lr, schedule=schedule, decay=decay,
            warmup=warmup, new=new, generation={"num_beams": 4},
        )  # fmt: skip
    out["dialog_supervised"] = supervised(
        "dialog", "gpt2", pool=DIALOG["pool"], batch=32, epochs=20, lr=1e-5, schedule="constant",
        new=20, generation={"do_sample": True, "top_k": 20, "min_length": 2},
    )  # fmt: skip
    for alg in ("ppo", "a2c", "trpo", "nlpo"):
        small = {"n_envs": 1, "n_steps": 20} if alg in ("a2c", "trpo") else {}
        out[f"numbers_gpt2_{alg}"] = rl("numbers", alg, "gpt2", **NUMBERS, **small)
    for alg in ("ppo", "nlpo"):
        out[f"numbers_t5_{alg}"] = rl("numbers", alg, t5, **NUMBERS)
    for model in ("facebook/bart-base", "facebook/blenderbot-400M-distill"):
        out[f"numbers_{model.split('/')[1].split('-')[0]}_ppo"] = rl(
            "numbers", "ppo", model, **NUMBERS
        )
    out["dates_gpt2_ppo"] = rl(
        "dates", "ppo", "gpt2",
        **{**NUMBERS, "reward": ("sentences_with_dates", {}), "metrics": ("dates",)},
    )  # fmt: skip
    return out


SHAPES = shapes()
ROWS = 1000


def imported(config: dict[str, Any], **how: Any) -> Imported:
    if (
        config.get("alg", {}).get("id") == "supervised"
        and config["datapool"]["id"] != "imdb_seq2seq"
    ):
        how.setdefault("rows", ROWS)
    return convert(config, "old.yml", **how)


def notes(found: Imported) -> dict[str, Any]:
    return {n.key: n for n in found.notes}


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with one dotted key set; `...` takes it out."""
    out = copy.deepcopy(config)
    *heads, last = key.split(".")
    here = out
    for head in heads:
        here = here[head]
    if value is ...:
        del here[last]
    else:
        here[last] = value
    return out


def runnable(config: dict[str, Any]) -> dict[str, Any]:
    """The one published shape that cannot run as it is has its seed put in."""
    if config["datapool"] == {"id": "imdb", "args": {}}:
        return changed(config, "datapool.args", {"seed": 42})
    return config
