"""What the types cannot say: ranges, and values that do not fit together. One line each."""

from __future__ import annotations

import math
from typing import Any

from tether.config.errors import UserError
from tether.config.run import AfterSettings, ClassifierSettings, ModelSettings, RunSettings

LONGEST_NAME = 200
"""Bytes of a run's name: file systems take 255, and files beside the folder have longer names."""
_AT_LEAST: dict[str, float] = {
    "updates": 0,
    "threads": 1,
    "batch.prompts": 1,
    "batch.microbatch": 1,
    "sampling.max_new_tokens": 1,
    "sampling.min_new_tokens": 0,
    "sampling.top_k": 0,
    "sampling.chunk": 1,
    "evaluation.every": 1,
    "evaluation.prompts": 1,
    "evaluation.test_prompts": 0,
    "evaluation.human_rows": 0,
    "evaluation.human_tokens": 2,
    "evaluation.samples": 0,
    "evaluation.test_samples": 0,
    "data.validation_rows": 0,
    "data.test_rows": 0,
    "data.prompt_tokens": 1,
    "data.max_prompt_tokens": 1,
    "data.limit": 1,
    "checkpoint.every": 0,
    "checkpoint.keep": 1,
    "after.samples": 2,
    "after.prompts": 1,
    "optimizer.weight_decay": 0,
    "optimizer.max_grad_norm": 0,
    "optimizer.warmup_steps": 0,
    "model.lora.rank": 1,
    "epochs": 1,
    "batch_size": 1,
    "bins": 1,
    "max_tokens": 1,
    "warmup_ratio": 0,
    "weight_decay": 0,
}
_ABOVE_ZERO = ("sampling.temperature", "optimizer.eps", "critic.lr", "lr", "model.lora.alpha")


def check_together(settings: RunSettings | ClassifierSettings, where: str = "") -> None:
    """Raises UserError for the first value that is out of range or does not fit another."""
    place = f" in {where}" if where else ""
    for path, least in _AT_LEAST.items():
        value = _get(settings, path)
        if value is not None and value < least:
            raise UserError(f"{path}{place} is {value}, must be at least {least:g}")
    for path in _ABOVE_ZERO:
        value = _get(settings, path)
        if value is not None and value <= 0:
            raise UserError(f"{path}{place} is {value}, must be greater than 0{_greedy(path)}")
    if isinstance(settings, RunSettings):
        _check_run(settings, place)
    else:
        _check_classifier(settings, place)
    if not settings.name or "/" in settings.name or settings.name in (".", ".."):
        raise UserError(f"name{place} is '{settings.name}', must name a folder under root")
    if (size := len(settings.name.encode())) > LONGEST_NAME:
        raise UserError(f"name{place} has {size} bytes; a folder's name has at most {LONGEST_NAME}")
    for key in ("name", "root"):
        if not getattr(settings, key).isprintable():
            raise UserError(f"{key}{place} is {getattr(settings, key)!r}, must be printable text")


def _check_model(model: ModelSettings, place: str) -> None:
    if model.compile and model.gradient_checkpointing:
        raise UserError(
            f"model.compile{place} cannot stand beside model.gradient_checkpointing, which would"
            " run the plain layers again; leave one out"
        )


def _check_classifier(s: ClassifierSettings, place: str) -> None:
    if s.crop_tokens[0] > s.crop_tokens[1] or s.crop_tokens[0] < 1:
        raise UserError(f"crop_tokens{place} is {list(s.crop_tokens)}, must be [low, high]")
    if any(n < 1 for n in s.evaluate_crops):
        raise UserError(
            f"evaluate_crops{place} is {s.evaluate_crops}, must be lengths of at least 1 token"
        )
    if not 0 < s.share <= 1:
        raise UserError(f"share{place} is {s.share:g}, must be above 0 and at most 1")
    if s.microbatch is not None and s.microbatch < 1:
        raise UserError(f"microbatch{place} is {s.microbatch}, must be at least 1")
    if s.kind == "pairs" and s.pairs.chosen == s.pairs.rejected:
        raise UserError(
            f"pairs.chosen and pairs.rejected{place} are both '{s.pairs.chosen}': name two columns"
        )


def _greedy(path: str) -> str:
    return "; evaluation.sampling.greedy decodes greedily" if path.endswith("temperature") else ""


def _get(settings: Any, path: str) -> Any:
    for name in path.split("."):
        settings = getattr(settings, name, None)
    return settings


def _check_run(s: RunSettings, place: str) -> None:
    _check_top_p(s, place)
    _check_model(s.model, place)
    if not all(0 <= b < 1 for b in s.optimizer.betas):
        raise UserError(f"optimizer.betas{place} is {list(s.optimizer.betas)}, must be in [0, 1)")
    if s.sampling.greedy:
        raise UserError(
            f"sampling.greedy{place} leaves nothing to learn from; "
            "for greedy evaluation set evaluation.sampling.greedy"
        )
    if s.sampling.min_new_tokens > s.sampling.max_new_tokens:
        raise UserError(
            f"sampling.min_new_tokens{place} is {s.sampling.min_new_tokens}, more than "
            f"sampling.max_new_tokens {s.sampling.max_new_tokens}"
        )
    if any(b <= 0 for b in s.evaluation.budgets):
        raise UserError(f"evaluation.budgets{place} must be nats greater than 0")
    _check_after(s, place)
    minibatches = s.algorithm.get("minibatches", 1)
    group = s.algorithm.get("group_size", 1)
    if isinstance(minibatches, int) and isinstance(group, int) and minibatches > 0 and group > 0:
        _check_divides(s.batch.prompts, group, minibatches, place)
        of_critic = s.algorithm.get("critic_minibatches")
        if isinstance(of_critic, int) and of_critic > 0:
            _check_divides(s.batch.prompts, group, of_critic, place, "critic_minibatches")


def _check_top_p(s: RunSettings, place: str) -> None:
    for where, sampling in (("", s.sampling), ("evaluation.", s.evaluation.sampling)):
        p = 1.0 if sampling is None else sampling.top_p
        if not 0 < p <= 1:
            raise UserError(f"{where}sampling.top_p{place} is {p}, must be in (0, 1]")
        if 1 - 2**-25 <= p < 1:
            raise UserError(
                f"{where}sampling.top_p{place} is {p!r}, which is 1 in fp32 and would allow every "
                "token: lower it, or set it to 1 = off"
            )


def _check_after(s: RunSettings, place: str) -> None:
    """Whether or not a step is on: what is written must be possible."""
    a = s.after
    if not a.shares or not all(0 <= x <= 1 for x in a.shares):
        raise UserError(f"after.shares{place} is {a.shares}, must be numbers from 0 to 1")
    if not a.how:
        raise UserError(f"after.how{place} is empty; linear is the plain one")
    if a.oracle and a.samples < 16:
        raise UserError(
            f"after.samples{place} is {a.samples}: the oracle frontier needs at least 16 (256 are "
            "valid to 4.5 nats)"
        )
    greedy = s.evaluation.sampling is not None and s.evaluation.sampling.greedy
    if greedy and (a.best_of_n or a.oracle):
        raise UserError(
            f"evaluation.sampling.greedy{place}: greedy completions of a prompt are all the same; "
            "after.best_of_n and after.oracle need sampling"
        )
    if a.interpolate and "product" in a.how and s.model.lora is None:
        raise UserError(
            f"after.how{place}: product is for adapters; without model.lora it is linear: say that"
        )
    wanted = a.best_of_n or a.oracle or a.interpolate
    plain, unread = AfterSettings(), []
    if not (a.best_of_n or a.oracle):
        unread += [(n, "best_of_n or oracle") for n in ("samples", "prompts")]
    if not a.interpolate:
        unread += [(n, "interpolate") for n in ("shares", "how")]
    for name, step in unread:
        if getattr(a, name) != getattr(plain, name):
            raise UserError(
                f"after.{name}{place} has no effect: after.{step.replace(' or ', ' and after.')} "
                f"{'are' if ' or ' in step else 'is'} off"
            )
    if wanted and a.split == "test" and not s.evaluation.test_prompts:
        raise UserError(f"after.split{place} is test, and evaluation.test_prompts is 0")


def _check_divides(
    prompts: int, group: int, minibatches: int, place: str, what: str = "minibatches"
) -> None:
    """Sequences of an update fall into equal minibatches."""
    sequences = prompts * group
    if sequences % minibatches == 0:
        return
    step = minibatches // math.gcd(group, minibatches)  # prompts that fit are its multiples
    below = prompts // step * step
    nearest = " or ".join(str(p) for p in (below, below + step) if p > 0)
    raise UserError(
        f"batch.prompts {prompts} x algorithm.group_size {group} = {sequences} sequences{place} do "
        f"not divide into {minibatches} {what}; nearest batch.prompts: {nearest}"
    )


def check_complete(settings: RunSettings | ClassifierSettings) -> None:
    """Raises UserError for what every run needs and recipes leave to the user."""
    bag_of_words = isinstance(settings, ClassifierSettings) and settings.kind == "tfidf"
    if not settings.model.path and not bag_of_words:
        raise UserError("no model: give --model HUB_ID_OR_FOLDER")
    if not settings.data.path:
        raise UserError("no data: give --data HUB_ID_OR_FILE (.jsonl, .csv, .parquet)")
    if not isinstance(settings, RunSettings):
        return
    own = settings.environment.get("kind") != "single_turn"  # an environment may bring rewards
    if not settings.rewards and not own and settings.algorithm.get("writer") != "data":
        raise UserError(
            "no reward: give --reward file.py:function, a classifier's folder or hub id, or a "
            "built-in (tether list)"
        )
