"""Rewards and metrics of RL4LMs -> rewards and judges here.

A reward with a counterpart becomes its parts (`tether.rewards.compositions`), with what differs
named. What needs a file that nobody can guess (a checkpoint, document frequencies) is written with
that setting empty: the run asks for it in one line before it starts. Source:
allenai/RL4LMs@97df0bd, rl4lms/envs/text_generation/reward.py and metric.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tether.config.errors import UserError
from tether.integrations.rl4lms_data import references, task_of
from tether.integrations.rl4lms_draft import Draft, Status
from tether.rewards import compositions
from tether.rewards.compositions import Parts, metric
from tether.tasks.dailydialog import CLASSIFIER

NEAREST: dict[str, str] = {
    "increasing_numbers": "a function that counts numbers in order, or kind length or contains",
    "sentences_with_dates": "a function that looks for dates, or kind contains",
    "parent_totto": "judges.NAME {kind: metric, metric: parent} with a column of tables",
    "dates": "judges.NAME with a function that looks for dates",
    "cider": "judges.NAME {kind: metric, metric: {kind: cider_d, frequencies: FILE}}; RL4LMs takes "
    "document frequencies from the texts at hand",
    "spice": "judges.NAME {kind: metric, metric: spice}, which needs Java and CoreNLP",
    "bleurt": "judges.NAME {kind: metric, metric: {kind: bleurt, model: CHECKPOINT}}",
    "summaCZS": "judges.NAME {kind: metric, metric: {kind: summac, model: NLI_MODEL}}",
    "summaCConv": "judges.NAME {kind: metric, metric: {kind: summac_conv, model: NLI_MODEL, "
    "weights: FILE}}, with the authors' file of the convolution",
}
"""What has no counterpart that runs as it is -> what comes nearest."""
ROUGE = {"rouge1": "rouge_1", "rouge2": "rouge_2", "rougeL": "rouge_l", "rougeLsum": "rouge_lsum"}
PENALTIES = ("common_gen_repeat_penalty", "common_gen_repeat_penalty_batched")
_PY_ROUGE = "the library rouge-score; RL4LMs takes py-rouge, which splits words in another way"
_SMOOTHED = "a completion of fewer than four words leaves out the orders that it is too short for"


@dataclass(frozen=True)
class Counterpart:
    """What one reward becomes."""

    parts: Parts
    why: str = ""
    """What differs; empty: the same definition."""
    args: Mapping[str, tuple[Status, str, str, Any]] = field(default_factory=dict)
    """Argument -> what became of it, setting, reason, RL4LMs' default (shown where the argument is
    absent; None: an absent argument is not worth a line)."""


Args = Mapping[str, Any]


def _plain(name: str, **settings: Any) -> Callable[[Args, str], Counterpart]:
    return lambda args, column: Counterpart({name: metric(name, column, **settings)})


def _rouge(args: Args, column: str) -> Counterpart:
    kind = str(args["rouge_type"])
    if kind not in ROUGE:
        raise UserError(
            f"reward_fn.args.rouge_type is '{kind}', it must be one of {', '.join(ROUGE)}"
        )
    name, single = ROUGE[kind], args.get("use_single_ref", True)
    own: dict[str, Any] = {"several": "first" if single else "max"}
    if kind == "rougeLsum":
        own["split"] = "newline"
    return Counterpart(
        {name: metric(name, column, **own)},
        args={
            "rouge_type": ("carried", f"rewards.{name}", "", None),
            "use_single_ref": ("carried", f"rewards.{name}.metric.several", "", True),
        },
    )


def _combined(args: Args, column: str) -> Counterpart:
    return Counterpart(compositions.rouge_combined(column))


def _bert_score(args: Args, column: str) -> Counterpart:
    english = args.get("language", "en") == "en"
    encoder = ("roberta-large", 17) if english else ("bert-base-multilingual-cased", 9)
    part = metric("bert_score", column, model=encoder[0], layer=encoder[1])
    why = "bert-score's encoder of that language"
    if not english:
        why = "bert-score's encoder of languages without one of their own"
    said: dict[str, tuple[Status, str, str, Any]] = {
        "language": ("carried", "rewards.bert_score.metric.model", why, "en")
    }
    return Counterpart({"bert_score": part}, args=said)


def _bleurt(args: Args, column: str) -> Counterpart:
    why = (
        "name a checkpoint in transformers' format in rewards.bleurt.metric.model; RL4LMs loads "
        "the TensorFlow one"
    )
    said: dict[str, tuple[Status, str, str, Any]] = {
        "checkpoint": ("none", "rewards.bleurt.metric.model", "a TensorFlow checkpoint", None)
    }
    return Counterpart({"bleurt": metric("bleurt", column, model="")}, why, said)


def _sacre_bleu(args: Args, column: str) -> Counterpart:
    own: dict[str, Any] = {}
    said: dict[str, tuple[Status, str, str, Any]] = {}
    if args.get("tokenize") in ("13a", "none", "intl", "char", "zh"):
        own["tokens"] = args["tokenize"]
        said["tokenize"] = ("carried", "rewards.sacre_bleu.metric.tokens", "", None)
    if "lowercase" in args:
        own["lowercase"] = bool(args["lowercase"])
        said["lowercase"] = ("carried", "rewards.sacre_bleu.metric.lowercase", "", None)
    return Counterpart({"sacre_bleu": metric("sacre_bleu", column, **own)}, _SMOOTHED, said)


def _rouge_l_max(args: Args, column: str) -> Counterpart:
    own = {"stemmer": False} if args.get("stemming") is False else {}
    said: dict[str, tuple[Status, str, str, Any]] = {
        "stemming": ("carried", "rewards.rouge_l_max.metric.stemmer", "", True)
    }
    return Counterpart({"rouge_l_max": metric("rouge_l_max", column, **own)}, _PY_ROUGE, said)


def _spider(args: Args, column: str) -> Counterpart:
    parts = compositions.spider_with_repeat_penalty(
        "", column, float(args["spice_coeff"]), float(args["cider_coeff"])
    )
    del parts["repeat_penalty"]
    why = (
        "write document frequencies to a file and name it in rewards.cider_d.metric.frequencies; "
        "RL4LMs takes them from the batch, so that a score depends on its neighbours"
    )
    said: dict[str, tuple[Status, str, str, Any]] = {
        "spice_coeff": ("carried", "rewards.spice.weight", "", None),
        "cider_coeff": ("carried", "rewards.cider_d.weight", "", None),
    }
    return Counterpart(parts, why, said)


def _penalty(args: Args, column: str) -> Counterpart:
    return Counterpart({"repeat_penalty": {"kind": "repeat_penalty"}})


def _intent(args: Args, column: str) -> Counterpart:
    shaped = args.get("shape", True)
    parts = compositions.intent_and_meteor(
        CLASSIFIER, column, float(args.get("intent_coeff", 1.0)), float(args.get("auto_coeff", 1.0))
    )
    if not shaped:
        del parts["meteor"]
    why = "" if not shaped else (
        "METEOR of the sample itself; RL4LMs averages it over the episodes that ended before it in "
        "the batch"
    )  # fmt: skip
    weight = "rewards.meteor.weight"
    said: dict[str, tuple[Status, str, str, Any]] = {
        "shape": ("carried", "rewards.meteor", "whether METEOR is added", True),
        "intent_coeff": ("carried", "rewards.intent.weight", "", 1.0),
        "auto_coeff": ("carried", weight, "", 1.0)
        if shaped
        else ("ignored", "", "shape is off", 1.0),
    }
    return Counterpart(parts, why, said)


def _preference(args: Args, column: str) -> Counterpart:
    [part] = compositions.preference_with_concept_penalty("", column).values()
    said: dict[str, tuple[Status, str, str, Any]] = {
        "model_type": ("none", "rewards.preference.preference.path", "a checkpoint by size", None)
    }
    for name, ours in (
        ("concept_penalty_coeff", "concept_penalty_coef"), ("meteor_coeff", "meteor_coef"),
    ):  # fmt: skip
        setting = f"rewards.preference.{ours}"
        if name in args:
            part[ours] = float(args[name])
            said[name] = ("carried", setting, "", None)
    why = (
        "name a preference model (a classifier's folder or hub id) in rewards.preference.preference"
        ".path: RL4LMs' T5-11B is not known to be had; a coefficient that is not given is 1 here"
    )
    return Counterpart({"preference": part}, why, said)


REWARDS: dict[str, Callable[[Args, str], Counterpart]] = {
    "meteor": _plain("meteor"),
    "rouge": _rouge,
    "rouge_combined": _combined,
    "bert_score": _bert_score,
    "bleu": _plain("bleu", tokens="none"),
    "bleurt": _bleurt,
    "sacre_bleu": _sacre_bleu,
    "rouge_l_max": _rouge_l_max,
    "ter": _plain("ter"),
    "chrf": _plain("chrf"),
    "spider": _spider,
    "parent": _plain("parent"),
    "common_gen_repeat_penalty": _penalty,
    "common_gen_repeat_penalty_batched": _penalty,
    "intent_accuracy": _intent,
    "common_gen_preference_model": _preference,
}
"""reward_fn.id (of what needs no model of the configuration's) -> its counterpart."""


def reward(draft: Draft) -> None:
    """`rewards`."""
    name = draft.get("reward_fn.id")
    if name == "learned_reward":
        _learned_reward(draft)
    elif name not in REWARDS:
        near = NEAREST[name]
        draft.put("rewards", {}, f"reward_fn.id {name} has no counterpart; nearest: {near}")
        why = f"no counterpart; nearest: {near} (rewards.NAME: {{kind: function, function: ...}})"
        draft.note("reward_fn.id", "none", "rewards", why)
        draft.rest("reward_fn", "none", "goes with the reward")
    else:
        _counterpart(draft, name)


def _counterpart(draft: Draft, name: str) -> None:
    args = draft.get("reward_fn.args") or {}
    try:
        found = REWARDS[name](args, references(draft))
    except UserError as e:
        raise UserError(f"{draft.where}: {e}") from e
    to = ", ".join(f"rewards.{k}" for k in found.parts)
    draft.note("reward_fn.id", "changed" if found.why else "carried", to, found.why)
    for part, settings in found.parts.items():
        draft.put(f"rewards.{part}", settings, f"reward_fn.id {name}")
    for argument, (status, setting, why, default) in found.args.items():
        key = f"reward_fn.args.{argument}"
        if draft.given(key) or default is not None:
            draft.note(key, status, setting, why, value=default)
    _shaping(draft)
    draft.rest("reward_fn", "none", "no such setting of the counterpart")


def _shaping(draft: Draft) -> None:
    """A reward that RL4LMs adds to another, made without arguments."""
    key = "reward_fn.args.shaping_fn"
    name = draft.get(key)
    if name is None:
        return
    if name not in PENALTIES:
        why = "no counterpart as an addition; nearest: one more entry of rewards, which are summed"
        draft.note(key, "none", "rewards", why)
        return
    [(part, settings)] = _penalty({}, "").parts.items()
    draft.put(f"rewards.{part}", settings, f"{key} {name}")
    why = ""
    prefix = draft.settings["data"].get("task", {}).get("prefix")
    own = "generate a sentence with: "  # the class's default, as RL4LMs has it
    if prefix != own:
        why = f"looks for the concepts after {own!r}, whatever datapool.args.prefix is, as RL4LMs"
    draft.note(key, "carried", f"rewards.{part}", why)


def _learned_reward(draft: Draft) -> None:
    args = "reward_fn.args"
    draft.put("rewards.learned_reward.kind", "classifier", "reward_fn.id")
    draft.note("reward_fn.id", "carried", "rewards.learned_reward")
    draft.carry(f"{args}.model_name", "rewards.learned_reward.path")
    draft.carry(f"{args}.label_ix", "rewards.learned_reward.label")
    both = draft.get(f"{args}.include_prompt_for_eval", True)
    draft.carry(
        f"{args}.include_prompt_for_eval",
        "rewards.learned_reward.reads",
        True,
        value="prompt_and_completion" if both else "completion",
    )
    draft.put("rewards.learned_reward.output", "probability", "RL4LMs' softmax")


JUDGES: dict[str, tuple[str, ...]] = {
    "meteor": ("meteor",),
    "rouge": ("rouge_1", "rouge_2", "rouge_l", "rouge_lsum"),
    "bleu": ("bleu",),
    "sacre_bleu": ("sacre_bleu",),
    "ter": ("ter",),
    "chrf": ("chrf",),
    "rouge_l_max": ("rouge_l_max",),
    "bleu_totto": ("sacre_bleu",),
    "parent_totto": ("parent",),
}
"""Metric of RL4LMs -> metrics here that need nothing but the rows."""
POOLED = ("bleu", "sacre_bleu", "ter", "chrf", "bleu_totto")
"""Whose value of a corpus is no mean of its samples' values."""


def metrics(draft: Draft) -> None:
    """Every entry of `train_evaluation.metrics`."""
    for i, given in enumerate(draft.get("train_evaluation.metrics") or []):
        path, name = f"train_evaluation.metrics.{i}", given["id"]
        if name == "learned_reward":
            _learned(draft, path, given.get("args") or {})
        elif name == "causal_perplexity":
            why = (
                "the policy's perplexity on human text, as in RL4LMs, but pooled over texts "
                "(evaluation.human_rows of them) instead of windows of all texts joined: another "
                "number, never compare the two"
            )
            draft.note(f"{path}.id", "changed", "human/perplexity", why)
            draft.rest(path, "none", "the text is not joined; the policy's own tokenizer reads it")
        elif name == "diversity":
            why = (
                "the record has distinct-n, the share of the commonest n-grams and length; msttr, "
                "ngram_entropy and unique_ngrams are metrics of whole corpora (tether list metrics)"
            )
            draft.note(f"{path}.id", "changed", "text/distinct_1", why)
        elif name in JUDGES and (name != "parent_totto" or task_of(draft) == "totto"):
            _judges(draft, path, name)
        elif name in draft.settings.get("rewards", {}) or name == draft.get("reward_fn.id"):
            why = "every evaluation measures the reward"
            draft.note(f"{path}.id", "carried", "rewards", why)
        else:
            near = NEAREST.get(name) or f"judges.NAME {{kind: metric, metric: {name}}}"
            draft.note(f"{path}.id", "none", why=f"not written; nearest: {near}")
        draft.rest(path, "ignored", "goes with the metric")


def _judges(draft: Draft, path: str, name: str) -> None:
    """Metrics that are no reward of this run judge its evaluations."""
    have = draft.settings.get("rewards", {})
    places = []
    for kind in JUDGES[name]:
        own: dict[str, Any] = {"tokens": "none"} if name == "bleu" else {}
        if name == "rouge":
            single = draft.get(f"{path}.args.use_single_ref", True)
            own["several"] = "first" if single else "max"
            own |= {"split": "newline"} if kind == "rouge_lsum" else {}
        part = metric(kind, references(draft), **own)
        same = {k: v for k, v in have.get(kind, {}).items() if k != "weight"} == part
        places.append(f"{'rewards' if same else 'judges'}.{kind}")
        if not same:
            draft.put(f"judges.{kind}", part, f"{path}.id {name}")
    why = ""
    if name == "parent_totto":
        for subset, value in (("overlap", True), ("non_overlap", False)):
            part = {**metric("parent", references(draft)), "where": {"overlap_subset": value}}
            draft.put(f"judges.parent_{subset}", {**part, "missing": "drop"}, f"{path}.id {name}")
            places.append(f"judges.parent_{subset}")
    if name in POOLED:
        why = "the mean of the completions' values, RL4LMs' is of the corpus: another number"
        why += "; 1 - TER, so that more is better" if name == "ter" else ""
        by = "; by ToTTo's subsets: the metric sacre_bleu_by_overlap"
        why += by if name == "bleu_totto" else ""
    elif name == "rouge_l_max":
        why = _PY_ROUGE
    draft.note(f"{path}.id", "changed" if why else "carried", ", ".join(places), why)
    if draft.given(f"{path}.args.use_single_ref") and name == "rouge":
        draft.note(f"{path}.args.use_single_ref", "carried", f"{places[0]}.metric.several")
    draft.rest(f"{path}.args", "none", "no such setting of the judge")


def _learned(draft: Draft, path: str, args: dict[str, Any]) -> None:
    chosen = draft.settings.get("rewards", {}).get("learned_reward", {})
    if chosen.get("path") == args.get("model_name") and chosen.get("label") == args.get("label_ix"):
        why = "every evaluation measures the reward"
        draft.note(f"{path}.id", "carried", "rewards.learned_reward", why)
    elif args.get("model_name") is None:
        raise UserError(f"{draft.where}: {path}.args.model_name is missing; name the classifier")
    else:
        judge: dict[str, Any] = {"kind": "classifier", "path": args["model_name"]}
        if args.get("label_ix") is not None:
            judge["label"] = args["label_ix"]
        if args.get("include_prompt_for_eval") is False:
            judge["reads"] = "completion"
        draft.put("judges.learned_reward", judge, f"{path}, which is not the reward")
        draft.note(f"{path}.id", "carried", "judges.learned_reward")
    for key in args:
        if key == "batch_size":
            why = "memory only; nearest: batch_size of the classifier"
            draft.note(f"{path}.args.{key}", "ignored", why=why)
        elif key in ("model_name", "label_ix", "include_prompt_for_eval"):
            draft.note(f"{path}.args.{key}", "carried", why="the classifier")
    draft.rest(path, "none", "no such setting of a classifier")
