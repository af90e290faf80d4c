"""How text is written: prompts, length, decoding, and how much of it makes an update."""

from __future__ import annotations

from typing import Any, Literal

from tether.config.errors import UserError
from tether.integrations.rl4lms_draft import Draft, Status
from tether.integrations.rl4lms_schema import GENERATION
from tether.integrations.rl4lms_units import Rollout, rollout

POLICY = "alg.policy.args.generation_kwargs"
EVALUATION = "train_evaluation.generation_kwargs"
TOP_K = 50
"""What transformers 4 samples from where nothing is said (GenerationConfig.top_k)."""


def is_seq2seq(draft: Draft) -> bool:
    """Is the model an encoder-decoder, by the policy's id or the supervised model type?"""
    return "seq2seq" in str(draft.get("alg.policy.id", draft.get("alg.model_type", "")))


def horizon(draft: Draft) -> int:
    """T, the most tokens of a completion: the episode's limit and the generator's, whichever is
    less."""
    episode, new = draft.get("env.args.max_episode_length"), draft.get(f"{POLICY}.max_new_tokens")
    both = [int(x) for x in (episode, new) if x is not None]
    if min(both) < 1:
        raise UserError(f"{draft.where}: a completion has {min(both)} tokens; it must have some")
    return min(both)


def sampling(draft: Draft) -> None:
    """Rollouts: `sampling`."""
    t = horizon(draft)
    episode, new = draft.get("env.args.max_episode_length"), draft.get(f"{POLICY}.max_new_tokens")
    draft.put("sampling.max_new_tokens", t, "env.args.max_episode_length")
    if new in (None, episode):
        draft.note("env.args.max_episode_length", "carried", "sampling.max_new_tokens")
        if new is not None:
            draft.note(f"{POLICY}.max_new_tokens", "carried", "sampling.max_new_tokens")
    else:
        why = f"episodes of {episode}, generation of {new} tokens: the shorter one ends first"
        for key in ("env.args.max_episode_length", f"{POLICY}.max_new_tokens"):
            draft.note(key, "changed", "sampling.max_new_tokens", why)
    decoding(draft, POLICY, "sampling")
    masked = draft.get("alg.id") == "nlpo"
    how: Literal["sampled", "full"] = "sampled" if masked else "full"
    why = (
        "NLPO scores the renormalised distribution that it samples from"
        if masked
        else "RL4LMs samples from truncated probabilities and scores the whole vocabulary"
    )
    draft.put("sampling.scored", how, why)
    _stops(draft, t)
    _start(draft)


def decoding(draft: Draft, block: str, to: str) -> None:
    """One block of generation settings -> `sampling` or `evaluation.sampling`."""
    given = draft.get(block) or {}
    samples = bool(given.get("do_sample", False))
    beams = int(given.get("num_beams") or 1)
    rollouts = to == "sampling"
    if not samples:
        _greedy(draft, block, rollouts, beams)
    else:
        draft.note(f"{block}.do_sample", "carried", to)
    if samples:
        _truncation(draft, block, to)
        for key, none in (("top_p", 1.0), ("temperature", 1.0)):
            if given.get(key) is not None:
                draft.carry(f"{block}.{key}", f"{to}.{key}", none)
    else:
        if not rollouts:
            draft.put(f"{to}.top_k", 0, "nothing is sampled")
        for key in ("top_k", "top_p", "temperature"):
            if key in given:
                draft.note(f"{block}.{key}", "ignored", why="nothing is sampled, so no effect")
    _minimum(draft, block, to)
    if block == EVALUATION and given.get("max_new_tokens") is not None:
        draft.carry(f"{block}.max_new_tokens", f"{to}.max_new_tokens")
    _others(draft, block, beams, samples)


def _greedy(draft: Draft, block: str, rollouts: bool, beams: int) -> None:
    if rollouts:
        draft.carry(
            f"{block}.do_sample",
            "algorithm.greedy",
            False,
            value=True,
            why="rollouts that take the likeliest token, as transformers does without do_sample",
        )
    elif beams == 1:
        draft.carry(f"{block}.do_sample", "evaluation.sampling.greedy", False, value=True)
    else:
        draft.put(
            "evaluation.sampling.greedy",
            True,
            f"{block}.num_beams {beams} has no counterpart: the nearest is the likeliest token",
        )
        if "do_sample" in (draft.get(block) or {}):
            draft.note(f"{block}.do_sample", "carried", "evaluation.sampling.greedy")


def _truncation(draft: Draft, block: str, to: str) -> None:
    key = f"{block}.top_k"
    if draft.given(key):
        draft.carry(key, f"{to}.top_k")
        return
    draft.put(f"{to}.top_k", TOP_K, f"{key}, not given: transformers' default {TOP_K}")
    why = "transformers 4 samples from the 50 likeliest tokens where nothing is said; 0 = all"
    draft.note(key, "carried", f"{to}.top_k", why, value=TOP_K)


def _minimum(draft: Draft, block: str, to: str) -> None:
    key = f"{block}.min_length"
    old = draft.get(key)
    if old is None:
        if to != "sampling" and draft.settings.get("sampling", {}).get("min_new_tokens"):
            draft.put(f"{to}.min_new_tokens", 0, f"{key}, not given")
        return
    new, why = int(old), "RL4LMs adds the prompt's length for causal models: new tokens"
    if is_seq2seq(draft):
        new = max(0, int(old) - 1)
        why = f"counts the decoder's start token: {old} are {new} new tokens before EOS"
    longest = draft.settings["sampling"]["max_new_tokens"]
    if new > longest:
        new, why = longest, f"{why}; a completion ends after {longest}"
    status: Status = "carried" if new == old else "changed"
    if new:
        draft.carry(key, f"{to}.min_new_tokens", value=new, status=status, why=why)
    else:
        draft.note(key, "ignored", why=why)


def _others(draft: Draft, block: str, beams: int, samples: bool) -> None:
    given: dict[str, Any] = draft.get(block) or {}
    if "num_beams" in given:
        if beams == 1:
            draft.note(f"{block}.num_beams", "ignored", why="one beam is no beam search")
        else:
            near = (
                "sampled without beams" if samples else "evaluation.sampling.greedy, as it is set"
            )
            draft.note(f"{block}.num_beams", "none", why=f"no beam search; nearest: {near}")
    beam_only = ("length_penalty", "early_stopping")
    for key in given:
        name = f"{block}.{key}"
        if key in beam_only and beams == 1:
            draft.note(name, "ignored", why="acts in beam search only")
        elif key == "post_processing_fn" and given[key] is None:
            draft.note(name, "ignored", why="null: nothing is post-processed")
        elif key not in GENERATION or key in (*beam_only, *_WITHOUT):
            draft.note(name, "none", why=_WITHOUT.get(key, "no such rule of decoding here"))


_WITHOUT = {
    "repetition_penalty": "no such rule of decoding; nearest: a tether with `allow`",
    "no_repeat_ngram_size": "no such rule of decoding; nearest: a tether with `allow`",
    "post_processing_fn": "completions are scored as they were written; nearest: sampling.stop, or "
    "a reward function that cuts",
}


def _stops(draft: Draft, t: int) -> None:
    key = "env.args.terminate_on_eos"
    least = int(draft.settings["sampling"].get("min_new_tokens") or 0)
    if draft.get(key, False):
        draft.note(key, "carried", why="a completion ends at EOS, always")
    elif least >= t:
        draft.note(key, "ignored", why="EOS cannot be written before the end", value=False)
    else:
        why = "RL4LMs went on after EOS up to max_episode_length; here a completion ends at EOS"
        draft.note(key, "none", why=why, value=False)


def _start(draft: Draft) -> None:
    key = "env.args.context_start_token"
    if draft.given(key):
        why = "the decoder starts with the model's own start token (0 for T5)"
        status: Literal["ignored", "none"] = "ignored" if draft.get(key) == 0 else "none"
        draft.note(key, status, why=why)
    key = "env.args.priority_scale"
    if draft.given(key):
        if draft.get(key) == 0:
            draft.note(key, "ignored", why="0: every prompt is as likely as any other")
        else:
            draft.note(key, "none", why="prompts are drawn evenly, in shuffled passes")


def evaluation_sampling(draft: Draft) -> None:
    """`evaluation.sampling`, where evaluation decodes in a way of its own."""
    if not draft.given(EVALUATION):
        return
    decoding(draft, EVALUATION, "evaluation.sampling")
    own = draft.settings.get("evaluation", {}).get("sampling", {})
    for name, off in (("temperature", 1.0), ("top_p", 1.0)):
        if name in draft.settings["sampling"] and name not in own:
            draft.put(f"evaluation.sampling.{name}", off, f"{EVALUATION}.{name}, not given")
    draft.rest(EVALUATION, "none", "no counterpart")


def batch(draft: Draft, n_steps: int, batch_size: int | None, epochs: int) -> Rollout:
    """Tokens an iteration -> prompts an update, and minibatches. batch_size None: one minibatch."""
    envs, steps = int(draft.get("env.n_envs", 1)), int(draft.get("alg.args.n_steps", n_steps))
    size = None if batch_size is None else int(draft.get("alg.args.batch_size", batch_size))
    for name, value in (("env.n_envs", envs), ("alg.args.n_steps", steps)):
        if value < 1:
            raise UserError(f"{draft.where}: {name} is {value}, it must be at least 1")
    if size is not None and size < 1:
        raise UserError(f"{draft.where}: alg.args.batch_size is {size}, it must be at least 1")
    tokens, t = envs * steps, horizon(draft)
    r = rollout(tokens, t, size or tokens)
    if size is None:
        r = Rollout(tokens, t, tokens, r.prompts, 1)
    draft.put(
        "batch.prompts",
        r.prompts,
        f"env.n_envs {envs} x alg.args.n_steps {steps} = {tokens} tokens, "
        f"{r.prompts} x {t} = {r.new_tokens} here",
    )
    draft.put(
        "algorithm.minibatches",
        r.minibatches,
        f"alg.args.batch_size {size} tokens" if size else "one optimizer step an iteration",
    )
    why = (
        f"{envs} x {steps} = {tokens} token transitions an iteration, {tokens / t:.4g} completions "
        f"of {t}: {r.prompts} prompts, {r.new_tokens} tokens where all have full length; RL4LMs "
        "wrote more completions where they end early, and dropped surplus tokens"
    )
    draft.note("env.n_envs", "changed", "batch.prompts", why, value=1)
    draft.note("alg.args.n_steps", "changed", "batch.prompts", "see env.n_envs", value=steps)
    if size is not None:
        whole = r.prompts // r.minibatches
        draft.note(
            "alg.args.batch_size",
            "changed",
            "algorithm.minibatches",
            f"minibatches of {size} token transitions are minibatches of {whole} whole "
            f"completion{'s' * (whole != 1)} ({whole * t} tokens): {r.minibatches} an epoch where "
            f"RL4LMs took {r.old_minibatches}, {r.minibatches * epochs} optimizer steps an update "
            f"where it took {r.old_minibatches * epochs}; the learning rate is left as it was",
            value=size,
        )
    return r
