"""`tether grue run --mini`: the benchmark from end to end on generated sets and a bundled model.

It shows that everything works, offline, on two cores. Numbers on 12 test rows and a model of a
million parameters mean nothing. What needs a further model (the classifiers, BERTScore, SPICE,
BLEURT, SummaC) or WordNet is replaced: a word list for the sentiment of reviews, METEOR without
synonyms, perplexity for naturalness.
"""

from __future__ import annotations

from typing import Any

from tether.recipes.toy import ASSETS
from tether.studies.grue.terms import Terms

PRAISE = {
    "kind": "lexicon",
    "path": str(ASSETS / "reward" / "lexicon.json"),
    "squash": "sigmoid",
    "scale": 1.0,
}
METEOR = {"kind": "meteor", "synonyms": False}
METHODS = ("zero-shot", "supervised", "supervised+ppo", "supervised+nlpo")
PENALTY = {"repeat_penalty": {"kind": "repeat_penalty"}}


def _meteor(**more: Any) -> dict[str, Any]:
    return {"meteor": {"kind": "metric", "metric": METEOR}, **more}


def terms() -> Terms:
    """For every task."""
    return Terms(
        all={
            "model": {"path": str(ASSETS / "model"), "dtype": "float32", "device": "cpu"},
            "data": {"path": "mini", "max_prompt_tokens": 96, "validation_rows": 12},
            "sampling": {"max_new_tokens": 24, "min_new_tokens": 4, "top_k": 0, "chunk": 64},
            "evaluation": {
                "every": 3,
                "prompts": 12,
                "test_prompts": 12,
                "human_rows": 12,
                "human_tokens": 96,
                "budgets": [1.0, 2.0, 4.0, 8.0, 16.0],
                "samples": 4,
            },
            "checkpoint": {"every": 3, "keep": 1},
        },
        tuned={
            "updates": 6,
            "batch": {"prompts": 24, "microbatch": 24},
            "algorithm": {"lr": 3e-4, "epochs": 1, "minibatches": 4},
        },
        demonstrations={
            "updates": 9,
            "batch": {"prompts": 24, "microbatch": 24},
            "algorithm": {"lr": 1e-3, "epochs": 1, "minibatches": 4},
        },
        naturalness=["perplexity"],
        parts={"meteor": METEOR},
    )


def of_task(task: str) -> Terms:
    """What a single task has besides."""
    if task == "imdb":
        return Terms(
            all={"rewards": {"praise": PRAISE}},
            metrics=["praise"],
            parts={"praise": {"kind": "preference", "model": PRAISE, "maximum": 1.0}},
        )
    if task == "commongen":
        return Terms(all={"rewards": _meteor(**PENALTY)})
    if task == "dailydialog":
        return Terms(all={"rewards": _meteor()}, metrics=["meteor", "rouge_1", "sacre_bleu"])
    if task == "totto":
        return Terms(all={"rewards": _meteor()})
    if task == "cnn_dailymail":
        return Terms(metrics=["rouge_1", "rouge_2", "rouge_l", "rouge_lsum", "meteor", "bleu"])
    return Terms()
