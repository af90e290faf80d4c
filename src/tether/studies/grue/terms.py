"""What all methods of a task have in common, so that they are compared at equal samples.

RL4LMs tunes each method by itself: other sample counts, other sampling, other prompts for PPO and
NLPO of one task. Here a task has one set of terms, those of its `grue-TASK-ppo` recipe (a stand-in
has its task's): updates, prompts, learning rate, optimizer steps, decoding. A method brings its
algorithm and its tethers. `--settings FILE` changes any of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tether.config.catalog import CATALOG, load
from tether.config.compose import recipe as recipe_mapping
from tether.config.describe import part_description
from tether.config.errors import UserError
from tether.config.layers import merge
from tether.config.nearest import unknown
from tether.config.parts import Place, as_part, convert
from tether.config.sections import check_sections
from tether.config.text_values import read_yaml
from tether.config.types_as_text import PartType
from tether.studies.grue.methods import ZERO_SHOT
from tether.studies.own_settings import refuse_own

SHORT = {
    **{"imdb": "imdb", "commongen": "commongen", "totto": "totto", "narrativeqa": "narrativeqa"},
    **{"cnn_dailymail": "cnn", "iwslt17": "iwslt", "dailydialog": "dialog"},
    **{"wmt16": "iwslt", "multi30k": "iwslt", "fairytaleqa": "narrativeqa", "fetaqa": "totto"},
    **{"dart": "totto", "scitldr": "cnn", "xsum": "cnn"},
}
"""Task -> what its recipes are called; a stand-in has those of the task it stands for."""
TASKS = ("imdb", "commongen", "cnn_dailymail", "totto", "iwslt17", "narrativeqa", "dailydialog")
"""The seven of GRUE."""
COUNTS = ("lr", "epochs", "minibatches")
"""Settings of an algorithm that say how many optimizer steps it takes, and how large ones."""
LAYERS = ("all", "tuned", "demonstrations", "methods")
LISTS = ("metrics", "naturalness")
GERMAN = ("iwslt17", "wmt16", "multi30k")
OWN = {
    "job": "a cell is a policy run",
    "name": "a cell is called after its method and seed",
    "root": "a cell is below the benchmark's folder (--out)",
    "method": "a row is called after its method",
    "seed": "--seeds N says which seeds there are",
    "evaluation.test_samples": "all test completions are kept, since the metrics are of them",
    "checkpoint.export": "what trains is exported, since others may start from it",
}
"""Setting that the benchmark makes itself -> what decides it."""
UNTRAINED = {
    "after": "what costs no training is measured for all methods of a task that train on a reward "
    "(key all or tuned, or --after)"
}
FROM_A_RUN = {
    "revision": None,
    "gguf_file": None,
    "tokenizer": None,
    "adapter": None,
    "random_weights": False,
}
"""Settings of a hub model that a run's exported weights have no use for."""
PARTS: dict[str, dict[str, Any]] = {
    "bert_score": {"kind": "bert_score", "model": "roberta-large", "layer": 17}
}
"""Metrics with settings that a name alone does not say."""


@dataclass(frozen=True)
class Terms:
    """Settings by whom they hold for; each a mapping like a recipe's, later ones win."""

    all: Mapping[str, Any] = field(default_factory=dict)
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """Methods that train on a reward."""
    demonstrations: Mapping[str, Any] = field(default_factory=dict)
    """Methods that train on human completions."""
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Method -> settings."""
    metrics: Sequence[str] | None = None
    """Of the task score; None = the task's own."""
    naturalness: Sequence[str] | None = None
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name in one of the two lists -> metric with its settings, and `maximum` where the metric
    does not know its own."""

    def layers(
        self, method: str, algorithm: str, tuned: bool, trained: bool
    ) -> list[Mapping[str, Any]]:
        """Of one method, in order. What holds for several leaves out settings that this one's
        algorithm does not have."""
        kinds = [self.all, self.tuned if tuned else self.demonstrations][: 1 + trained]
        return [*(fitting(k, algorithm) for k in kinds), self.methods.get(method, {})]


def read(file: Path, methods: Sequence[str]) -> tuple[Terms, dict[str, Terms]]:
    """Terms for all tasks, and by task, of a settings file.

    Keys: `all`, `tuned`, `demonstrations`, `methods`, `metrics`, `naturalness`, `parts`, and
    `tasks`, which holds the same by task. Raises UserError naming the key.
    """
    mapping = read_yaml(file)
    tasks = mapping.pop("tasks", {}) or {}
    if not isinstance(tasks, Mapping):
        raise UserError(f"{file}: 'tasks' must be a mapping: task -> settings")
    for task in tasks:
        if task not in CATALOG["task"]:
            raise unknown("task", str(task), CATALOG["task"], f"{file}, tasks")
    common = _terms(mapping, str(file), methods)
    return common, {t: _terms(m or {}, f"{file}, tasks.{t}", methods) for t, m in tasks.items()}


def _terms(mapping: Any, where: str, methods: Sequence[str]) -> Terms:
    if not isinstance(mapping, Mapping):
        raise UserError(f"{where} must be a mapping of settings, not {mapping!r:.60}")
    known = (*LAYERS, *LISTS, "parts")
    for key, value in mapping.items():
        if key not in known:
            raise unknown("key", str(key), (*known, "tasks"), where)
        is_list = key in LISTS
        if is_list and not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
            raise UserError(f"{where}: '{key}' must be a list of metrics, not {value!r:.60}")
        if not is_list and not isinstance(value, Mapping):
            raise UserError(f"{where}: '{key}' must be a mapping, not {value!r:.60}")
    for name in mapping.get("methods", {}):
        if name not in methods:
            raise unknown("method", str(name), methods, f"{where}, methods")
    for key in ("all", "tuned", "demonstrations"):
        more = {"after": UNTRAINED["after"]} if key == "demonstrations" else {}
        _check_layer(mapping.get(key, {}), {**OWN, **more}, f"{where}, {key}")
    for name, changes in mapping.get("methods", {}).items():
        if not isinstance(changes, Mapping):
            raise UserError(f"{where}, methods: '{name}' must be a mapping, not {changes!r:.60}")
        _check_layer(changes, own_of(str(name)), f"{where}, methods, {name}")
    parts = mapping.get("parts", {}).items()
    return Terms(**{**mapping, "parts": {n: _part(n, p, f"{where}, parts") for n, p in parts}})


def _check_layer(layer: Mapping[str, Any], own: Mapping[str, str], where: str) -> None:
    refuse_own(layer, own, where)
    check_sections(layer, where)


def _part(name: Any, part: Any, where: str) -> dict[str, Any]:
    """A metric with its settings; one of the catalog is its own kind. Raises UserError."""
    part = {"kind": part} if isinstance(part, str) else part
    if not isinstance(part, Mapping):
        raise UserError(f"{where}: '{name}' must be a metric with its settings, not {part!r:.60}")
    kind = part.get("kind", name)
    if "kind" not in part and name not in CATALOG["metric"]:
        raise UserError(
            f"{where}: '{name}' says no kind; add kind: METRIC, as in {{kind: rouge_1}}"
        )
    if not isinstance(kind, str):
        raise UserError(f"{where}, {name}: kind is {kind!r:.60}, not the name of a metric")
    most = part.get("maximum")
    number = isinstance(most, int | float) and not isinstance(most, bool) and most > -math.inf
    if most is not None and not number:
        raise UserError(f"{where}, {name}: maximum is {most!r:.60}, not a number")
    return {"kind": kind, **part}


def own_of(method: str) -> dict[str, str]:
    """What the benchmark makes itself of a method's settings."""
    own = {**OWN, **UNTRAINED}
    if method == ZERO_SHOT:
        return {**own, "updates": "zero-shot trains nothing"}
    if "+" not in method:
        return own
    start = "it starts from the final weights of " + method.rpartition("+")[0]
    return {**own, **{f"model.{key}": start for key in ("path", *FROM_A_RUN)}}


def house(task: str) -> Terms:
    """The terms of a task without further word: those of its PPO recipe."""
    base = recipe_mapping(f"grue-{SHORT[task]}-ppo") if task in SHORT else recipe_mapping("ppo-kl")
    algorithm = {k: v for k, v in base["algorithm"].items() if k in COUNTS}
    tuned: dict[str, Any] = {k: base[k] for k in ("updates", "batch", "optimizer") if k in base}
    shared: dict[str, Any] = {k: base[k] for k in ("model", "sampling") if k in base}
    data = {k: v for k, v in base.get("data", {}).items() if k != "task"}
    evaluation = {"prompts": 512, "test_prompts": 512}
    parts = dict(PARTS)
    if task in GERMAN:  # bert-score's own choice for German
        model = {"model": "bert-base-multilingual-cased", "layer": 9, "language": "de"}
        parts["bert_score"] = {"kind": "bert_score", **model}
        # rouge-score's own tokens have no umlauts, and its stemmer is English
        words = {"tokens": "unicode", "stemmer": False}
        parts |= {name: {"kind": name, **words} for name in ("rouge_1", "rouge_2", "rouge_l")}
    return Terms(
        all={**shared, "data": data, "evaluation": evaluation, "checkpoint": {"keep": 1}},
        tuned={**tuned, "algorithm": algorithm, "evaluation": base.get("evaluation", {})},
        parts=parts,
    )


def fitting(mapping: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Without the settings that other algorithms have and this one does not, or can have at one
    value only; a name that none has stays, and is refused later."""
    out = dict(mapping)
    if "algorithm" in out:
        fields = set(part_description("algorithm", algorithm)["fields"])
        if load("algorithm", algorithm).one_step:
            fields -= {"epochs", "minibatches"}
        every = [part_description("algorithm", a)["fields"] for a in CATALOG["algorithm"]]
        others = {name for f in every for name in f}
        given = as_part("algorithm", out["algorithm"], Place("algorithm", "")).items()
        out["algorithm"] = {k: v for k, v in given if k in fields or k not in others}
    return out


def grouped(mapping: Mapping[str, Any], where: str) -> dict[str, Any]:
    """As many completions an update as `batch.prompts` says, also where an algorithm writes several
    of each prompt; minibatches are the largest number up to theirs that divides them, those of a
    critic alone too where nobody says how many.

    where: of the settings. Raises UserError for a group that is larger than all of them.
    """
    said = mapping["algorithm"]
    algorithm = convert(PartType("algorithm"), said, Place("algorithm", where))
    prompts = convert(int, mapping["batch"]["prompts"], Place("batch.prompts", where))
    group = algorithm["group_size"]
    if group > prompts >= 1:
        raise UserError(
            f"algorithm.group_size of {where} is {group}, more than the {prompts} completions that "
            "all methods of the task train on in an update (batch.prompts); give at most as many"
        )
    counts = ["minibatches"] if group > 1 else []
    if isinstance(algorithm.get("critic_minibatches"), int) and "critic_minibatches" not in said:
        counts.append("critic_minibatches")
    prompts = max(1, round(prompts / group)) if group > 1 else prompts
    fit = {name: _divisor(prompts * group, algorithm[name]) for name in counts}
    return merge(mapping, {"batch": {"prompts": prompts}, "algorithm": fit})


def _divisor(number: int, most: int) -> int:
    return next((m for m in range(most, 0, -1) if number % m == 0), most)


def joined(first: Terms, *others: Terms) -> Terms:
    """Several terms as one, later ones win."""
    out = first
    for o in others:
        names = dict.fromkeys([*out.methods, *o.methods])
        out = replace(
            out,
            all=merge(out.all, o.all),
            tuned=merge(out.tuned, o.tuned),
            demonstrations=merge(out.demonstrations, o.demonstrations),
            methods={n: merge(out.methods.get(n, {}), o.methods.get(n, {})) for n in names},
            metrics=o.metrics if o.metrics is not None else out.metrics,
            naturalness=o.naturalness if o.naturalness is not None else out.naturalness,
            parts={**out.parts, **o.parts},
        )
    return out
