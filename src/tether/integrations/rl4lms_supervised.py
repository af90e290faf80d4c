"""`alg.id: supervised`: transformers' Trainer on the pool's references."""

from __future__ import annotations

from tether.config.errors import UserError
from tether.integrations import rl4lms_data as pools
from tether.integrations import rl4lms_rewards as rewards
from tether.integrations import rl4lms_task as task
from tether.integrations.rl4lms_draft import Draft
from tether.integrations.rl4lms_rollout import decoding
from tether.integrations.rl4lms_units import nearest_whole, supervised_updates

ARGS = "alg.training_args"
STEPS = 4
"""Optimizer steps of one update here: an update is only where the record has a line."""


def supervised(draft: Draft, rows: int | None) -> None:
    """Everything of a supervised run. rows: training rows, where the pool does not tell."""
    draft.put("algorithm.kind", "supervised", "alg.id")
    draft.note("alg.id", "carried", "algorithm.kind")
    task.tokenizer(draft, "alg.model_name")
    pools.data(draft)
    task.prompts(draft, "tokenizer.max_length", ["tokenizer.truncation_side"])
    _whole_texts(draft)
    _lengths(draft)
    updates, steps = _updates(draft, rows)
    draft.carry(f"{ARGS}.learning_rate", "algorithm.lr", 5e-5)
    _schedule(draft, updates * steps)
    draft.carry(f"{ARGS}.weight_decay", "optimizer.weight_decay", 0.0)
    draft.carry(f"{ARGS}.max_grad_norm", "optimizer.max_grad_norm", 1.0)
    _rest(draft)
    task.evaluation(draft)
    if not draft.given("train_evaluation.eval_every"):
        draft.put("evaluation.every", max(1, updates // 10), "RL4LMs evaluates when it logs")
    rewards.metrics(draft)
    draft.rest("train_evaluation", "ignored", "supervised runs count epochs")


def _whole_texts(draft: Draft) -> None:
    if draft.get("alg.model_type") != "causal":
        draft.note("alg.model_type", "carried", "model.path", "read from the model itself")
        return
    why = (
        "RL4LMs trains causal models on prompt and reference alike, here the reference alone "
        "trains; for both write whole texts to a file and set data.text and data.prompt_tokens 1"
    )
    draft.note("alg.model_type", "changed", "data", why)


def _lengths(draft: Draft) -> None:
    block = "alg.generation_kwargs"
    new = draft.get(f"{block}.max_new_tokens")
    if new is None:
        raise UserError(f"{draft.where}: {block}.max_new_tokens is missing; RL4LMs needs it too")
    why = "of what is evaluated; references are cut to it in training too, RL4LMs cuts none"
    draft.carry(f"{block}.max_new_tokens", "sampling.max_new_tokens", status="changed", why=why)
    decoding(draft, block, "evaluation.sampling")


def _updates(draft: Draft, rows: int | None) -> tuple[int, int]:
    """Updates and optimizer steps in each; one pass of RL4LMs is rows / batch steps."""
    per, accumulate = f"{ARGS}.per_device_train_batch_size", f"{ARGS}.gradient_accumulation_steps"
    batch = int(draft.get(per, 8)) * int(draft.get(accumulate, 1))
    epochs, limit = (
        float(draft.get(f"{ARGS}.num_train_epochs", 3.0)),
        draft.get(f"{ARGS}.max_steps"),
    )
    rows = pools.training_rows(draft) if rows is None else rows
    if limit is not None and limit > 0:
        total = int(limit)
        draft.note(f"{ARGS}.max_steps", "carried", "updates", f"{STEPS} optimizer steps an update")
        draft.note(f"{ARGS}.num_train_epochs", "ignored", why="max_steps decides", value=epochs)
    elif rows is None:
        raise UserError(
            f"{draft.where}: {ARGS}.num_train_epochs counts passes over the data, and here a run "
            "counts updates: say how many training rows there are with --rows N"
        )
    else:
        total = supervised_updates(rows, epochs, batch)
        why = (
            f"{epochs:g} passes over {rows} rows in batches of {batch} are {total} optimizer "
            f"steps, {STEPS} an update"
        )
        draft.note(f"{ARGS}.num_train_epochs", "changed", "updates", why, value=epochs)
    updates = nearest_whole(total / STEPS)
    draft.put("updates", updates, f"{total} optimizer steps, {STEPS} an update")
    draft.put("batch.prompts", batch * STEPS, f"{per} {batch} x {STEPS}")
    draft.put("algorithm.minibatches", STEPS, "optimizer steps of one update")
    draft.put("algorithm.epochs", 1)
    draft.note(per, "carried", "batch.prompts", f"{batch} texts an optimizer step", value=8)
    if draft.given(accumulate):
        draft.note(accumulate, "carried", "batch.prompts", "texts of one optimizer step")
    return updates, STEPS


def _schedule(draft: Draft, total: int) -> None:
    key = f"{ARGS}.lr_scheduler_type"
    old = draft.get(key, "linear")
    if old in ("constant", "linear"):
        draft.carry(key, "optimizer.schedule", "linear")
    elif old == "constant_with_warmup":
        draft.carry(key, "optimizer.schedule", value="constant")
    else:
        draft.put("optimizer.schedule", "linear", f"{key} {old} has no counterpart")
        why = "no such schedule; nearest: linear, which falls from the same start to 0 as well"
        draft.note(key, "none", "optimizer.schedule", why)
    steps, ratio = f"{ARGS}.warmup_steps", f"{ARGS}.warmup_ratio"
    if draft.get(steps):
        draft.carry(steps, "optimizer.warmup_steps")
        if draft.given(ratio):
            draft.note(ratio, "ignored", why="warmup_steps decides")
    elif draft.get(ratio):
        value = nearest_whole(float(draft.get(ratio)) * total)
        why = f"of {total} optimizer steps"
        draft.carry(ratio, "optimizer.warmup_steps", value=value, status="changed", why=why)


def _rest(draft: Draft) -> None:
    if draft.given(f"{ARGS}.seed"):
        why = "the trainer overwrites it with a random number"
        draft.note(f"{ARGS}.seed", "ignored", why=why)
    else:
        draft.note(f"{ARGS}.seed", "changed", "seed", "RL4LMs draws one at random")
    draft.put("seed", 0, "RL4LMs draws one at random")
    for key, setting in (("adam_beta1", "betas"), ("adam_beta2", "betas"), ("adam_epsilon", "eps")):
        if draft.given(f"{ARGS}.{key}"):
            first, second = (
                draft.get(f"{ARGS}.adam_beta1", 0.9),
                draft.get(f"{ARGS}.adam_beta2", 0.999),
            )
            value = [first, second] if setting == "betas" else draft.get(f"{ARGS}.{key}")
            draft.put(f"optimizer.{setting}", value, f"{ARGS}.{key}")
            draft.note(f"{ARGS}.{key}", "carried", f"optimizer.{setting}")
    if draft.given(f"{ARGS}.save_total_limit"):
        draft.carry(f"{ARGS}.save_total_limit", "checkpoint.keep")
    for key in ("fp16", "bf16"):
        if draft.given(f"{ARGS}.{key}"):
            why = "masters are fp32; model.dtype says how the model computes (auto)"
            draft.note(f"{ARGS}.{key}", "ignored", why=why)
    for key in ("logging_steps", "save_steps"):
        if draft.given(f"{ARGS}.{key}"):
            why = "every update has a line in the record; checkpoint.every, evaluation.every"
            draft.note(f"{ARGS}.{key}", "ignored", why=why)
    draft.rest(ARGS, "none", "an option of transformers' Trainer")
