"""Names -> `module:Class`. A visible table instead of decorators: listing needs no import, and a
user's own `file.py:Class` or `module:Class` is read the same way.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from tether.config.errors import Terminated, UserError
from tether.config.nearest import nearest, unknown

CATALOG: dict[str, dict[str, str]] = {
    "algorithm": {
        "a2c": "tether.algorithms.a2c:A2C",
        "best_of_n": "tether.algorithms.best_of_n:BestOfN",
        "filtered_supervised": "tether.algorithms.filtered_supervised:FilteredSupervised",
        "grpo": "tether.algorithms.grpo:GRPO",
        "ppo": "tether.algorithms.ppo:PPO",
        "reinforce": "tether.algorithms.reinforce:Reinforce",
        "rloo": "tether.algorithms.rloo:RLOO",
        "supervised": "tether.algorithms.supervised:Supervised",
        "trpo": "tether.algorithms.trpo:TRPO",
    },
    "tether": {
        "kl": "tether.tethers.kl:KLPenalty",
        "elastic_reset": "tether.tethers.elastic_reset:ElasticReset",
        "reset_to_init": "tether.tethers.reset_to_init:ResetToInit",
        "reset_to_ema": "tether.tethers.reset_to_ema:ResetToEMA",
        "ema_anchor": "tether.tethers.ema_anchor:EMAAnchor",
        "ref_sync": "tether.tethers.ref_sync:RefSync",
        "elastic_pull": "tether.tethers.elastic_pull:ElasticPull",
        "kl_loss": "tether.tethers.kl_loss:KLLoss",
        "min_length": "tether.tethers.min_length:MinLength",
        "rehearsal": "tether.tethers.rehearsal:Rehearsal",
        "replay": "tether.tethers.replay:Replay",
        "nlpo_mask": "tether.tethers.nlpo_mask:NLPOMask",
    },
    "trigger": {
        "every": "tether.tethers.triggers:Every",
        "drift_budget": "tether.tethers.triggers:DriftBudget",
        "plateau": "tether.tethers.triggers:Plateau",
        "any_of": "tether.tethers.triggers:AnyOf",
        "all_of": "tether.tethers.triggers:AllOf",
    },
    "controller": {
        "fixed": "tether.tethers.controllers:Fixed",
        "rl4lms": "tether.tethers.controllers:RL4LMs",
        "ziegler": "tether.tethers.controllers:Ziegler",
    },
    "reward": {
        "function": "tether.rewards.function:FunctionReward",
        "classifier": "tether.rewards.classifier:ClassifierReward",
        "ensemble": "tether.rewards.ensemble:EnsembleReward",
        "metric": "tether.rewards.metric:MetricReward",
        "repeat_penalty": "tether.rewards.repeat_penalty:RepeatPenalty",
        "concept_preference": "tether.rewards.concept_preference:ConceptPreference",
        "lexicon": "tether.rewards.lexicon:LexiconReward",
        "length": "tether.rewards.length:LengthReward",
        "contains": "tether.rewards.contains:ContainsReward",
        "tfidf": "tether.rewards.tfidf:TfidfJudge",
    },
    "environment": {"single_turn": "tether.tasks.environment:SingleTurn"},
    "engine": {
        "hf": "tether.rollout.hf:HFEngine",
        "graph": "tether.rollout.graph:GraphEngine",
    },
    "metric": {
        "rouge_1": "tether.metrics.rouge:Rouge1",
        "rouge_2": "tether.metrics.rouge:Rouge2",
        "rouge_l": "tether.metrics.rouge:RougeL",
        "rouge_lsum": "tether.metrics.rouge:RougeLsum",
        "rouge_l_max": "tether.metrics.rouge:RougeLMax",
        "bleu": "tether.metrics.translation:Bleu",
        "sacre_bleu": "tether.metrics.translation:SacreBleu",
        "chrf": "tether.metrics.translation:ChrF",
        "ter": "tether.metrics.translation:TER",
        "meteor": "tether.metrics.meteor:Meteor",
        "bert_score": "tether.metrics.bertscore:BertScore",
        "cider_d": "tether.metrics.cider:CiderD",
        "spice": "tether.metrics.spice:Spice",
        "parent": "tether.metrics.parent:Parent",
        "parent_by_overlap": "tether.metrics.subsets:ParentByOverlap",
        "sacre_bleu_by_overlap": "tether.metrics.subsets:SacreBleuByOverlap",
        "bleurt": "tether.metrics.bleurt:Bleurt",
        "summac": "tether.metrics.summac:SummaC",
        "summac_conv": "tether.metrics.summac:SummaCConv",
        "mauve": "tether.metrics.mauve:Mauve",
        "coverage": "tether.metrics.coverage:Coverage",
        "intent_accuracy": "tether.rewards.learned_metrics:IntentAccuracy",
        "classifier": "tether.rewards.learned_metrics:LearnedClassifier",
        "preference": "tether.rewards.learned_metrics:PreferenceModel",
        "msttr": "tether.metrics.diversity:MSTTR",
        "distinct_1": "tether.metrics.diversity:Distinct1",
        "distinct_2": "tether.metrics.diversity:Distinct2",
        "distinct_n": "tether.metrics.diversity:DistinctN",
        "ngram_entropy": "tether.metrics.diversity:NgramEntropy",
        "unique_ngrams": "tether.metrics.diversity:UniqueNgrams",
        "common_ngram_share": "tether.metrics.diversity:CommonNgramShare",
        "length": "tether.metrics.diversity:Length",
        "drift": "tether.metrics.drift:own_samples",
        "drift_on_human": "tether.metrics.drift:on_human",
        "drift_on_domains": "tether.metrics.drift:on_domains",
        "perplexity": "tether.metrics.perplexity:pooled",
        "perplexity_mean_of_texts": "tether.metrics.perplexity:mean_of_texts",
        "perplexity_joined": "tether.metrics.perplexity:joined",
        "perplexity_by_group": "tether.metrics.perplexity:by_group",
    },
    "task": {
        "imdb": "tether.tasks.imdb:IMDB",
        "commongen": "tether.tasks.commongen:CommonGen",
        "cnn_dailymail": "tether.tasks.cnn_dailymail:CNNDailyMail",
        "totto": "tether.tasks.totto:ToTTo",
        "iwslt17": "tether.tasks.iwslt17:IWSLT17",
        "wmt16": "tether.tasks.wmt16:WMT16",
        "narrativeqa": "tether.tasks.narrativeqa:NarrativeQA",
        "dailydialog": "tether.tasks.dailydialog:DailyDialog",
        "fairytaleqa": "tether.tasks.fairytaleqa:FairytaleQA",
        "fetaqa": "tether.tasks.fetaqa:FeTaQA",
        "dart": "tether.tasks.dart:DART",
        "scitldr": "tether.tasks.scitldr:SciTLDR",
        "xsum": "tether.tasks.xsum:XSum",
        "multi30k": "tether.tasks.multi30k:Multi30k",
    },
    "recipe": {
        "ppo": "tether.recipes.generic:ppo",
        "ppo-kl": "tether.recipes.generic:ppo_kl",
        "elastic-reset": "tether.recipes.generic:elastic_reset",
        "a2c": "tether.recipes.generic:a2c",
        "trpo": "tether.recipes.generic:trpo",
        "reinforce": "tether.recipes.generic:reinforce",
        "rloo": "tether.recipes.generic:rloo",
        "grpo": "tether.recipes.generic:grpo",
        "best-of-n": "tether.recipes.generic:best_of_n",
        "filtered-supervised": "tether.recipes.generic:filtered_supervised",
        "supervised": "tether.recipes.generic:supervised",
        "drift-budget": "tether.recipes.kin:drift_budget",
        "reset-to-init": "tether.recipes.kin:reset_to_init",
        "reset-to-ema": "tether.recipes.kin:reset_to_ema",
        "ema-anchor": "tether.recipes.kin:ema_anchor",
        "ref-sync": "tether.recipes.kin:ref_sync",
        "elastic-pull": "tether.recipes.kin:elastic_pull",
        "kl-loss": "tether.recipes.kin:kl_loss",
        "nlpo": "tether.recipes.nlpo:nlpo",
        "reward-model": "tether.recipes.reward_model:pairwise",
        "toy": "tether.recipes.toy:toy",
        "toy-rehearsal": "tether.recipes.toy:toy_rehearsal",
        "ppo-rehearsal": "tether.recipes.memory:ppo_rehearsal",
        "elastic-reset-replay": "tether.recipes.memory:elastic_reset_replay",
        "imdb-supervised": "tether.recipes.imdb:supervised",
        "imdb-classifier": "tether.recipes.imdb:classifier",
        "imdb-judge": "tether.recipes.imdb:judge",
        "imdb-ppo": "tether.recipes.imdb:ppo",
        "imdb-ppo-kl": "tether.recipes.imdb:ppo_kl",
        "imdb-elastic-reset": "tether.recipes.imdb:elastic_reset",
        "grue-imdb-supervised": "tether.recipes.grue_imdb:supervised",
        "grue-imdb-ppo": "tether.recipes.grue_imdb:ppo",
        "grue-imdb-nlpo": "tether.recipes.grue_imdb:nlpo",
        "grue-imdb-supervised-ppo": "tether.recipes.grue_imdb:supervised_ppo",
        "grue-imdb-supervised-nlpo": "tether.recipes.grue_imdb:supervised_nlpo",
        "grue-commongen-supervised": "tether.recipes.grue_commongen:supervised",
        "grue-commongen-ppo": "tether.recipes.grue_commongen:ppo",
        "grue-commongen-nlpo": "tether.recipes.grue_commongen:nlpo",
        "grue-commongen-supervised-ppo": "tether.recipes.grue_commongen:supervised_ppo",
        "grue-commongen-supervised-nlpo": "tether.recipes.grue_commongen:supervised_nlpo",
        "grue-cnn-supervised": "tether.recipes.grue_cnn:supervised",
        "grue-cnn-ppo": "tether.recipes.grue_cnn:ppo",
        "grue-cnn-nlpo": "tether.recipes.grue_cnn:nlpo",
        "grue-cnn-supervised-ppo": "tether.recipes.grue_cnn:supervised_ppo",
        "grue-cnn-supervised-nlpo": "tether.recipes.grue_cnn:supervised_nlpo",
        "grue-totto-supervised": "tether.recipes.grue_totto:supervised",
        "grue-totto-ppo": "tether.recipes.grue_totto:ppo",
        "grue-totto-nlpo": "tether.recipes.grue_totto:nlpo",
        "grue-totto-supervised-ppo": "tether.recipes.grue_totto:supervised_ppo",
        "grue-totto-supervised-nlpo": "tether.recipes.grue_totto:supervised_nlpo",
        "grue-iwslt-supervised": "tether.recipes.grue_iwslt:supervised",
        "grue-iwslt-ppo": "tether.recipes.grue_iwslt:ppo",
        "grue-iwslt-nlpo": "tether.recipes.grue_iwslt:nlpo",
        "grue-iwslt-supervised-ppo": "tether.recipes.grue_iwslt:supervised_ppo",
        "grue-iwslt-supervised-nlpo": "tether.recipes.grue_iwslt:supervised_nlpo",
        "grue-narrativeqa-supervised": "tether.recipes.grue_narrativeqa:supervised",
        "grue-narrativeqa-ppo": "tether.recipes.grue_narrativeqa:ppo",
        "grue-narrativeqa-nlpo": "tether.recipes.grue_narrativeqa:nlpo",
        "grue-narrativeqa-supervised-ppo": "tether.recipes.grue_narrativeqa:supervised_ppo",
        "grue-narrativeqa-supervised-nlpo": "tether.recipes.grue_narrativeqa:supervised_nlpo",
        "grue-dialog-supervised": "tether.recipes.grue_dialog:supervised",
        "grue-dialog-ppo": "tether.recipes.grue_dialog:ppo",
        "grue-dialog-nlpo": "tether.recipes.grue_dialog:nlpo",
        "grue-dialog-supervised-ppo": "tether.recipes.grue_dialog:supervised_ppo",
        "grue-dialog-supervised-nlpo": "tether.recipes.grue_dialog:supervised_nlpo",
        "rl4lms-commongen-supervised-ppo": "tether.recipes.rl4lms:commongen_supervised_ppo",
        "rl4lms-commongen-supervised-nlpo": "tether.recipes.rl4lms:commongen_supervised_nlpo",
        "rl4lms-cnn-nlpo": "tether.recipes.rl4lms:cnn_nlpo",
        "rl4lms-cnn-supervised-ppo": "tether.recipes.rl4lms:cnn_supervised_ppo",
        "rl4lms-cnn-supervised-nlpo": "tether.recipes.rl4lms:cnn_supervised_nlpo",
        "rl4lms-dialog-supervised-ppo": "tether.recipes.rl4lms:dialog_supervised_ppo",
        "rl4lms-dialog-supervised-nlpo": "tether.recipes.rl4lms:dialog_supervised_nlpo",
    },
}
"""family -> name -> where it is."""

BASES: dict[str, str] = {
    "tether.algorithms.base:Algorithm": "algorithm",
    "tether.tethers.base:Tether": "tether",
    "tether.tethers.triggers:Trigger": "trigger",
    "tether.tethers.controllers:Controller": "controller",
    "tether.rewards.base:Reward": "reward",
    "tether.tasks.environment:Environment": "environment",
    "tether.rollout.engine:Engine": "engine",
    "tether.tasks.definition:TaskDefinition": "task",
    "tether.metrics.base:Metric": "metric",
}
"""Base class -> family: a nested part is recognised by name, and so without torch."""


def names(family: str) -> list[str]:
    """Names of one family. Raises UserError for a family that is not there."""
    if family not in CATALOG:
        raise unknown("family", family, CATALOG, "the catalog")
    return sorted(CATALOG[family])


def kinds(family: str) -> list[str]:
    """Names of one family that are classes with settings: what a nested part can be. Of metrics the
    others are measurements that evaluations make from a model's scores."""
    return [n for n, address in CATALOG[family].items() if address.split(":")[1][0].isupper()]


def target(family: str, kind: str, where: str = "") -> str:
    """`module:Class` or `file.py:Class` behind a kind, without importing it."""
    if not isinstance(kind, str):
        raise UserError(f"the kind of a {family} must be text{_in(where)}, not {kind!r}")
    if kind in CATALOG[family]:
        return CATALOG[family][kind]
    if ":" in kind:
        return kind
    if family == "reward":
        raise unknown_reward(kind, where)
    raise unknown(family, kind, names(family), where)


def unknown_reward(name: str, where: str, how: str = "{{kind: metric, metric: {0}}}") -> UserError:
    """The error for a name that is no reward. Where it is a metric's, or looks like one and like no
    reward, it says how a metric is made a reward; how: with the metric's name as {0}."""
    metrics = kinds("metric")
    close = None if nearest(name, CATALOG["reward"]) else nearest(name, metrics)
    metric = name if name in metrics else close
    if metric is None:
        return unknown("reward", name, CATALOG["reward"], where)
    it = "it is a metric" if metric == name else f"did you mean the metric '{metric}'?"
    return UserError(
        f"unknown reward '{name}'{_in(where)}; {it}{',' if metric == name else ''} "
        f"metrics are rewards too: {how.format(metric)}"
    )


def load(family: str, kind: str, where: str = "") -> Any:
    """The class (or function) behind a kind: a catalog name, `file.py:Class` or `module:Class`.

    Raises UserError where it cannot be found; an error inside the user's module is shown as such.
    """
    return load_object(target(family, kind, where), where)


def load_object(address: str, where: str = "") -> Any:
    """`file.py:name`, `module:name` or `module:outer.name` -> the object. The current folder is
    importable."""
    place, _, attribute = address.partition(":")
    if not place or not attribute:
        raise UserError(
            f"'{address}'{_in(where)} is not an address; write file.py:NAME or module:NAME"
        )
    module = _file(place, where) if place.endswith(".py") else _module(place, where)
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise unknown("name", name, [n for n in dir(found) if n[0] != "_"], place)
        found = getattr(found, name)
    return found


def kind_of(family: str, cls: Any) -> str:
    """The kind that leads back to a class or function; inverse of `load`.

    A class of the catalog gives its name; a file below the current folder gives `file.py:Class`;
    anything else importable gives `module:Class`.
    """
    own = f"{cls.__module__}:{cls.__qualname__}"
    for name, address in CATALOG[family].items():
        if address == own:
            return name
    return address_of(cls, family)


def address_of(thing: Any, family: str = "object") -> str:
    """`file.py:name` or `module:name` of a class or function given from Python."""
    if not hasattr(thing, "__qualname__") or not hasattr(thing, "__module__"):
        raise UserError(f"a {family} must be a class or a function with a name, not {thing!r}")
    name = thing.__qualname__
    if "<" in name:
        raise UserError(
            f"the {family} '{name}' cannot be found again from another process; "
            "define it with a name at the top level of a file"
        )
    module = sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    if file and (thing.__module__ == "__main__" or thing.__module__.startswith(_PRIVATE)):
        return f"{_short(Path(file))}:{name}"
    return f"{thing.__module__}:{name}"


_PRIVATE = "_tether_file_"


def _in(where: str) -> str:
    return f" in {where}" if where else ""


def _short(path: Path) -> str:
    path = path.resolve()
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _file(place: str, where: str) -> ModuleType:
    path = Path(place).expanduser().resolve()
    main = sys.modules.get("__main__")
    main_file = getattr(main, "__file__", None)
    if main is not None and main_file and Path(main_file).resolve() == path:
        return main  # the running script itself: importing it again would run it again
    if not path.is_file():
        raise UserError(f"there is no file '{place}'{_in(where)} (looked in {Path.cwd()})")
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path) and module is not main:
            return module
    private = f"{_PRIVATE}{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(private, path)
    if spec is None or spec.loader is None:
        raise UserError(f"'{place}'{_in(where)} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # its own imports of neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as e:  # a script that ends with sys.exit()
        del sys.modules[private]
        _leave_if_asked(e)
        raise UserError(f"{place}{_in(where)} fails on import: {type(e).__name__}: {e}") from e
    return module


def _module(place: str, where: str) -> ModuleType:
    if place in sys.modules:
        return sys.modules[place]
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as e:
        missing = e.name or place
        if place == missing or place.startswith(missing + "."):
            raise UserError(
                f"there is no module '{place}'{_in(where)}; for a file write {place}.py:NAME"
            ) from e
        raise UserError(f"{place}{_in(where)} needs the module '{missing}': install it") from e
    except (Exception, SystemExit) as e:  # a script that ends with sys.exit()
        _leave_if_asked(e)
        raise UserError(f"{place}{_in(where)} fails on import: {type(e).__name__}: {e}") from e


def _leave_if_asked(error: BaseException) -> None:
    """A signal that came during an import stops the run; it is no fault of what was imported."""
    if isinstance(error, Terminated):
        raise error


def family_of(cls: Any) -> str | None:
    """The family of a class: by the base class it has, compared by name."""
    if not inspect.isclass(cls):
        return None
    for base in cls.__mro__:
        family = BASES.get(f"{base.__module__}:{base.__qualname__}")
        if family:
            return family
    return None
