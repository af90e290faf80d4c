"""Ablations of the real runs: supervised + PPO on Multi30k with one thing changed, three seeds.

    --ablations of `benchmarks.grue_real`, in every call of the study

RL4LMs (Ramamurthy et al., arXiv 2210.01241, section 5.4) leaves dropout off in RL, and says of
translation that training and inference should sample alike, or a reward does not carry over. Each
function below is a method of the benchmark, `supervised+benchmarks.grue_ablations:NAME`, and is
`supervised+ppo` but for its layer in `LAYERS`.

    dropout     the model's own dropout is on in the update (never in sampling or scoring);
                against supervised+ppo, where it is off
    mismatched  training samples from the likeliest 50 tokens, evaluation takes the likeliest;
    matched     the same training, and evaluation samples as training does: against `mismatched`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tether.config.compose import recipe

TASK = "multi30k"
START = "supervised"
SAMPLING = {"top_k": 50}


def dropout() -> dict[str, Any]:
    """PPO as the task has it."""
    return recipe("grue-iwslt-supervised-ppo")


def mismatched() -> dict[str, Any]:
    """PPO as the task has it."""
    return recipe("grue-iwslt-supervised-ppo")


def matched() -> dict[str, Any]:
    """PPO as the task has it."""
    return recipe("grue-iwslt-supervised-ppo")


LAYERS: dict[str, dict[str, Any]] = {
    f"{START}+{__name__}:dropout": {"model": {"dropout": True}},
    f"{START}+{__name__}:mismatched": {"sampling": SAMPLING},
    f"{START}+{__name__}:matched": {
        "sampling": SAMPLING,
        "evaluation": {"sampling": {"greedy": False, **SAMPLING}},
    },
}
"""Method -> what it changes."""
NAMES = {
    f"{START}+{__name__}:dropout": "supervised+ppo, dropout on",
    f"{START}+{__name__}:mismatched": "supervised+ppo, top-50 in training, greedy after",
    f"{START}+{__name__}:matched": "supervised+ppo, top-50 in training and after",
}
"""Method -> what the tables call it."""
_HEAD = (
    "Ablations: rows called `supervised+ppo, ...` are supervised+ppo with that one thing changed."
)
_DROPOUT = "In the update dropout has the rate that the model was pretrained with (.1)."
_SAMPLING = (
    "Where training samples from the likeliest 50 tokens (supervised+ppo: 10), evaluation takes "
    "the likeliest token, or samples as training does; the two compare a policy's own decoding "
    "with another's, and a sampled row is to be read against its own initial weights, not against "
    "greedy rows."
)


def note(methods: Iterable[str]) -> str:
    """What those of them that are ablations are; empty where none is."""
    arms = {m.rpartition(":")[2] for m in methods if m in LAYERS}
    told = [_HEAD, *[_DROPOUT] * ("dropout" in arms), *[_SAMPLING] * bool(arms - {"dropout"})]
    return " ".join(told) if arms else ""
