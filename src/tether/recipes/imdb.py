"""The IMDB study: continue a film review so that a classifier finds it positive.

    tether train imdb-supervised                    # 1. the model of film reviews
    tether train imdb-classifier                    # 2. the reward
    tether train imdb-judge                         #    and a judge that is never a reward
    tether train imdb-ppo-kl --seed 0               # 3. the methods, any number of seeds
    tether compare imdb-ppo imdb-ppo-kl imdb-elastic-reset --seeds 3

Data: Maas et al. 2011 (hub id stanfordnlp/imdb; columns text, label). Protocol: 64-token prompts,
at most 48 new tokens with EOS allowed, temperature 1 without truncation, 256 completions an update,
40 updates; 1,024 validation prompts every 5 updates; 5,000 test prompts at the end. The same 1,536
training reviews are held out everywhere, so no model is trained on a validation text.
"""

from __future__ import annotations

from typing import Any

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
DATA = "stanfordnlp/imdb"
REVIEW_MODEL = "runs/imdb-supervised/policy"
LORA = {"rank": 8, "alpha": 16.0}
LABELLED = {
    "path": DATA,
    "text": "text",
    "label": "label",
    "validation_rows": 1536,
    "test": "test",
}
CLASSIFIER = "runs/imdb-classifier/classifier"
JUDGE = "runs/imdb-judge/judge.json"


def supervised() -> dict[str, Any]:
    """The film-review model: maximum likelihood on whole IMDB reviews, one pass.

    Hardware: one GPU of 16 GB. Time: 6 minutes on an H100 shared with `imdb-classifier`. Memory:
    11.5 GB at microbatch 64.
    Command: tether train imdb-supervised
    """
    return {
        "name": "imdb-supervised",
        "updates": 180,
        "model": {"path": MODEL, "lora": LORA},
        "data": {
            "path": DATA,
            "text": "text",
            "prompt_tokens": 8,
            "label": "label",
            "validation_rows": 1536,
            "test": "test",
        },
        "sampling": {"max_new_tokens": 160},
        "batch": {"prompts": 128, "microbatch": 32},
        "algorithm": {"kind": "supervised", "lr": 3e-4, "epochs": 1, "minibatches": 4},
        "optimizer": {"schedule": "linear", "warmup_steps": 20},
        "evaluation": {"every": 50, "prompts": 128, "human_rows": 256},
    }


def classifier() -> dict[str, Any]:
    """The reward: a sentiment classifier on the same backbone, trained on the first half of the
    labels and on crops of 32 to 256 tokens. Measured: accuracy .941 on the IMDB test split.

    Hardware: one GPU of 16 GB. Time: 7 minutes on an H100 shared with `imdb-supervised`. Memory:
    not measured.
    Command: tether train imdb-classifier
    """
    return {
        "job": "classifier",
        "name": "imdb-classifier",
        "model": {"path": MODEL, "lora": LORA},
        "data": dict(LABELLED),
        "half": "first",
        "epochs": 2,
        "lr": 3e-4,
        "batch_size": 32,
        "crop_tokens": [32, 256],
        "evaluate_crops": [112],
    }


def judge() -> dict[str, Any]:
    """The judge that is never a reward: TF-IDF and logistic regression on the second half of the
    labels, which the classifier has not seen.

    Hardware: a CPU. Time: 1 minute, accuracy .897 on the IMDB test split. Memory: not measured.
    Command: tether train imdb-judge
    """
    return {
        "job": "classifier",
        "kind": "tfidf",
        "name": "imdb-judge",
        "data": dict(LABELLED),
        "half": "second",
        "evaluate_crops": [],
    }


def ppo() -> dict[str, Any]:
    """PPO without a tether on IMDB: how far the classifier can be gamed.

    Hardware: one GPU of 16 GB. Time: 228 s for the updates and 67 s for the evaluations, test
    prompts apart, on two H200 shared by three runs. Memory: 13.2 GB at microbatch 32.
    Command: tether train imdb-ppo --seed 0
    """
    return {
        "updates": 40,
        "model": {"path": REVIEW_MODEL},
        "data": {
            "path": DATA,
            "text": "text",
            "prompt_tokens": 64,
            "label": "label",
            "validation_rows": 1536,
            "test": "test",
        },
        "rewards": {"reward": {"kind": "classifier", "path": CLASSIFIER}},
        "judges": {"tfidf": {"kind": "tfidf", "path": JUDGE}},
        "sampling": {"max_new_tokens": 48, "temperature": 1.0, "chunk": 256},
        "batch": {"prompts": 256, "microbatch": 64},
        "algorithm": {"kind": "ppo", "lr": 4e-5, "epochs": 2, "minibatches": 4},
        "evaluation": {"every": 5, "prompts": 1024, "test_prompts": 5000, "human_rows": 256},
        "checkpoint": {"every": 10},
    }


def ppo_kl() -> dict[str, Any]:
    """PPO with a KL penalty on IMDB; the study sweeps the coefficient over .003, .01, .03, .1.

    Hardware, time, memory: as `imdb-ppo`; the initial model is scored with or without a penalty.
    Command: tether train imdb-ppo-kl --seed 0 --tethers.kl.coef .03
    """
    return {**ppo(), "tethers": {"kl": {"kind": "kl", "coef": 0.03}}}


def elastic_reset() -> dict[str, Any]:
    """PPO with Elastic Reset on IMDB: period 17 updates, decay .995 an update, no KL penalty.

    Hardware, time: as `imdb-ppo`. Memory: one more fp32 copy of what trains (13.7 GB measured).
    Command: tether train imdb-elastic-reset --seed 0
    """
    return {
        **ppo(),
        "tethers": {
            "elastic_reset": {
                "kind": "elastic_reset",
                "reset": {"kind": "every", "n": 17, "unit": "update"},
                "average": {"kind": "every", "n": 1, "unit": "update"},
                "decay": 0.995,
            }
        },
    }
