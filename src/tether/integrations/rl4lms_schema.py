"""What an RL4LMs configuration may hold: blocks, keys, types, and the public ids.

Everything is checked before anything is translated: an unknown key or id, a missing required key
and a value of the wrong type are one line that names the place. Blocks that RL4LMs passed on to
transformers (`generation_kwargs`, `training_args`) are open: a key that looks like a misspelt one
is an error, any other is reported as without counterpart.

Source: allenai/RL4LMs@97df0bd (registry, constructors, published configs); mnoukhov/RL4LMs, branch
`paper`, for the keys of Elastic Reset.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tether.config.errors import UserError
from tether.config.nearest import nearest

Kind = Literal["whole", "number", "truth", "text", "mapping", "list", "any"]
_SAYS: dict[str, str] = {
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
    "text": "text",
    "mapping": "a mapping",
    "list": "a list",
    "any": "a value",
}


@dataclass(frozen=True)
class Key:
    kind: Kind = "any"
    required: bool = False
    choices: tuple[str, ...] = ()


def _keys(**kinds: str) -> dict[str, Key]:
    """`name="whole*"`: kind, with a star where the key is required."""
    return {k: Key(v.rstrip("*"), v.endswith("*")) for k, v in kinds.items()}  # type: ignore[arg-type]


SIDE = Key("text", choices=("left", "right"))
TOP = _keys(
    tokenizer="mapping*",
    reward_fn="mapping",
    datapool="mapping*",
    env="mapping",
    alg="mapping*",
    train_evaluation="mapping*",
)
TOKENIZER = _keys(
    model_name="text*", pad_token_as_eos_token="truth", max_length="whole"
) | {"padding_side": SIDE, "truncation_side": SIDE}  # fmt: skip
NAMED = _keys(id="text*", args="mapping")
ENV = _keys(n_envs="whole", args="mapping*")
ENV_ARGS = _keys(
    max_prompt_length="whole*",
    max_episode_length="whole*",
    terminate_on_eos="truth",
    context_start_token="whole",
    priority_scale="number",
) | {"prompt_truncation_side": SIDE}
ALG = _keys(id="text*", args="mapping*", kl_div="mapping*", policy="mapping*")
ALG_SUPERVISED = _keys(
    id="text*", training_args="mapping*", model_name="text*", generation_kwargs="mapping*"
) | {"model_type": Key("text", True, ("causal", "seq2seq"))}
KL_DIV = _keys(coeff="number*", target_kl="number", norm_reward="truth")
POLICY = _keys(id="text*", args="mapping*")
POLICY_ARGS = _keys(
    model_name="text*",
    apply_model_parallel="truth",
    optimizer_kwargs="mapping",
    optimizer_class="any",
    weight_decay="number",
    generation_kwargs="mapping",
    state_dict="any",
) | {"prompt_truncation_side": SIDE}
MASK_ARGS = _keys(
    top_mask="number", target_update_iterations="whole", min_tokens_to_keep="whole"
) | {"mask_type": Key("text", choices=("learned_top_p", "learned_top_k", "topk"))}  # fmt: skip
EVALUATION = _keys(
    eval_batch_size="whole*",
    n_iters="whole*",
    eval_every="whole*",
    save_every="whole",
    metrics="list",
    generation_kwargs="mapping",
)
EVALUATION_SUPERVISED = _keys(
    eval_batch_size="whole*", metrics="list", generation_kwargs="mapping",
    n_iters="whole", eval_every="whole", save_every="whole",
)  # fmt: skip
EVALUATION_FORK = _keys(
    reset_freq="whole",
    reset_ema="truth",
    reset_ema_freq="whole",
    reset_opt="truth",
    reset_critic="truth",
    separate_ema_model="truth",
    ref_causal_perplexity="truth",
    ref_learned_metric="truth",
    eval_before_train="truth",
    freeze_policy="truth",
    seed="whole",
)
"""Of the Elastic Reset fork."""

COMMON = _keys(
    n_steps="whole",
    learning_rate="number",
    gamma="number",
    gae_lambda="number",
    seed="whole",
    verbose="any",
    device="text",
    tensorboard_log="any",
    create_eval_env="any",
    use_sde="any",
    sde_sample_freq="any",
)
_CRITIC = _keys(ent_coef="number", vf_coef="number", max_grad_norm="number")
_ON_POLICY = (
    COMMON
    | _CRITIC
    | _keys(
        batch_size="whole",
        n_epochs="whole",
        clip_range="number",
        clip_range_vf="number",
        normalize_advantage="truth",
        target_kl="number",
    )
)
ALGORITHMS: dict[str, dict[str, Key]] = {
    "ppo": _ON_POLICY,
    "nlpo": _ON_POLICY,
    "emappo": _ON_POLICY | _keys(ema_decay="number", ema_update_train="truth"),
    "a2c": COMMON
    | _CRITIC
    | _keys(normalize_advantage="truth", use_rms_prop="truth", rms_prop_eps="number"),
    "trpo": COMMON
    | _keys(
        batch_size="whole",
        target_kl="number",
        cg_max_steps="whole",
        cg_damping="number",
        line_search_shrinking_factor="number",
        line_search_max_iter="whole",
        n_critic_updates="whole",
        sub_sampling_factor="whole",
        normalize_advantage="truth",
    ),
    "supervised": {},
}
"""alg.id -> keys of alg.args. `emappo` is PPO with an average, of the Elastic Reset fork."""

POLICIES = (
    "causal_lm_actor_critic_policy",
    "seq2seq_lm_actor_critic_policy",
    "maskable_causal_lm_actor_critic_policy",
    "maskable_seq2seq_lm_actor_critic_policy",
)
_SHAPED = _keys(shaping_fn="text")
REWARDS: dict[str, dict[str, Key] | None] = {
    "increasing_numbers": _keys(min_tokens="whole*"),
    "sentences_with_dates": {},
    "learned_reward": _keys(model_name="text*", label_ix="whole*", include_prompt_for_eval="truth"),
    "meteor": _SHAPED,
    "rouge": _SHAPED | _keys(rouge_type="text*", use_single_ref="truth"),
    "rouge_combined": _SHAPED,
    "bert_score": _keys(language="text"),
    "bleu": {},
    "bleurt": None,
    "sacre_bleu": None,
    "rouge_l_max": None,
    "ter": None,
    "chrf": None,
    "spider": _SHAPED | _keys(spice_coeff="number*", cider_coeff="number*"),
    "parent": {},
    "common_gen_repeat_penalty": {},
    "common_gen_repeat_penalty_batched": {},
    "intent_accuracy": _keys(shape="truth", intent_coeff="number", auto_coeff="number"),
    "common_gen_preference_model": None,
}
"""reward_fn.id -> its arguments; None = passed on to a metric package, so any."""

METRICS = (
    "learned_reward", "meteor", "rouge", "bleu", "cider", "spice", "sacre_bleu", "ter", "chrf",
    "rouge_l_max", "bleu_totto", "bleurt", "bert_score", "diversity", "summaCZS", "summaCConv",
    "causal_perplexity", "parent_totto", "intent_accuracy", "increasing_numbers", "dates",
)  # fmt: skip
_AFFIXES = _keys(prompt_prefix="text", prompt_suffix="text")
POOLS: dict[str, dict[str, Key]] = {
    "dummy_pool": _keys(n_samples="whole", prompt="text*"),
    "imdb": _keys(seed="whole*"),
    "imdb_seq2seq": _keys(positive_ratio="number"),
    "commongen": _keys(concept_separator_token="text", concept_end_token="text", prefix="text"),
    "cnn_daily_mail": _AFFIXES | _keys(truncate_article="whole", max_size="whole"),
    "totto": {"representation": Key("text", choices=("subtable", "fulltable"))},
    "narrative_qa": {},
    "wmt16": _AFFIXES
    | _keys(wmt_id="text*", source_language="text*", target_language="text*"),
    "wmt14_processed_en_de": _AFFIXES,
    "wmt16newsonly": _AFFIXES,
    "iwslt2017en_de": _AFFIXES,
    "crd3": _keys(max_context_size="whole"),
    "daily_dialog": _keys(context_size="whole"),
}  # fmt: skip
HINTS = {
    ("datapool.args", "seed"): "the pool imdb shuffles by it, the published imdb configs have 42"
}
"""What to write where a required key is missing."""

GENERATION = _keys(
    do_sample="truth",
    top_k="whole",
    top_p="number",
    temperature="number",
    min_length="whole",
    max_new_tokens="whole",
    num_beams="whole",
    length_penalty="number",
    repetition_penalty="number",
    no_repeat_ngram_size="whole",
    early_stopping="truth",
    post_processing_fn="any",
)
"""Keys that the published configs use; transformers knows more."""
TRAINING = _keys(
    per_device_train_batch_size="whole",
    gradient_accumulation_steps="whole",
    num_train_epochs="number",
    learning_rate="number",
    lr_scheduler_type="text",
    warmup_steps="whole",
    warmup_ratio="number",
    weight_decay="number",
    max_grad_norm="number",
    adam_beta1="number",
    adam_beta2="number",
    adam_epsilon="number",
    logging_steps="whole",
    save_steps="whole",
    save_total_limit="whole",
    max_steps="whole",
    seed="whole",
    fp16="truth",
    bf16="truth",
)
"""Of transformers' TrainingArguments: those that mean something here."""


def type_of(value: Any, kind: Kind) -> bool:
    """Is the value of this kind?"""
    if kind == "any":
        return True
    if kind == "truth":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "whole":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    found: bool = isinstance(
        value, {"number": int | float, "text": str, "mapping": Mapping, "list": list}[kind]
    )
    return found


def shown(value: Any) -> str:
    """A value in a message: whole where it is short."""
    text = repr(value)
    return text if len(text) <= 50 else text[:47] + "..."


def check_block(
    block: Mapping[str, Any],
    keys: Mapping[str, Key],
    path: str,
    where: str,
    *,
    open_: bool = False,
) -> None:
    """Raises UserError for the first unknown or missing key, or a value of the wrong type.

    open_: unknown keys are let through unless they look like a known one.
    """
    dot = f"{path}." if path else ""
    for name, value in block.items():
        key = keys.get(str(name))
        if key is None:
            guess = _close(str(name), keys) if open_ else nearest(str(name), keys)
            if open_ and guess is None:
                continue
            mend = f"did you mean '{guess}'?" if guess else f"there are: {', '.join(keys)}"
            raise UserError(f"{where}: unknown key '{dot}{name}'; {mend}")
        if value is None and not key.required:
            continue
        if not type_of(value, key.kind):
            raise UserError(f"{where}: {dot}{name} is {shown(value)}, it must be {_SAYS[key.kind]}")
        if key.choices and value not in key.choices:
            guess = nearest(str(value), key.choices)
            mend = f"; did you mean '{guess}'?" if guess else ""
            raise UserError(
                f"{where}: {dot}{name} is {shown(value)}, it must be one of "
                f"{', '.join(key.choices)}{mend}"
            )
    for name, key in keys.items():
        if key.required and name not in block:
            hint = HINTS.get((path, name))
            raise UserError(
                f"{where}: {dot}{name} is missing"
                + (f" ({hint}); add it" if hint else "; RL4LMs needs it too")
            )


def known(family: str, word: str, ids: Iterable[str], path: str, where: str) -> None:
    """Raises UserError for an id that RL4LMs does not have."""
    names = list(ids)
    if word in names:
        return
    guess = nearest(word, names)
    mend = f"did you mean '{guess}'?" if guess else f"there are: {', '.join(names)}"
    raise UserError(f"{where}: {path} is '{word}', RL4LMs has no such {family}; {mend}")


def _close(word: str, keys: Iterable[str]) -> str | None:
    """A key that `word` is a misspelling of, by more likeness than chance."""
    found = difflib.get_close_matches(word.lower(), list(keys), n=1, cutoff=0.86)
    return found[0] if found else None
