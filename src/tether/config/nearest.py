"""What the user probably meant: the nearest of our names, or our word for another library's."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tether.config.errors import UserError

FOREIGN: dict[str, str] = {
    # TRL 1.16, transformers' TrainingArguments
    "learning_rate": "algorithm.lr",
    "beta": "tethers.kl.coef",
    "num_generations": "algorithm.group_size",
    "num_ppo_epochs": "algorithm.epochs",
    "num_mini_batches": "algorithm.minibatches",
    "num_iterations": "algorithm.epochs",
    "epsilon": "algorithm.clip_range",
    "cliprange": "algorithm.clip_range",
    "cliprange_value": "algorithm.clip_range_value",
    "lam": "algorithm.gae_lambda",
    "max_steps": "updates",
    "num_train_epochs": "updates",
    "per_device_train_batch_size": "batch.microbatch",
    "gradient_accumulation_steps": "batch.microbatch",
    "max_completion_length": "sampling.max_new_tokens",
    "response_length": "sampling.max_new_tokens",
    "max_prompt_length": "data.max_prompt_tokens",
    "model_name_or_path": "model.path",
    "dataset_name": "data.path",
    "dataset_config": "data.name",
    "reward_funcs": "rewards.NAME",
    "reward_model_path": "rewards.NAME",
    "reward_weights": "rewards.NAME.weight",
    "output_dir": "root",
    "run_name": "name",
    "logging_steps": "evaluation.every",
    "eval_steps": "evaluation.every",
    "save_steps": "checkpoint.every",
    "save_total_limit": "checkpoint.keep",
    "report_to": "logging",
    "max_grad_norm": "optimizer.max_grad_norm",
    "weight_decay": "optimizer.weight_decay",
    "warmup_steps": "optimizer.warmup_steps",
    "lr_scheduler_type": "optimizer.schedule",
    "use_peft": "model.lora",
    "lora_r": "model.lora.rank",
    "lora_alpha": "model.lora.alpha",
    "lora_target_modules": "model.lora.targets",
    "torch_dtype": "model.dtype",
    "bf16": "model.dtype",
    "sync_ref_model": "tethers (kind ref_sync)",
    "scale_rewards": "algorithm",
    "stop_token": "sampling.stop",
    "missing_eos_penalty": "rewards.NAME",
    # OpenRLHF
    "init_kl_coef": "tethers.kl.coef",
    "kl_estimator": "tethers.kl.estimator",
    "kl_target": "tethers.kl.controller.target",
    "kl_horizon": "tethers.kl.controller.horizon",
    "actor_learning_rate": "algorithm.lr",
    "critic_learning_rate": "critic.lr",
    "eps_clip": "algorithm.clip_range",
    "value_clip": "algorithm.clip_range_value",
    "lambd": "algorithm.gae_lambda",
    "rollout_batch_size": "batch.prompts",
    "train_batch_size": "algorithm.minibatches",
    "micro_train_batch_size": "batch.microbatch",
    "micro_rollout_batch_size": "sampling.chunk",
    "n_samples_per_prompt": "algorithm.group_size",
    "generate_max_len": "sampling.max_new_tokens",
    "prompt_max_len": "data.max_prompt_tokens",
    "max_epochs": "algorithm.epochs",
    "num_episodes": "updates",
    "pretrain": "model.path",
    "prompt_data": "data.path",
    "input_key": "data.prompt",
    "label_key": "data.reference",
    "remote_rm_url": "rewards.NAME",
    "reward_pretrain": "rewards.NAME",
    "save_path": "root",
    "use_wandb": "logging.wandb",
    "enable_ema": "tethers.elastic_reset",
    "ema_beta": "tethers.elastic_reset.decay",
    # verl
    "kl_coef": "tethers.kl.coef",
    "kl_loss_coef": "tethers.kl.coef",
    "use_kl_loss": "tethers.kl",
    "use_kl_in_reward": "tethers.kl",
    "kl_penalty": "tethers.kl.estimator",
    "kl_ctrl": "tethers.kl.controller",
    "target_kl": "algorithm.target_kl",
    "adv_estimator": "algorithm.kind",
    "ppo_epochs": "algorithm.epochs",
    "ppo_mini_batch_size": "algorithm.minibatches",
    "ppo_micro_batch_size_per_gpu": "batch.microbatch",
    "clip_ratio": "algorithm.clip_range",
    "clip_ratio_low": "algorithm.clip_range",
    "clip_ratio_high": "algorithm.clip_range",
    "entropy_coeff": "algorithm.ent_coef",
    "rollout_n": "algorithm.group_size",
    "train_files": "data.path",
    "val_files": "data.validation",
    "prompt_key": "data.prompt",
    "total_epochs": "updates",
    "total_training_steps": "updates",
    "test_freq": "evaluation.every",
    "save_freq": "checkpoint.every",
    "grad_clip": "optimizer.max_grad_norm",
    "experiment_name": "name",
    "project_name": "logging.wandb",
    "custom_reward_function": "rewards.NAME",
    # RL4LMs, Stable-Baselines3, trlX
    "n_iters": "updates",
    "total_timesteps": "updates",
    "n_steps": "batch.prompts",
    "n_epochs": "algorithm.epochs",
    "batch_size": "algorithm.minibatches",
    "init_coeff": "tethers.kl.coef",
    "init_kl_coeff": "tethers.kl.coef",
    "kl_div": "tethers.kl",
    "alg": "algorithm",
    "reward_fn": "rewards",
    "reward_function": "rewards",
    "datapool": "data",
    "eval_every": "evaluation.every",
    "max_episode_length": "sampling.max_new_tokens",
    "mask_type": "tethers",
    "top_mask": "tethers.nlpo_mask.top_p",
    "target_update_iterations": "tethers.nlpo_mask.refresh",
    "ema_decay": "tethers.elastic_reset.decay",
    "reset_freq": "tethers.elastic_reset.reset.n",
    "seq_length": "sampling.max_new_tokens",
    "eval_interval": "evaluation.every",
    "checkpoint_interval": "checkpoint.every",
    "checkpoint_dir": "root",
}
"""Names of TRL, OpenRLHF, verl, RL4LMs and kin -> where the same thing stands here."""


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that looks most like `word`, or None where none does."""
    names = list(candidates)
    by_fold = {n.replace("-", "_").lower(): n for n in names}
    folded = word.replace("-", "_").lower()
    if folded in by_fold:
        return by_fold[folded]
    close = difflib.get_close_matches(folded, by_fold, n=1, cutoff=0.6)
    if close:
        return by_fold[close[0]]
    parts = [n for n in names if len(folded) >= 4 and (folded in n.lower() or n.lower() in folded)]
    return min(parts, key=lambda n: (abs(len(n) - len(word)), n)) if parts else None


def foreign(word: str) -> str | None:
    """Our name for another library's option, or None."""
    return FOREIGN.get(word.split(".")[-1].replace("-", "_").lower())


def unknown(
    kind: str, word: str, candidates: Iterable[str], where: str, elsewhere: Iterable[str] = ()
) -> UserError:
    """The error for a name that we do not have: `unknown key 'updats' in run.yaml; did you mean
    'updates'?`, or our word for it, or where it stands, or the names there are.

    elsewhere: dotted paths of all keys; one that ends in `word` is pointed out.
    """
    names = sorted(set(candidates))
    place = f" in {where}" if where else ""
    guess = nearest(word, names)
    folded = word.replace("-", "_").lower()
    exact = guess is not None and guess.replace("-", "_").lower() == folded
    ours = foreign(word) if kind == "key" else None
    other = next((p for p in elsewhere if "." in p and p.split(".")[-1] == folded), None)
    if other and other.rpartition(".")[0] == where.split(" ")[0]:
        mend = f"another {other.split('.')[0]} has it, this one has {_shown(names)}"
    elif other and not exact:
        mend = f"it stands at '{other}'"
    elif ours and not exact:
        mend = f"another library's name: here it is '{ours}'"
    elif guess:
        mend = f"did you mean '{guess}'?"
    elif names:
        mend = f"there are: {_shown(names)}"
    else:
        mend = "there are none"
    return UserError(f"unknown {kind} '{word}'{place}; {mend}")


def _shown(names: list[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
