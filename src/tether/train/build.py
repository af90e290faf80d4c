"""Settings -> agents. Everything that can be refused is refused before a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.config.parts import build as build_part
from tether.config.run import ModelSettings, RunSettings
from tether.core.weights import WeightSet
from tether.distributed.total import world_size
from tether.models.critic import Critic
from tether.models.critic_start import start_from
from tether.models.dropout import drops
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model
from tether.models.weight_sets import WeightSets
from tether.rewards.combine import RewardSet
from tether.rollout.engine import Engine
from tether.tasks.environment import SingleTurn
from tether.tasks.loading import check_columns, check_rows, load_task
from tether.tasks.reading import Table
from tether.tethers.base import Tether
from tether.train.agent import Agent
from tether.train.human import check_domains, load_human
from tether.train.optimizer import MasterOptimizer
from tether.train.own_texts import check_own_texts, load_own_texts
from tether.train.refuse import refuse, steps_of


@dataclass(frozen=True)
class Parts:
    """What is built without a model: parts that may be given as Python objects instead."""

    algorithm: Algorithm
    tethers: dict[str, Tether]
    rewards: RewardSet
    judges: RewardSet | None
    environment: Any
    engine: Engine


def build_parts(settings: RunSettings) -> Parts:
    """Raises UserError for anything that the settings alone can show to be wrong."""

    def each(family: str, parts: dict[str, Any], where: str) -> dict[str, Any]:
        return {k: build_part(family, p, f"{where}.{k}") for k, p in parts.items() if p is not None}

    parts = Parts(
        algorithm=build_part("algorithm", settings.algorithm, "algorithm"),
        tethers=each("tether", settings.tethers, "tethers"),
        rewards=RewardSet(each("reward", settings.rewards, "rewards")),
        judges=RewardSet(each("reward", settings.judges, "judges")) if settings.judges else None,
        environment=build_part("environment", settings.environment, "environment"),
        engine=build_part("engine", settings.engine, "engine"),
    )
    refuse(settings, parts.algorithm, parts.tethers)
    return parts


def check_data(settings: RunSettings, parts: Parts) -> None:
    """Columns, rows and rewards, before any model is loaded (B34)."""
    if not settings.data.path:
        raise UserError("data.path is empty: give a hub id, a folder or a file (--data X)")
    columns = check_columns(settings.data)
    check_own_texts(parts.tethers, settings.data)
    for rewards in (parts.rewards, parts.judges):
        if rewards is not None:
            rewards.check(columns)
    check_domains(settings.evaluation)

    def scored(split: str, table: Table, rows: list[int]) -> None:
        if split == "test" and not settings.evaluation.test_prompts:
            return  # it is never scored, and may lack what rewards need
        if split != "train" or parts.algorithm.uses_rewards:
            parts.rewards.check_rows(table, rows)
        if split != "train" and parts.judges is not None:
            parts.judges.check_rows(table, rows)

    check_rows(settings.data, scored)


def build_agent(settings: RunSettings, parts: Parts, name: str = "agent") -> Agent:
    lm = load_language_model(settings.model, seed=settings.seed, stop=settings.sampling.stop)
    _check_top_k(settings, lm.vocab_size)
    _check_effects(settings.model, lm)
    parts.engine.prepare(lm)
    wanted = settings.evaluation.test_prompts
    tasks = load_task(
        settings.data,
        lm.tokenizer,
        settings.sampling,
        max_positions=lm.max_positions,
        seq2seq=lm.seq2seq,
        encoder_positions=lm.encoder_positions,
        caps={
            "validation": max(settings.evaluation.prompts, settings.evaluation.human_rows),
            "test": wanted or 1,
        },
    )
    train, validation, test = tasks["train"], tasks["validation"], tasks["test"]
    if train is None:
        raise UserError("data: no training prompt is left after the split")
    if validation is None:
        raise UserError(
            "data: there are no validation prompts; name data.validation or hold out"
            " data.validation_rows"
        )
    if wanted and test is None:
        raise UserError(
            f"evaluation.test_prompts is {wanted} but there is no test split; name data.test or"
            " hold out data.test_rows"
        )
    n, world = settings.batch.prompts, world_size()
    if n % world:
        raise UserError(
            f"batch.prompts {n} does not divide over {world} processes; use"
            f" {max(1, n // world) * world}"
        )
    for rewards in (parts.rewards, parts.judges):
        if rewards is not None:
            rewards.prepare()
    algorithm = parts.algorithm
    critic = _critic(lm, settings) if algorithm.needs_values else None
    copies = "cpu" if settings.model.copies == "cpu" else None
    sets = WeightSets(lm, critic, copies=copies)
    sets.check_base()
    _declare(sets, parts.tethers)
    groups, working = _groups(sets, critic)
    for tether_name, t in parts.tethers.items():
        t.meet(lm.stops)
        _check_parts(tether_name, t, sets)
    human = load_human(lm, validation, settings.data, settings.evaluation)
    return Agent(
        name=name,
        lm=lm,
        tasks={k: t for k, t in tasks.items() if t is not None and (k != "test" or wanted)},
        rewards=parts.rewards,
        judges=parts.judges,
        algorithm=algorithm,
        tethers=parts.tethers,
        engine=parts.engine,
        sampling=settings.sampling,
        evaluation=settings.evaluation,
        sets=sets,
        optimizer=MasterOptimizer(
            groups,
            working,
            settings.optimizer,
            steps_of(algorithm, settings.updates).minibatch,
            apart=lm.capture,
        ),
        prompts=settings.batch.prompts,
        microbatch=settings.batch.microbatch,
        old_logprobs=settings.batch.old_logprobs,
        critic=critic,
        critic_lr=settings.critic.lr,
        environment=None if isinstance(parts.environment, SingleTurn) else parts.environment,
        human=human,
        draws=load_own_texts(lm, parts.tethers, settings.data, settings.seed),
    )


def _check_effects(settings: ModelSettings, lm: LanguageModel) -> None:
    """Raises UserError: what was asked for cannot do anything with this model."""
    if settings.dropout and not drops(lm.module):
        raise UserError(
            f"model.dropout cannot have an effect: no layer of {settings.path!r} drops "
            "anything (the rates in its configuration are 0); leave it out"
        )
    if settings.capture and (why := lm.cannot_record()) is not None:
        raise UserError(f"model.capture cannot have an effect here: {why}; leave it out")


def _critic(lm: LanguageModel, settings: RunSettings) -> Critic:
    start = None
    if settings.critic.start != "policy":
        start = start_from(settings.critic.start, lm, settings.model.lora, settings.seed)
    return Critic(lm, settings.critic.kind, start)


def _declare(sets: WeightSets, tethers: dict[str, Tether]) -> None:
    for t in tethers.values():
        sources = t.sources()
        for name in dict.fromkeys((*t.keeps(), *sources)):
            sets.declare(name, source=sources.get(name))
    for t in tethers.values():
        for name, depth in t.reads().items():
            if depth != "tokens" and name != "policy":
                sets.declare(name, resident=True)


def _check_top_k(settings: RunSettings, vocabulary: int) -> None:
    chosen = {"sampling": settings.sampling, "evaluation.sampling": settings.evaluation.sampling}
    for where, sampling in chosen.items():
        if sampling is not None and sampling.top_k >= vocabulary:
            raise UserError(
                f"{where}.top_k {sampling.top_k} would allow every token: the vocabulary has"
                f" {vocabulary}; lower it, or set it to 0 = off"
            )


def _check_parts(name: str, tether: Tether, sets: WeightSets) -> None:
    try:
        tether.check_names(list(sets.sets["policy"]))
        tether.check_vocabulary(sets.lm.vocab_size)
    except UserError as e:
        raise UserError(f"tethers.{name}.{e}") from e


def _groups(
    sets: WeightSets, critic: Critic | None
) -> tuple[dict[str, list[Tensor]], dict[str, list[Tensor]]]:
    names = ["policy"] + (["critic"] if critic is not None else [])
    masters: dict[str, WeightSet] = {n: sets.sets[n] for n in names}
    return (
        {n: list(m.values()) for n, m in masters.items()},
        {n: [sets.working[n][k] for k in m] for n, m in masters.items()},
    )


def set_threads(settings: Any) -> None:
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
