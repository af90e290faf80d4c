"""Data pools of RL4LMs -> tasks, and what a task would propose where the old file says nothing.

A pool whose prompts a task builds as RL4LMs does becomes that task, with the pool's arguments as
the task's settings. The others have to be written to a file. Source: allenai/RL4LMs@97df0bd,
rl4lms/data_pools/custom_text_generation_pools.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tether.config.catalog import load
from tether.config.errors import UserError
from tether.config.run import DataSettings, SamplingSettings
from tether.integrations.rl4lms_draft import Draft

IMDB = "imdb"
IMDB_ROWS = 25_000
SPLIT = 0.2
"""Share of IMDB's training reviews that RL4LMs validates on."""
FORK_SEED = 0
"""Of the shuffle in the Elastic Reset fork, which takes none from the configuration."""


@dataclass(frozen=True)
class Pool:
    """The task that a pool becomes."""

    task: str
    why: str = ""
    """What differs; empty: the same prompts and references."""
    args: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    """Argument -> setting of the task, and RL4LMs' default."""


_AFFIXES = {"prompt_prefix": ("prefix", ""), "prompt_suffix": ("suffix", "")}
POOLS: dict[str, Pool] = {
    "imdb": Pool(
        IMDB,
        "the same prompts; the reference is the rest of the review, RL4LMs' is all of it, which "
        "its perplexity reads",
    ),
    "imdb_seq2seq": Pool(IMDB),
    "commongen": Pool(
        "commongen",
        "a prompt for each set of concepts, with all of its sentences as references; RL4LMs has a "
        "prompt with one reference for each sentence",
        {
            "prefix": ("prefix", "summarize: "),
            "concept_separator_token": ("separator", " "),
            "concept_end_token": ("end", " "),
        },
    ),
    "cnn_daily_mail": Pool("cnn_dailymail", args=_AFFIXES),
    "totto": Pool("totto"),
    "narrative_qa": Pool(
        "narrativeqa",
        "questions and summaries of the hub, joined and lower-cased as RL4LMs finds them in the "
        "files of UnifiedQA",
    ),
    "wmt16": Pool("wmt16", args=_AFFIXES),
    "iwslt2017en_de": Pool("iwslt17", args=_AFFIXES),
    "daily_dialog": Pool("dailydialog", args={"context_size": ("context_size", 5)}),
}
"""datapool.id -> task."""
BUILT: dict[str, str] = {
    "totto": "hub totto: the linearised whole table, without and with its titles; reference = the "
    "sentence annotations",
    "wmt16": "the hub id in wmt_id: prompt_prefix + source + prompt_suffix; reference = target",
    "wmt14_processed_en_de": "hub stas/wmt14-en-de-pre-processed: prefix + en; reference = de",
    "wmt16newsonly": "hub news_commentary and wmt16: prefix + source; reference = target",
    "crd3": "the CRD3 archive: max_context_size turns; reference = the next one",
}
"""Pools (or uses of them) without a task: what goes into a file with columns prompt, reference."""


def data(draft: Draft) -> None:
    """`data`."""
    pool = draft.get("datapool.id")
    if pool == "dummy_pool":
        _dummy(draft)
    elif _has_task(draft, pool):
        _task(draft, pool)
    else:
        draft.put("data.path", "", f"to be written: {BUILT[pool]}")
        draft.put("data.prompt", "prompt", "column of that file")
        draft.put("data.reference", "reference", "column of that file")
        why = f"write the pool to a file with columns prompt and reference: {BUILT[pool]}"
        draft.note("datapool.id", "none", "data.path", why)
        draft.rest("datapool.args", "none", "goes into the file's prompts")
    draft.rest("datapool", "ignored", "no arguments")


def task_of(draft: Draft) -> str:
    """Kind of the task in `data`, or nothing."""
    return str(draft.settings["data"].get("task", {}).get("kind", ""))


def references(draft: Draft) -> str:
    """Column of the references: a task's, or that of the file to be written."""
    return "references" if task_of(draft) else "reference"


def _has_task(draft: Draft, pool: str) -> bool:
    args = draft.get("datapool.args") or {}
    if pool == "wmt16":
        named = (args.get("wmt_id"), args.get("source_language"), args.get("target_language"))
        return named == ("wmt16", "en", "de")
    return pool in POOLS and args.get("representation") != "fulltable"


def _task(draft: Draft, pool: str) -> None:
    found = POOLS[pool]
    cls = load("task", found.task)
    draft.put("data.path", cls.hub, f"hub id of the task {found.task}")
    for name, value in (("name", cls.hub_name), ("revision", cls.hub_revision)):
        if value is not None:
            draft.put(f"data.{name}", value)
    draft.put("data.task.kind", found.task, f"datapool.id {pool}")
    draft.note("datapool.id", "changed" if found.why else "carried", "data.task", found.why)
    for argument, (setting, default) in found.args.items():
        draft.carry(f"datapool.args.{argument}", f"data.task.{setting}", default)
    if draft.get("alg.id") == "supervised":
        why = "RL4LMs trains on every reference"
        draft.put("data.task.one_row_a_reference", True, why)
    if pool in ("imdb", "imdb_seq2seq"):
        _imdb(draft, pool)
    elif pool == "daily_dialog":
        draft.put("data.task.end", "<EOU>", "RL4LMs' references end with the mark")
    elif pool == "totto":
        _given(draft, "representation", "carried", "the highlighted cells, twice")
    elif pool == "wmt16":
        for argument in ("wmt_id", "source_language", "target_language"):
            _given(draft, argument, "carried", "what the task is")
    elif pool == "cnn_daily_mail":
        why = "articles are cut at data.max_prompt_tokens tokens, not at words"
        _given(draft, "truncate_article", "none", why)
        key = "datapool.args.max_size"
        if draft.given(key):
            why = "of the training rows after the seeded shuffle; RL4LMs takes the first ones of "
            draft.carry(key, "data.limit", status="changed", why=f"{why}every split")


def _given(draft: Draft, argument: str, status: Any, why: str) -> None:
    if draft.given(f"datapool.args.{argument}"):
        draft.note(f"datapool.args.{argument}", status, "data.task", why)


def _imdb(draft: Draft, pool: str) -> None:
    held = round(IMDB_ROWS * SPLIT)
    draft.put("data.validation_rows", held, f"datapool.id {pool}: a fifth of {IMDB_ROWS}")
    draft.put("data.label", "label", "column")
    key = "datapool.args.seed"
    if draft.given(key):
        why = "the same number, another shuffle: other reviews are held out"
        draft.carry(key, "data.seed", status="changed", why=why)
    elif pool == "imdb":
        draft.put("data.seed", FORK_SEED, "the Elastic Reset fork shuffles with seed 0")
        draft.note(key, "changed", "data.seed", "the fork's seed 0, another shuffle", FORK_SEED)
    else:
        draft.put("data.seed", 0, "RL4LMs shuffles this pool without a seed")
    if pool == "imdb_seq2seq":
        draft.put("data.task.positive_only", True, "RL4LMs trains this pool on label 1")
        key = "datapool.args.positive_ratio"
        if draft.get(key, 1.0) == 1:
            why = "1: all positive reviews of the training rows"
            draft.note(key, "carried", "data.task.positive_only", why, value=1.0)
        else:
            why = "all positive reviews train, not a share of them; nearest: data.limit"
            draft.note(key, "none", "data.task.positive_only", why)


def training_rows(draft: Draft) -> int | None:
    """Rows that a supervised run trains on, where the pool tells."""
    if task_of(draft) != IMDB:
        return None
    rows = IMDB_ROWS - int(draft.settings["data"]["validation_rows"])
    return rows // 2 if draft.settings["data"]["task"].get("positive_only") else rows


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


def settle(draft: Draft) -> None:
    """Everything that the task would propose for what the old file leaves open is said, so that
    the run does what RL4LMs did and not what the task is used with here."""
    kind = task_of(draft)
    if not kind:
        return
    cls = load("task", kind)
    for block, proposed, plain in (
        ("data", cls.data, DataSettings()),
        ("sampling", cls.sampling, SamplingSettings()),
    ):
        for name in proposed:
            if name not in draft.settings.setdefault(block, {}):
                why = f"not given; the task {kind} would take {proposed[name]}"
                draft.put(f"{block}.{name}", getattr(plain, name), why)
    if cls.evaluation and "sampling" not in draft.settings["evaluation"]:
        draft.put("evaluation.sampling", None, "as in training")
    elif cls.evaluation:
        own = draft.settings["evaluation"]["sampling"]
        for name in cls.evaluation:
            if name not in own:
                same = draft.settings["sampling"].get(name, getattr(SamplingSettings(), name))
                draft.put(f"evaluation.sampling.{name}", same, "as in training")
    if "rewards" not in draft.settings:
        draft.put("rewards", {}, "RL4LMs measures no reward in supervised training")
