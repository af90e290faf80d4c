"""Data, reward, metrics and evaluation: what a task is made of."""

from __future__ import annotations

import json
from typing import Any

from tether.config.errors import UserError
from tether.integrations.rl4lms_draft import Draft
from tether.integrations.rl4lms_rollout import evaluation_sampling

IMDB = "stanfordnlp/imdb"
IMDB_ROWS, IMDB_TEST = 25_000, 5_000
SPLIT = 0.2
"""Share of IMDB's training reviews that RL4LMs validates on."""
FORK_SEED = 0
"""Of the shuffle in the Elastic Reset fork, which takes none from the configuration."""
BUILT: dict[str, str] = {
    "commongen": "hub gem, common_gen: prefix + concepts + concept_end_token; reference = target",
    "cnn_daily_mail": "hub cnn_dailymail 3.0.0: prompt_prefix + article + prompt_suffix; "
    "reference = highlights",
    "totto": "hub totto: the linearised table, without and with its titles; reference = the "
    "sentence annotations",
    "narrative_qa": "the TSV files of UnifiedQA, lower-cased; reference = the answers",
    "wmt16": "hub wmt16 and kin: prompt_prefix + source + prompt_suffix; reference = target",
    "wmt14_processed_en_de": "hub stas/wmt14-en-de-pre-processed: prefix + en; reference = de",
    "wmt16newsonly": "hub news_commentary and wmt16: prefix + source; reference = target",
    "iwslt2017en_de": "hub iwslt2017: prompt_prefix + en; reference = de",
    "crd3": "the CRD3 archive: max_context_size turns; reference = the next one",
    "daily_dialog": "hub daily_dialog: context_size turns joined by <EOU>; reference = the next",
}
"""Pools that build their prompts: what goes into the file with columns prompt and reference."""
NEAREST: dict[str, str] = {
    "meteor": "a function that calls a METEOR package on the references",
    "rouge": "a function that calls a ROUGE package on the references",
    "rouge_combined": "a function: the mean of ROUGE-1, -2 and -L",
    "rouge_l_max": "a function: the largest ROUGE-L over the references",
    "bert_score": "a function that calls bert_score",
    "bleu": "a function that calls a BLEU package",
    "bleurt": "a function that calls BLEURT",
    "sacre_bleu": "a function that calls sacrebleu, / 100",
    "ter": "a function: 1 - TER / 100 of sacrebleu",
    "chrf": "a function: chrF / 100 of sacrebleu",
    "spider": "a function: spice_coeff * SPICE + cider_coeff * CIDEr",
    "parent": "a function that calls PARENT on the table",
    "increasing_numbers": "a function that counts numbers in order, or kind length or contains",
    "sentences_with_dates": "a function that looks for dates, or kind contains",
    "common_gen_repeat_penalty": "a function: -1 where the concepts are echoed",
    "common_gen_repeat_penalty_batched": "a function: -1 where the concepts are echoed",
    "intent_accuracy": "a classifier reward and a METEOR function, weighted (RL4LMs averaged "
    "METEOR over earlier episodes)",
    "common_gen_preference_model": "a function; availability of the T5-11B checkpoint is unknown",
}


def data(draft: Draft) -> None:
    """`data`."""
    pool = draft.get("datapool.id")
    if pool in ("imdb", "imdb_seq2seq"):
        _imdb(draft, pool)
    elif pool == "dummy_pool":
        _dummy(draft)
    else:
        draft.put("data.path", "", f"to be written: {BUILT[pool]}")
        draft.put("data.prompt", "prompt", "column of that file")
        draft.put("data.reference", "reference", "column of that file")
        why = f"write the pool to a file with columns prompt and reference: {BUILT[pool]}"
        draft.note("datapool.id", "none", "data.path", why)
        draft.rest("datapool.args", "none", "goes into the file's prompts")
    draft.rest("datapool", "ignored", "no arguments")


def _imdb(draft: Draft, pool: str) -> None:
    draft.put("data.path", IMDB, f"datapool.id {pool}")
    draft.put("data.text", "text", "column of whole reviews")
    draft.put("data.label", "label", "column")
    draft.put("data.split", "train")
    held = round(IMDB_ROWS * SPLIT)
    draft.put("data.validation_rows", held, f"datapool.id {pool}: a fifth of {IMDB_ROWS}")
    draft.put("data.test", "test", f"datapool.id {pool}")
    why = (
        "RL4LMs' prompt is the first half of a review's words (cut to max_prompt_length tokens), "
        "here it is the first data.prompt_tokens tokens; for the old prompts write a file with "
        "columns prompt and reference"
    )
    draft.note("datapool.id", "changed", "data", why)
    key = "datapool.args.seed"
    if draft.given(key):
        why = "the same number, another shuffle: other reviews are held out"
        draft.carry(key, "data.seed", status="changed", why=why)
    elif pool == "imdb":
        draft.put("data.seed", FORK_SEED, "the Elastic Reset fork shuffles with seed 0")
        draft.note(key, "changed", "data.seed", "the fork's seed 0, another shuffle", FORK_SEED)
    else:
        draft.put("data.seed", 0, "RL4LMs shuffles this pool without a seed")
    key = "datapool.args.positive_ratio"
    if pool == "imdb_seq2seq":
        why = "all reviews train, not the positive ones only; nearest: a file of those"
        draft.note(key, "none", why=why, value=1.0)


def _dummy(draft: Draft) -> None:
    n, prompt = int(draft.get("datapool.args.n_samples", 100)), draft.get("datapool.args.prompt")
    if n < 1:
        raise UserError(f"{draft.where}: datapool.args.n_samples is {n}, it must be at least 1")
    line = json.dumps({"prompt": prompt}, ensure_ascii=False)
    draft.files["prompts.jsonl"] = f"{line}\n" * n
    draft.put("data.path", "", "datapool.id dummy_pool: the constant prompt, written beside this")
    draft.put("data.validation", "", "the same file, as in RL4LMs")
    draft.note("datapool.id", "carried", "data.path", "a file beside this one")
    draft.note("datapool.args.n_samples", "carried", "data.path", value=100)
    draft.note("datapool.args.prompt", "carried", "data.path")


def prompts(draft: Draft, limit_key: str, side_keys: list[str]) -> None:
    """Length of prompts, and which side of a long one is cut (the first of `side_keys`)."""
    limit = draft.get(limit_key)
    side = draft.get(side_keys[0], "left")
    whole = draft.settings["data"].get("text") is not None
    if whole:
        if limit is not None:
            why = "the prompt's length, not its limit: shorter reviews are dropped and counted"
            draft.carry(limit_key, "data.prompt_tokens", status="changed", why=why)
        draft.note(
            side_keys[0], "none", why="the prompt is a review's first tokens", value=side
        )  # fmt: skip
    else:
        if limit is not None:
            draft.carry(limit_key, "data.max_prompt_tokens")
        draft.carry(side_keys[0], "data.too_long", "left", value=f"truncate_{side}")
    for other in side_keys[1:]:
        if not draft.given(other):
            continue
        if draft.get(other) == side or whole:
            draft.note(other, "ignored", why=f"{side_keys[0]} decides")
        else:
            why = f"{side_keys[0]} decides; this one cut evaluation prompts on the other side"
            draft.note(other, "none", why=why)


def tokenizer(draft: Draft, model: str) -> None:
    """`model.path` and `model.tokenizer`."""
    draft.carry(model, "model.path")
    name = draft.get("tokenizer.model_name")
    if name == draft.get(model):
        draft.note("tokenizer.model_name", "carried", "model.path", "the model's own tokenizer")
    else:
        draft.carry("tokenizer.model_name", "model.tokenizer")
    why = "padding changes no number here: masks say what is real, and positions follow them"
    for key in ("padding_side", "pad_token_as_eos_token"):
        if draft.given(f"tokenizer.{key}"):
            draft.note(f"tokenizer.{key}", "ignored", why=why)


def reward(draft: Draft) -> None:
    """`rewards`."""
    name, args = draft.get("reward_fn.id"), "reward_fn.args"
    if name != "learned_reward":
        near = NEAREST[name]
        draft.put("rewards", {}, f"reward_fn.id {name} has no counterpart yet; nearest: {near}")
        why = (
            f"no counterpart yet; nearest: {near} (rewards.NAME: {{kind: function, function: ...}})"
        )
        draft.note("reward_fn.id", "none", "rewards", why)
        draft.rest("reward_fn", "none", "goes with the reward")
        return
    draft.put("rewards.learned_reward.kind", "classifier", "reward_fn.id")
    draft.note("reward_fn.id", "carried", "rewards.learned_reward")
    draft.carry(f"{args}.model_name", "rewards.learned_reward.path")
    draft.carry(f"{args}.label_ix", "rewards.learned_reward.label")
    both = draft.get(f"{args}.include_prompt_for_eval", True)
    draft.carry(
        f"{args}.include_prompt_for_eval",
        "rewards.learned_reward.reads",
        True,
        value="prompt_and_completion" if both else "completion",
    )
    draft.put("rewards.learned_reward.output", "probability", "RL4LMs' softmax")


def metrics(draft: Draft) -> None:
    """Every entry of `train_evaluation.metrics`."""
    for i, metric in enumerate(draft.get("train_evaluation.metrics") or []):
        path, name = f"train_evaluation.metrics.{i}", metric["id"]
        if name == "learned_reward":
            _learned(draft, path, metric.get("args") or {})
        elif name == "causal_perplexity":
            why = (
                "the policy's perplexity on human text, as in RL4LMs, but pooled over texts "
                "(evaluation.human_rows of them) instead of windows of all texts joined: another "
                "number, never compare the two"
            )
            draft.note(f"{path}.id", "changed", "human/perplexity", why)
            draft.rest(path, "none", "the text is not joined; the policy's own tokenizer reads it")
        elif name == "diversity":
            why = "distinct-n, the share of the commonest n-gram and length; no MSTTR, no entropy"
            draft.note(f"{path}.id", "changed", "distinct_n", why)
        else:
            near = NEAREST.get(name, "a function")
            why = f"no counterpart yet; nearest: judges.NAME with {near}"
            draft.note(f"{path}.id", "none", why=why)
        draft.rest(path, "ignored", "goes with the metric")


def _learned(draft: Draft, path: str, args: dict[str, Any]) -> None:
    chosen = draft.settings.get("rewards", {}).get("learned_reward", {})
    if chosen.get("path") == args.get("model_name") and chosen.get("label") == args.get("label_ix"):
        why = "every evaluation measures the reward"
        draft.note(f"{path}.id", "carried", "rewards.learned_reward", why)
    elif args.get("model_name") is None:
        raise UserError(f"{draft.where}: {path}.args.model_name is missing; name the classifier")
    else:
        judge: dict[str, Any] = {"kind": "classifier", "path": args["model_name"]}
        if args.get("label_ix") is not None:
            judge["label"] = args["label_ix"]
        if args.get("include_prompt_for_eval") is False:
            judge["reads"] = "completion"
        draft.put("judges.learned_reward", judge, f"{path}, which is not the reward")
        draft.note(f"{path}.id", "carried", "judges.learned_reward")
    for key in args:
        if key == "batch_size":
            why = "memory only; nearest: batch_size of the classifier"
            draft.note(f"{path}.args.{key}", "ignored", why=why)
        elif key in ("model_name", "label_ix", "include_prompt_for_eval"):
            draft.note(f"{path}.args.{key}", "carried", why="the classifier")
    draft.rest(path, "none", "no such setting of a classifier")


def evaluation(draft: Draft) -> None:
    """`evaluation` and `checkpoint`."""
    block = "train_evaluation"
    draft.note(f"{block}.eval_batch_size", "ignored", why="memory only; nearest: sampling.chunk")
    if draft.given(f"{block}.eval_every"):
        why = "validation prompts; update 0 and the last one are evaluated as well"
        draft.carry(f"{block}.eval_every", "evaluation.every", why=why)
    why = "the newest two stay; RL4LMs keeps all"
    draft.carry(f"{block}.save_every", "checkpoint.every", 20, why=why)
    if draft.settings["data"].get("path") == IMDB:
        held = draft.settings["data"]["validation_rows"]
        draft.put("evaluation.prompts", held, "the whole validation split, as RL4LMs")
        draft.put("evaluation.test_prompts", IMDB_TEST, "RL4LMs' 5,000, at the end only")
    evaluation_sampling(draft)
