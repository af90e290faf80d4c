"""The tables of the IMDB study on docs/results.md: which rows, which columns, what they mean."""

from __future__ import annotations

from typing import Any

_BUDGETS = {f"at_{b}": f"{b} nat{'s' if b > 1 else ''}" for b in (1, 2, 4, 8, 16)}
_WHO = {"method": "Method", "setting": "Setting"}
_NATURAL = {
    "judge": "Judge",
    "perplexity": "Perplexity",
    "perplexity_negative": "negative reviews",
    "perplexity_positive": "positive reviews",
    "perplexity_other": "other domain",
    "entropy": "Entropy",
    "distinct_2": "Distinct-2",
    "common_4grams": "Common 4-grams",
    "length": "Length",
}

TABLES: list[dict[str, Any]] = [
    {
        "title": "Methods",
        "rows": ["initial", "method"],
        "columns": {**_WHO, "reward_test": "Final reward", "drift_test": "Final drift", **_BUDGETS},
        "text": "Reward on the reported prompts, drift in nats per completion. At each budget: the "
        "best validation checkpoint with at most that drift, over all settings of the method. The "
        "final weights are those of the setting chosen at 4 nats.",
    },
    {
        "title": "Areas",
        "rows": ["method"],
        "columns": {
            "method": "Method",
            "area_16": "Area 0 to 16 nats",
            "area_4": "Area 0 to 4 nats",
            "failed_runs": "Failed runs",
        },
        "text": "Mean over budgets of (reward at the budget - initial reward) / (1 - initial "
        "reward).",
    },
    {
        "title": "Settings",
        "rows": ["setting"],
        "columns": {**_WHO, "reward_test": "Final reward", "drift_test": "Final drift", **_BUDGETS},
        "text": "The same, each setting by itself.",
    },
    {
        "title": "What it cost",
        "rows": ["initial", "setting"],
        "columns": {**_WHO, **_NATURAL},
        "text": "Final weights. Judge: mean on the validation samples. Perplexity of the policy on "
        "human reviews, by their label, and on text of another domain. Entropy in nats per token; "
        "distinct-2 and the share of the commonest 4-grams over the validation samples; length in "
        "tokens.",
    },
    {
        "title": "Every run",
        "rows": ["run"],
        "columns": {
            **_WHO,
            "reward_validation": "Validation reward",
            "drift_validation": "drift",
            "reward_test": "Test reward",
            "reward_test_se": "standard error",
            "drift_test": "drift",
            "judge_test": "Judge, test",
            "updates": "Updates",
            "failed": "Failed",
        },
        "text": "Final weights of each run.",
    },
    {
        "title": "Every run at drift budgets",
        "rows": ["run"],
        "columns": {**_WHO, **_BUDGETS},
        "text": "Test reward of the best validation checkpoint of that run alone within the "
        "budget.",
    },
    {
        "title": "Every run: what it cost",
        "rows": ["run"],
        "columns": {**_WHO, **_NATURAL},
        "text": "",
    },
    {
        "title": "Resets",
        "rows": ["run"],
        "columns": {
            **_WHO,
            "reset_at": "Reset after update",
            "reward_before": "Reward before",
            "reward_after": "after",
            "drift_before": "Drift before",
            "drift_after": "after",
            "regained_after": "Updates until regained",
            "regained_at_drift": "Drift then",
        },
        "text": "Validation, both sides of each reset. Regained: the first evaluation with at least"
        " the reward of before; - means not before the next reset or the end.",
    },
    {
        "title": "Reward model and judge",
        "rows": ["classifier"],
        "columns": {
            "model": "Model",
            "use": "Use",
            "split": "Split",
            "reviews": "Reviews",
            "accuracy": "Accuracy",
            "accuracy_112": "on 112-token excerpts",
            "training_reviews": "Training reviews",
        },
        "text": "Trained on different halves of the labels.",
    },
]
