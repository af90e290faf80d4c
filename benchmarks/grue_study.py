"""The real runs of the benchmark as a study: its cells, its settings, and its places.

Seven tasks on two models. A small T5 that is pretrained by `benchmarks.denoising` has CommonGen,
FairytaleQA and Multi30k; SmolLM2-135M-Instruct with adapters of rank 16 has IMDB, DailyDialog,
SciTLDR and DART. Everything lies below one folder, which is also the working folder of all runs:
their settings hold relative paths, so that the folder can be moved.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import grue_ablations
from benchmarks.grue_pack import GROUPS
from tether.config.layers import merge
from tether.config.text_values import read_yaml, write_yaml
from tether.recipes.toy import ASSETS
from tether.studies.grue.cells import Cell, Plan
from tether.studies.grue.planning import Asked
from tether.studies.grue.planning import planned as planned_of
from tether.studies.workers import Job

METHODS = (
    "zero-shot", "supervised", "supervised+ppo", "supervised+nlpo", "supervised+elastic-reset",
    "ppo",
)  # fmt: skip
SEEDS = (0, 1, 2)
WITHOUT_WARM_START = ("imdb", "commongen")
"""Tasks on which PPO from the raw model has all seeds; on the others it is one pilot seed."""
SETTINGS = Path(__file__).with_name("grue_real.yaml")
OUT = Path("runs")
"""The benchmark's folder, below the working folder."""
REPEATED = "repeated.json"
"""Supervised runs that were trained again after some of their methods had finished."""
PRETRAINED = OUT / "denoising.json"
"""What the pretraining of the T5 came to (`benchmarks.denoising`)."""
PILOT = OUT / "pilot.json"
"""Task -> the learning rate that `benchmarks.grue_pilot` has found for it, and how."""
T5, INTENT = Path("models/t5"), Path("models/intent-classifier")
SENTIMENT = Path("models/imdb-classifier")
DEVIATIONS = (
    "Models: a T5 of 27 million parameters pretrained here for minutes, and SmolLM2-135M-Instruct "
    "with LoRA of rank 16, where RL4LMs has t5-base and GPT-2.",
    "Sets: FairytaleQA for NarrativeQA, Multi30k for IWSLT17, SciTLDR for CNN/DailyMail, DART for "
    "ToTTo; CommonGen 1.0 (39,069 training sentences); of IMDB 14,000 training reviews, 1,000 of "
    "the same set for validation, and 1,500 test reviews; of DART its validation file in three "
    "parts without a common subject (1,855, 313 and 600 sets of triples).",
    "Tested on at most 500 prompts a task, validated on at most 256.",
    "Decoding: one for all methods of a task, that of its PPO (the ablations apart), where RL4LMs "
    "samples some of them with another top-k; the likeliest token where RL4LMs searches with beams "
    "(CommonGen, NarrativeQA, IWSLT17); at most 32 new tokens on FairytaleQA (RL4LMs: 50 on "
    "NarrativeQA).",
    "5,120 completions a run (2,560 on FairytaleQA and SciTLDR) in 40 updates of 16 optimizer "
    "steps (8 with adapters); RL4LMs has 50 to 200 iterations of 1,280 to 5,120 tokens, each token "
    "a training row, 5 epochs of 64 rows.",
    "Supervised training: 150 to 300 updates of four steps at 5e-4 for the T5, 40 to 120 at 3e-4 "
    "for adapters, falling along a line; RL4LMs has 2 to 20 passes at 1e-5 to 1e-4.",
    "NLPO's mask is refreshed every 8 updates of 40 (IMDB: 5), where RL4LMs names 20 or 30 of 50 "
    "to 200; Elastic Reset, which RL4LMs lacks, resets after updates 17 and 34, without a KL term.",
    "Rewards: the classifier of reviews is SmolLM2 with an adapter, trained on the reviews that "
    "prompts come from (RL4LMs: DistilBERT); that of intents is one too (RL4LMs: RoBERTa).",
    "SciTLDR's prompt ends with TL;DR: and DART's with Text:, as SmolLM2 has no encoder; SciTLDR's "
    "abstracts have at most 320 tokens and summaries 48 (RL4LMs: 512 and 100 on CNN/DailyMail).",
    "Naturalness is perplexity and distinct-1 and -2 (IMDB: MSTTR too): BERTScore, SPICE, BLEURT "
    "and SummaC need models or programs that were not at hand; SummaC is missing in SciTLDR's task "
    "score.",
    "KL coefficients, their targets, NLPO's top-p, other prompt lengths and the rewards of the "
    "other tasks are RL4LMs'.",
)
"""What differs from RL4LMs' hyper-parameters (allenai/RL4LMs@97df0bd); of learning rates see below.
"""
WITHOUT_PILOT = (
    "Learning rate 3e-5 for the T5 and 1e-4 for adapters, since there are tenfold fewer steps than "
    "with RL4LMs' 5e-7 to 2e-6; no pilot was run."
)
TWICE = {"kind": "every", "n": 2, "unit": "update"}
QUICK: dict[str, Any] = {
    "all": {
        "model": {"device": "cpu", "dtype": "float32"},
        "engine": {"kind": "hf"},
        "data": {"max_prompt_tokens": 40, "too_long": "truncate_left"},
        "sampling": {"max_new_tokens": 8, "min_new_tokens": 2, "top_k": 0},
        "evaluation": {"prompts": 8, "test_prompts": 12, "human_rows": 4},
    },
    "tuned": {
        "updates": 4,
        "batch": {"prompts": 8, "microbatch": 8},
        "algorithm": {"epochs": 1, "minibatches": 2},
        "evaluation": {"every": 2},
    },
    "demonstrations": {
        "updates": 4,
        "batch": {"prompts": 16, "microbatch": 8},
        "algorithm": {"minibatches": 2},
        "evaluation": {"every": 2},
        "optimizer": {"warmup_steps": 1},
    },
    "methods": {
        "supervised+nlpo": {"tethers": {"nlpo_mask": {"refresh": TWICE}}},
        "supervised+elastic-reset": {"tethers": {"elastic_reset": {"reset": TWICE}}},
    },
}
"""A rehearsal on a CPU: every step of the study, no number of a meaning."""
QUICK_MODEL = {"path": str(ASSETS / "model"), "lora": {"rank": 4, "alpha": 8.0}}


def wanted(cell: Cell) -> bool:
    """Whether the study has a cell."""
    if cell.method.name in grue_ablations.LAYERS:
        return cell.task == grue_ablations.TASK
    pilot = cell.method.name == "ppo" and cell.task not in WITHOUT_WARM_START
    return cell.seed == 0 if pilot else True


def learning_rates() -> dict[str, float]:
    """Task -> what its pilot has found, of those that have one."""
    found = json.loads(PILOT.read_text(encoding="utf-8")) if PILOT.is_file() else {}
    return {task: float(x["lr"]) for task, x in found.items()}


def settings(quick: bool = False) -> dict[str, Any]:
    """The settings file's content, with the learning rates of pilots; a rehearsal's is the same
    with less of everything."""
    found: dict[str, Any] = read_yaml(SETTINGS)
    for task, lr in learning_rates().items():
        tuned = found["tasks"][task].get("tuned", {})
        found["tasks"][task]["tuned"] = merge(tuned, {"algorithm": {"lr": lr}})
    if not quick:
        return found
    for layer, values in QUICK.items():
        found[layer] = merge(found.get(layer, {}), values)
    for task, terms in found["tasks"].items():
        for layer, values in QUICK.items():
            terms[layer] = merge(terms.get(layer, {}), values)
        if task in GROUPS["smollm2"]:
            terms["all"]["model"] = {**QUICK["all"]["model"], **QUICK_MODEL}
    return found


def write_settings(quick: bool, ablations: bool = False) -> Path:
    """Into the working folder."""
    file = Path("settings.yaml")
    found = settings(quick)
    if ablations:
        found["tasks"][grue_ablations.TASK]["methods"] = grue_ablations.LAYERS
    write_yaml(file, found)
    return file


def asked(
    tasks: Sequence[str], file: Path, seeds: Sequence[int] = SEEDS, ablations: bool = False
) -> Asked:
    """The options of `tether grue run`."""
    more = tuple(grue_ablations.LAYERS) if ablations else ()
    return Asked(
        tasks=list(tasks), methods=(*METHODS, *more), seeds=list(seeds), data=Path("data"),
        out=OUT, settings=file,
    )  # fmt: skip


def options(tasks: Sequence[str], args: Namespace) -> Asked:
    """Those that a call of `benchmarks.grue_real` gives, its settings written."""
    file = write_settings(args.quick, args.ablations)
    return asked(tasks, file, args.seeds, args.ablations)


def planned(options: Asked) -> tuple[Plan, list[tuple[Cell, Job]]]:
    """All cells of the study on some tasks, with their settings."""
    return planned_of(options, wanted)


def classifier_words(which: str, model: Mapping[str, Any], quick: bool) -> list[str]:
    """Words of `tether train` for a classifier on the backbone of a task's policy."""
    data = ["data/intents/train.jsonl.gz", "data/intents/validation.jsonl.gz"]
    if which == "sentiment":  # where the pack does not have that of the first study on IMDB
        data = ["data/imdb/train.jsonl.gz", "data/imdb/validation.jsonl.gz"]
    words = [
        "train", "imdb-classifier", "--root", "classifiers", "--name", which,
        "--data.path", data[0], "--data.validation", data[1], "--data.test", "null",
        "--data.text", "text", "--data.label", "label", "--half", "all",
        "--epochs", "1", "--lr", "3e-4", "--batch_size", "64", "--crop_tokens", "[64, 192]",
        "--evaluate_crops", "[]", "--model.path", model["path"], "--model.lora.rank", "8",
    ]  # fmt: skip
    for key in ("gguf_file", "tokenizer"):
        if model.get(key):
            words += [f"--model.{key}", model[key]]
    if quick:
        words += ["--share", "0.2", "--model.device", "cpu", "--batch_size", "8"]
    return words


def console() -> Console:
    return Console(width=160, force_terminal=False)
