"""Walks an RL4LMs configuration through its schema, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tether.config.errors import UserError
from tether.integrations import rl4lms_schema as schema
from tether.integrations.rl4lms_schema import check_block, known


def check(config: Mapping[str, Any], where: str) -> None:
    """Raises UserError, one line naming the place, for the first thing that is not RL4LMs'."""
    check_block(config, schema.TOP, "", where)
    check_block(config["tokenizer"], schema.TOKENIZER, "tokenizer", where)
    _pool(config["datapool"], config["alg"], where)
    kind = config["alg"].get("id")
    if kind is None:
        raise UserError(f"{where}: alg.id is missing; one of {', '.join(schema.ALGORITHMS)}")
    if not isinstance(kind, str):
        raise UserError(f"{where}: alg.id is {schema.shown(kind)}, it must be text")
    known("algorithm", kind, schema.ALGORITHMS, "alg.id", where)
    if kind == "supervised":
        _supervised(config, where)
    else:
        _reinforcement(config, kind, where)
    for i, metric in enumerate(config["train_evaluation"].get("metrics") or []):
        path = f"train_evaluation.metrics.{i}"
        if not isinstance(metric, Mapping):
            raise UserError(f"{where}: {path} is {schema.shown(metric)}, it must be a mapping")
        check_block(metric, schema.NAMED, path, where)
        known("metric", metric["id"], schema.METRICS, f"{path}.id", where)


def _pool(pool: Mapping[str, Any], alg: Mapping[str, Any], where: str) -> None:
    check_block(pool, schema.NAMED, "datapool", where)
    known("data pool", pool["id"], schema.POOLS, "datapool.id", where)
    keys = dict(schema.POOLS[pool["id"]])
    if alg.get("id") == "emappo" or _forked(alg):
        keys |= {k: schema.Key(v.kind) for k, v in keys.items()}  # the fork's imdb has seed 0
    check_block(pool.get("args") or {}, keys, "datapool.args", where)


def _forked(alg: Mapping[str, Any]) -> bool:
    args = alg.get("args")
    return isinstance(args, Mapping) and "ema_decay" in args


def _supervised(config: Mapping[str, Any], where: str) -> None:
    alg = config["alg"]
    check_block(alg, schema.ALG_SUPERVISED, "alg", where)
    check_block(alg["training_args"], schema.TRAINING, "alg.training_args", where, open_=True)
    _generation(alg["generation_kwargs"], "alg.generation_kwargs", where)
    check_block(config["train_evaluation"], schema.EVALUATION_SUPERVISED, "train_evaluation", where)


def _reinforcement(config: Mapping[str, Any], kind: str, where: str) -> None:
    for name in ("reward_fn", "env"):
        if name not in config:
            raise UserError(f"{where}: {name} is missing; RL4LMs needs it too (alg.id is {kind})")
    reward = config["reward_fn"]
    if reward.get("expand") or "values" in reward:
        raise UserError(
            f"{where}: reward_fn holds a sweep (expand, values); write one configuration for each "
            "reward_fn and import them one by one"
        )
    check_block(reward, schema.NAMED, "reward_fn", where)
    known("reward", reward["id"], schema.REWARDS, "reward_fn.id", where)
    arguments = schema.REWARDS[reward["id"]]
    if arguments is not None:
        check_block(reward.get("args") or {}, arguments, "reward_fn.args", where)
    shaping = (reward.get("args") or {}).get("shaping_fn")
    if shaping is not None:
        known("reward", shaping, schema.REWARDS, "reward_fn.args.shaping_fn", where)
    check_block(config["env"], schema.ENV, "env", where)
    check_block(config["env"]["args"], schema.ENV_ARGS, "env.args", where)
    alg = config["alg"]
    check_block(alg, schema.ALG, "alg", where)
    check_block(alg["args"], schema.ALGORITHMS[kind], "alg.args", where)
    check_block(alg["kl_div"], schema.KL_DIV, "alg.kl_div", where)
    check_block(alg["policy"], schema.POLICY, "alg.policy", where)
    known("policy", alg["policy"]["id"], schema.POLICIES, "alg.policy.id", where)
    masked = alg["policy"]["id"].startswith("maskable_")
    if masked != (kind == "nlpo"):
        raise UserError(
            f"{where}: alg.policy.id {alg['policy']['id']} does not go with alg.id {kind}: a "
            "maskable policy and nlpo need each other"
        )
    keys = schema.POLICY_ARGS | (schema.MASK_ARGS if masked else {})
    args = alg["policy"]["args"]
    check_block(args, keys, "alg.policy.args", where)
    _generation(args.get("generation_kwargs") or {}, "alg.policy.args.generation_kwargs", where)
    evaluation = config["train_evaluation"]
    keys = schema.EVALUATION | schema.EVALUATION_FORK
    check_block(evaluation, keys, "train_evaluation", where)
    _generation(
        evaluation.get("generation_kwargs") or {}, "train_evaluation.generation_kwargs", where
    )


def _generation(block: Mapping[str, Any], path: str, where: str) -> None:
    check_block(block, schema.GENERATION, path, where, open_=True)
