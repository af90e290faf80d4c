"""RL4LMs' per-task rewards as mappings for `rewards:` of a run.

Each function gives {name: part}; what a run adds is the weighted sum, so a composition is its parts
with weights. Source: allenai/RL4LMs@97df0bd, reward.py and scripts/training/task_configs.
"""

from __future__ import annotations

from typing import Any

Parts = dict[str, dict[str, Any]]


def metric(name: str, references: str = "references", **settings: Any) -> dict[str, Any]:
    """One metric as a reward."""
    return {"kind": "metric", "metric": {"kind": name, **settings}, "references": references}


def meteor(references: str = "references") -> Parts:
    """METEOR alone."""
    return {"meteor": metric("meteor", references)}


def meteor_with_repeat_penalty(references: str = "references") -> Parts:
    """CommonGen: METEOR - [the prompt is echoed]."""
    return {**meteor(references), "repeat_penalty": {"kind": "repeat_penalty"}}


def spider_with_repeat_penalty(
    frequencies: str, references: str = "references", spice: float = 0.5, cider: float = 0.5
) -> Parts:
    """CommonGen: SPIDEr - [the prompt is echoed]. frequencies: of CIDEr-D, a file; RL4LMs takes
    them from the batch, so that a score depends on its neighbours."""
    return {
        "spice": {**metric("spice", references), "weight": spice},
        "cider_d": {**metric("cider_d", references, frequencies=frequencies), "weight": cider},
        "repeat_penalty": {"kind": "repeat_penalty"},
    }


def preference_with_concept_penalty(
    path: str, references: str = "references", concepts: str = "concepts"
) -> Parts:
    """CommonGen: METEOR + P(preferred) / (1 + missing concepts); path: of the preference model, a
    reward model of pairs (the probability is the sigmoid of its score) or a classifier."""
    liked = {"kind": "classifier", "path": path, "output": "probability"}
    return {
        "preference": {
            "kind": "concept_preference", "preference": liked,
            "references": references, "concepts": concepts,
        }
    }  # fmt: skip


def intent_and_meteor(
    path: str, references: str = "references", intent: float = 0.75, overlap: float = 0.25
) -> Parts:
    """DailyDialog: intent [right] + overlap METEOR; path: of the intent classifier. RL4LMs averages
    METEOR over the episodes that ended before in the batch: here it is the sample's own."""
    right = metric("intent_accuracy", references, classifier={"path": path})
    return {
        "intent": {**right, "weight": intent},
        "meteor": {**metric("meteor", references), "weight": overlap},
    }


def rouge_combined(references: str = "references") -> Parts:
    """Summaries: mean of ROUGE-1, 2 and L against the first reference."""
    names = ("rouge_1", "rouge_2", "rouge_l")
    return {
        name: {**metric(name, references, several="first"), "weight": 1.0 / 3.0} for name in names
    }
