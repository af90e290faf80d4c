"""Algorithm, KL penalty, NLPO's mask, Elastic Reset, optimizer."""

from __future__ import annotations

from typing import Any

from tether.config.catalog import CATALOG
from tether.config.errors import UserError
from tether.integrations.rl4lms_draft import Draft
from tether.integrations.rl4lms_rollout import batch
from tether.integrations.rl4lms_units import fitting

ARGS = "alg.args"
MASK = "alg.policy.args"
RUN = "train_evaluation"
KINDS = {"ppo": "ppo", "nlpo": "ppo", "emappo": "ppo", "a2c": "a2c", "trpo": "trpo"}
"""alg.id -> kind of the algorithm."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {"learning_rate": 3e-4, "n_steps": 2048, "batch_size": 64, "n_epochs": 10},
    "a2c": {"learning_rate": 7e-4, "n_steps": 5},
    "trpo": {"learning_rate": 1e-3, "n_steps": 2048, "batch_size": 128},
}
"""RL4LMs' own, from its constructors."""
WITHOUT_EFFECT = {
    "verbose": "what is printed",
    "tensorboard_log": "logging.tensorboard true writes for TensorBoard",
    "create_eval_env": "evaluation has its own prompts",
    "use_sde": "acts on continuous actions only",
    "sde_sample_freq": "acts on continuous actions only",
    "device": "model.device says where; auto is the first accelerator",
}


def method(draft: Draft, released: bool) -> None:
    """Everything under `algorithm`, `tethers`, `critic` and `optimizer`."""
    kind = KINDS[draft.get("alg.id")]
    draft.put("algorithm.kind", kind, f"alg.id {draft.get('alg.id')}")
    missing = "" if kind in CATALOG["algorithm"] else f"no algorithm '{kind}' in this version"
    draft.note("alg.id", "none" if missing else "carried", "algorithm.kind", missing)
    defaults = DEFAULTS[kind]
    draft.carry(f"{ARGS}.learning_rate", "algorithm.lr", defaults["learning_rate"])
    {"ppo": _ppo, "a2c": _a2c, "trpo": _trpo}[kind](draft, defaults)
    for key, why in WITHOUT_EFFECT.items():
        if draft.given(f"{ARGS}.{key}"):
            draft.note(f"{ARGS}.{key}", "ignored", why=why)
    _seed(draft)
    _kl(draft, *_resets(draft))
    if draft.get("alg.id") == "nlpo":
        _mask(draft, released)
    _optimizer(draft)


def _shared(draft: Draft, gae_lambda: float) -> None:
    draft.carry(f"{ARGS}.gamma", "algorithm.gamma", 0.99)
    draft.carry(f"{ARGS}.gae_lambda", "algorithm.gae_lambda", gae_lambda)


def _critic(draft: Draft) -> None:
    old = float(draft.get(f"{ARGS}.vf_coef", 0.5))
    draft.carry(
        f"{ARGS}.vf_coef",
        "algorithm.vf_coef",
        0.5,
        value=2 * old,
        status="changed",
        why="RL4LMs weighs the whole squared error, here half of it: twice the number",
    )
    draft.carry(f"{ARGS}.ent_coef", "algorithm.ent_coef", 0.0)


def _ppo(draft: Draft, defaults: dict[str, Any]) -> None:
    draft.carry(f"{ARGS}.n_epochs", "algorithm.epochs", defaults["n_epochs"])
    epochs = int(draft.get(f"{ARGS}.n_epochs", defaults["n_epochs"]))
    batch(draft, defaults["n_steps"], defaults["batch_size"], epochs)
    _shared(draft, 0.95)
    draft.carry(f"{ARGS}.clip_range", "algorithm.clip_range", 0.2)
    if draft.given(f"{ARGS}.clip_range_vf"):
        draft.carry(f"{ARGS}.clip_range_vf", "algorithm.clip_range_value")
    if draft.given(f"{ARGS}.target_kl"):
        draft.carry(f"{ARGS}.target_kl", "algorithm.target_kl")
    draft.carry(f"{ARGS}.normalize_advantage", "algorithm.normalize_advantages", True)
    _critic(draft)


def _a2c(draft: Draft, defaults: dict[str, Any]) -> None:
    batch(draft, defaults["n_steps"], None, 1)
    _shared(draft, 1.0)
    draft.carry(f"{ARGS}.normalize_advantage", "algorithm.normalize_advantages", False)
    _critic(draft)
    if draft.get(f"{ARGS}.use_rms_prop", True):
        why = "RL4LMs' A2C takes RMSprop (alpha .99, eps 1e-5); here it is AdamW"
        draft.note(f"{ARGS}.use_rms_prop", "none", why=why, value=True)
    else:
        draft.note(f"{ARGS}.use_rms_prop", "carried", "optimizer", "AdamW, as here")
    if draft.given(f"{ARGS}.rms_prop_eps"):
        draft.note(f"{ARGS}.rms_prop_eps", "none", why="there is no RMSprop")


def _trpo(draft: Draft, defaults: dict[str, Any]) -> None:
    """One step of the policy an iteration; the critic learns in minibatches of `batch_size`."""
    r = batch(draft, defaults["n_steps"], None, 1)
    size = int(draft.get(f"{ARGS}.batch_size", defaults["batch_size"]))
    critic = fitting(r.prompts, r.horizon, size)
    why = (
        f"minibatches of the critic: {size} token transitions are {r.prompts // critic} whole "
        f"completions of {r.horizon} here, {critic} minibatches a pass"
    )
    draft.carry(
        f"{ARGS}.batch_size", "algorithm.critic_minibatches", size, value=critic,
        status="changed", why=why,
    )  # fmt: skip
    _shared(draft, 0.95)
    for old, new, default in TRPO:
        draft.carry(f"{ARGS}.{old}", f"algorithm.{new}", default)
    key = f"{ARGS}.sub_sampling_factor"
    every = int(draft.get(key, 1))
    if every > 1:
        value = -(-r.prompts // every)
        why = f"every {every}th token transition there, {value} of {r.prompts} completions here"
        draft.carry(key, "algorithm.fisher_rows", value=value, status="changed", why=why)
    elif draft.given(key):
        draft.note(key, "carried", "algorithm.fisher_rows", "all of them")


TRPO: tuple[tuple[str, str, Any], ...] = (
    ("target_kl", "target_kl", 0.01),
    ("cg_max_steps", "cg_steps", 15),
    ("cg_damping", "damping", 0.1),
    ("line_search_shrinking_factor", "shrink", 0.8),
    ("line_search_max_iter", "backtracks", 10),
    ("n_critic_updates", "critic_epochs", 10),
    ("normalize_advantage", "normalize_advantages", True),
)
"""RL4LMs' name, ours, RL4LMs' default."""


def _seed(draft: Draft) -> None:
    keys = [k for k in (f"{ARGS}.seed", f"{RUN}.seed") if draft.given(k)]
    values = {draft.get(k) for k in keys}
    if len(values) > 1:
        raise UserError(f"{draft.where}: {' and '.join(keys)} differ; keep one of them")
    for key in keys:
        draft.carry(key, "seed")
    if not keys:
        why = "RL4LMs runs without a seed unless it is given; here there always is one"
        draft.put("seed", 0, f"{ARGS}.seed, not given: RL4LMs runs without one")
        draft.note(f"{ARGS}.seed", "changed", "seed", why)


def _kl(draft: Draft, name: str, reference: str) -> None:
    """name: of the tether that takes the penalty: `kl`, or `ema_anchor`, which has its own."""
    coef, target = float(draft.get("alg.kl_div.coeff")), draft.get("alg.kl_div.target_kl")
    if coef < 0:
        raise UserError(f"{draft.where}: alg.kl_div.coeff is {coef:g}, it must not be negative")
    if coef == 0:
        draft.note("alg.kl_div.coeff", "carried", why="0: no KL penalty; the controller keeps it 0")
        if draft.given("alg.kl_div.target_kl"):
            draft.note("alg.kl_div.target_kl", "ignored", why="multiplies a coefficient of 0")
    else:
        _penalty(draft, name, reference, target)
    if draft.get("alg.kl_div.norm_reward", False):
        why = "rewards of all tokens are not normalised; nearest: algorithm.normalize_advantages"
        draft.note("alg.kl_div.norm_reward", "none", why=why)
    elif draft.given("alg.kl_div.norm_reward"):
        draft.note("alg.kl_div.norm_reward", "ignored", why="false, as here")


def _penalty(draft: Draft, name: str, reference: str, target: float | None) -> None:
    at = f"tethers.{name}"
    draft.put(f"{at}.kind", name, "alg.kl_div")
    draft.carry("alg.kl_div.coeff", f"{at}.coef")
    draft.put(f"{at}.estimator", "k1", "RL4LMs' log-ratio of the sampled token")
    if name == "kl":
        whose = "RL4LMs' reference model" if reference == "initial" else "the average"
        draft.put(f"{at}.reference", reference, whose)
    key = "alg.kl_div.target_kl"
    if target is None:
        draft.note(key, "carried", at, "absent: the coefficient stays fixed")
        return
    if target <= 0:
        raise UserError(f"{draft.where}: {key} is {target:g}, it must be greater than 0")
    controller = {"kind": "rl4lms", "target": target}
    draft.put(f"{at}.controller", controller, f"{key} {target}, nats per token")
    why = "nats per token; the coefficient moves by at most 2 % an iteration"
    draft.note(key, "carried", f"{at}.controller.target", why)


def _mask(draft: Draft, released: bool) -> None:
    if not draft.given(f"{MASK}.top_mask"):
        raise UserError(
            f"{draft.where}: {MASK}.top_mask is missing; RL4LMs' default -1 crashes there, the "
            "published configs have .9"
        )
    kind, top = draft.get(f"{MASK}.mask_type", "learned_top_p"), draft.get(f"{MASK}.top_mask")
    draft.put("tethers.nlpo_mask.kind", "nlpo_mask", "alg.id nlpo")
    mask = _mask_policy(draft, kind, released)
    if kind == "learned_top_p":
        draft.carry(f"{MASK}.top_mask", "tethers.nlpo_mask.top_p")
        draft.carry(f"{MASK}.mask_type", "tethers.nlpo_mask.top_p", value=top, default=kind)
        draft.comments["tethers.nlpo_mask.top_p"] = f"{MASK}.top_mask, mask_type {kind}"
        why = "a top_k after the mask (sampling.top_k) leaves fewer; the families differ by one"
        draft.carry(
            f"{MASK}.min_tokens_to_keep", "tethers.nlpo_mask.floor", 100, status="changed", why=why
        )
        return
    draft.put("tethers.nlpo_mask.top_p", 1.0, f"{MASK}.mask_type {kind}")
    draft.carry(f"{MASK}.top_mask", "tethers.nlpo_mask.top_k", value=int(top))
    why = "" if kind == "learned_top_k" else f"read as the k likeliest tokens of the {mask}"
    draft.note(f"{MASK}.mask_type", "changed" if why else "carried", "tethers.nlpo_mask", why)
    if draft.given(f"{MASK}.min_tokens_to_keep"):
        draft.note(f"{MASK}.min_tokens_to_keep", "ignored", why="acts on learned_top_p only")


def _mask_policy(draft: Draft, kind: str, released: bool) -> str:
    key, setting = f"{MASK}.target_update_iterations", "tethers.nlpo_mask.mask"
    mu = int(draft.get(key, 1000))
    if kind == "topk":
        draft.put(setting, "policy", f"{MASK}.mask_type topk")
        draft.note(key, "ignored", why="the policy's own tokens: nothing to refresh", value=mu)
        return "policy"
    if released:
        draft.put(setting, "initial", f"{key} {mu} had no effect: RL4LMs never refreshed its mask")
        draft.note(
            key,
            "ignored",
            setting,
            "the released code never refreshes its mask, so this is what the old run did; "
            f"`--as published` refreshes it every {mu} updates",
            value=mu,
        )
        return "initial policy"
    if mu > int(draft.get(f"{RUN}.n_iters")):
        draft.put(setting, "initial", f"{key} {mu} is beyond the run's end: no refresh")
        draft.note(key, "carried", setting, "beyond the run's end: no refresh", value=mu)
        return "initial policy"
    draft.put(setting, "copy", "as published")
    draft.carry(
        key,
        "tethers.nlpo_mask.refresh",
        1000,
        value={"kind": "every", "n": mu, "unit": "update"},  # type: ignore[arg-type]
        status="changed",
        why="as published; the released code, and so the old run, never refreshed its mask",
    )
    return "mask policy"


def _resets(draft: Draft) -> tuple[str, str]:
    """Elastic Reset and its kin; returns the tether of the KL penalty and its reference."""
    average = draft.get("alg.id") == "emappo"
    n, both = draft.get(f"{RUN}.reset_freq"), bool(draft.get(f"{RUN}.reset_ema", False))
    own = bool(draft.get(f"{RUN}.separate_ema_model", False))
    if n is not None and n < 1:
        raise UserError(f"{draft.where}: {RUN}.reset_freq is {n}, it must be at least 1")
    idle = average and n is None and (own or not draft.get("alg.kl_div.coeff"))
    name = "" if idle else _name(average, n is not None, both)
    if name and name != "ema_anchor":
        draft.put(f"tethers.{name}.kind", name, "alg.id emappo" if average else f"{RUN}.reset_freq")
    if idle:
        why = "no reset and no penalty reads the average, so it has no effect"
        for key in ("ema_decay", "ema_update_train"):
            if key == "ema_decay" or draft.given(f"{ARGS}.{key}"):
                draft.note(f"{ARGS}.{key}", "ignored", why=why, value=0.999)
    elif average:
        _average(draft, name)
    if n is not None:
        draft.carry(
            f"{RUN}.reset_freq",
            f"tethers.{name}.reset",
            value={"kind": "every", "n": int(n), "unit": "update", "start": 1},
            why=f"epoch % {n} == 0 with epoch 0 included: after updates 1, {n + 1}, {2 * n + 1}",
        )
    _reset_options(draft, name, average, n, both)
    if draft.given(f"{RUN}.separate_ema_model"):
        why = "KL to the initial weights" if own else "KL to the average itself"
        draft.note(f"{RUN}.separate_ema_model", "carried", "tethers.kl.reference", why)
    if name == "ema_anchor":
        return "ema_anchor", "anchor"
    return "kl", "ema" if average and not own and not idle else "initial"


def _name(average: bool, resets: bool, both: bool) -> str:
    if not average:
        return "reset_to_init" if resets else ""
    if not resets:
        return "ema_anchor"
    return "elastic_reset" if both else "reset_to_ema"


def _average(draft: Draft, name: str) -> None:
    draft.carry(f"{ARGS}.ema_decay", f"tethers.{name}.decay", 0.999)
    unit = "minibatch" if draft.get(f"{ARGS}.ema_update_train", False) else "update"
    draft.put(
        f"tethers.{name}.average",
        {"kind": "every", "n": 1, "unit": unit},
        "the average is taken once an iteration" if unit == "update" else "ema_update_train",
    )
    if draft.given(f"{ARGS}.ema_update_train"):
        draft.note(f"{ARGS}.ema_update_train", "carried", f"tethers.{name}.average")


def _reset_options(draft: Draft, name: str, average: bool, n: Any, both: bool) -> None:
    for key, setting in (("reset_opt", "optimizer"), ("reset_critic", "critic")):
        if not draft.given(f"{RUN}.{key}"):
            continue
        if n is None:
            draft.note(f"{RUN}.{key}", "ignored", why="there is no reset (reset_freq)")
        else:
            what = "clear" if draft.get(f"{RUN}.{key}") else "keep"
            draft.carry(f"{RUN}.{key}", f"tethers.{name}.{setting}", value=what)
    if draft.given(f"{RUN}.reset_ema"):
        if average and n is not None:
            draft.note(f"{RUN}.reset_ema", "carried", f"tethers.{name}.kind")
        else:
            draft.note(f"{RUN}.reset_ema", "ignored", why="there is no average to reset")
    key = f"{RUN}.reset_ema_freq"
    if draft.given(key):
        if not (average and n is not None and both):
            draft.note(key, "ignored", why="the average is never reset")
        elif draft.get(key) == n:
            draft.note(key, "carried", f"tethers.{name}.reset", "the same as reset_freq")
        else:
            why = "the average goes home at every reset; nearest: a tether of your own"
            draft.note(key, "none", why=why)
    for key, why in _FORK.items():
        if draft.given(f"{RUN}.{key}"):
            off = key != "eval_before_train" and not draft.get(f"{RUN}.{key}")
            draft.note(f"{RUN}.{key}", "ignored" if off else "none", why="off" if off else why)


_FORK = {
    "ref_causal_perplexity": "the average is not evaluated apart",
    "ref_learned_metric": "the average is not evaluated apart",
    "eval_before_train": "update 0 is always evaluated",
    "freeze_policy": "a policy that does not move; nearest: algorithm.lr 0",
}


def _optimizer(draft: Draft) -> None:
    draft.carry(
        f"{MASK}.weight_decay",
        "optimizer.weight_decay",
        1e-6,
        status="changed",
        why="here on biases and layer norms too",
    )
    kind = draft.get("alg.id")
    if kind != "trpo":
        draft.carry(
            f"{ARGS}.max_grad_norm",
            "optimizer.max_grad_norm",
            0.5,
            status="changed",
            why="over policy and critic apart; RL4LMs clips their common norm",
        )
    if draft.given(f"{MASK}.optimizer_class"):
        draft.note(f"{MASK}.optimizer_class", "none", why="always AdamW")
    for key, value in (draft.get(f"{MASK}.optimizer_kwargs") or {}).items():
        name = f"{MASK}.optimizer_kwargs.{key}"
        if key in ("betas", "eps"):
            draft.put(f"optimizer.{key}", value, name)
            draft.rest(name, "carried", f"optimizer.{key}")
        elif key == "lr":
            draft.note(name, "ignored", why="learning_rate is set at every iteration")
        else:
            draft.rest(name, "none", "no such setting of AdamW here")
