"""Prompts, tokenizer and evaluation: what every import has, whatever its data and reward."""

from __future__ import annotations

from tether.integrations.rl4lms_data import IMDB, task_of
from tether.integrations.rl4lms_draft import Draft
from tether.integrations.rl4lms_rollout import evaluation_sampling

IMDB_TEST = 5_000
"""Reviews that RL4LMs tests on."""


def prompts(draft: Draft, limit_key: str, side_keys: list[str]) -> None:
    """Length of prompts, and which side of a long one is cut (the first of `side_keys`)."""
    limit = draft.get(limit_key)
    side = draft.get(side_keys[0], "left")
    if limit is not None:
        draft.carry(limit_key, "data.max_prompt_tokens")
    draft.carry(side_keys[0], "data.too_long", "left", value=f"truncate_{side}")
    for other in side_keys[1:]:
        if not draft.given(other):
            continue
        if draft.get(other) == side:
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


def evaluation(draft: Draft) -> None:
    """`evaluation` and `checkpoint`."""
    block = "train_evaluation"
    draft.note(f"{block}.eval_batch_size", "ignored", why="memory only; nearest: sampling.chunk")
    if draft.given(f"{block}.eval_every"):
        why = "validation prompts; update 0 and the last one are evaluated as well"
        draft.carry(f"{block}.eval_every", "evaluation.every", why=why)
    why = "the newest two stay; RL4LMs keeps all"
    draft.carry(f"{block}.save_every", "checkpoint.every", 20, why=why)
    if task_of(draft) == IMDB:
        held = draft.settings["data"]["validation_rows"]
        draft.put("evaluation.prompts", held, "the whole validation split, as RL4LMs")
        draft.put("evaluation.test_prompts", IMDB_TEST, "RL4LMs' 5,000, at the end only")
    evaluation_sampling(draft)
