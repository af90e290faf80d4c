"""Reward and drift of the same weights, on the same prompts, with a seed of its own. Training's
randomness is not touched, because none of it is global (B35)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from tether.config.run import SamplingSettings
from tether.core.weights import distance
from tether.distributed.total import rank, total, world_size
from tether.metrics.drift import (
    Gauges,
    kl_gauges,
    on_domains,
    on_human,
    own_samples,
    per_sequence,
)
from tether.metrics.text import text_gauges
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all
from tether.records import EvalPoint
from tether.rollout.engine import join
from tether.tasks.task import Task
from tether.train.agent import Agent
from tether.train.collect import Scoring, ids_of, reward_thread, write
from tether.types import Scores

Split = Literal["validation", "test"]
Side = Literal["", "before", "after"]
PROBES = 64
"""Prompts on which a move's limit (`types.Until`) is measured."""


@torch.no_grad()
def evaluate(
    agent: Agent,
    update: int,
    split: Split,
    *,
    side: str = "",
    common: bool = False,
    weights: str = "live",
    prompts: int | None = None,
    constrained: bool = True,
    heed: Callable[[], None] | None = None,
) -> Iterator[tuple[EvalPoint, list[dict[str, Any]]]]:
    """One point, or two for a constrained policy: as exported, and as sampled. With its samples.

    constrained: False leaves the second one out (weights of another time than the constraint's).
    heed: called between batches; may raise to leave.
    """
    with agent.sets.beside("initial") as initial:
        human = human_gauges(agent, initial) if split == "validation" else Gauges()
        for policy in _policies(agent, constrained):
            one = _Evaluation(
                agent, initial, split, policy == "constrained", prompts,
                step=update, heed=heed,
            )  # fmt: skip
            point = EvalPoint(
                agent=agent.name,
                update=update,
                policy_version=agent.version,
                split=split,
                side=side,  # type: ignore[arg-type]
                common=common,
                weights=weights,
                policy=policy,  # type: ignore[arg-type]
                **one.measure(human),
            )
            if policy == "exported" and weights == "live":
                for name, value in (point.drift | point.metrics).items():
                    agent.measured[name] = (value, agent.version)
                agent.measured["evaluation/reward"] = (point.reward, agent.version)
            yield point, one.samples(point)


def _policies(agent: Agent, constrained: bool) -> tuple[str, ...]:
    return ("exported", "constrained") if agent.constraints and constrained else ("exported",)


@torch.no_grad()
def probe(agent: Agent) -> dict[str, float]:
    """Drift gauges of the live policy on a few validation prompts (for a move with a limit)."""
    with agent.sets.beside("initial") as initial:
        one = _Evaluation(agent, initial, "validation", False, PROBES, scored=False)
        values = one.gauges(human_gauges(agent, initial)).values
        return {k: v for k, v in values.items() if k.startswith("drift/")}


def human_gauges(agent: Agent, initial: LanguageModel) -> Gauges:
    """Policy on human text. Every rank computes all of it: the texts are few."""
    human, out = agent.human, Gauges()
    if human is None:
        return out
    kw: dict[str, Any] = {"microbatch": agent.microbatch}
    if human.domain is not None:
        s = human.domain.to(agent.lm.device)
        scores = score_all(agent.lm, s, against={"initial": initial}, **kw)
        out = out | on_human(scores, s.completion_mask, human.labels)
    others = {}
    for name, texts in human.others.items():
        s = texts.to(agent.lm.device)
        others[name] = (score_all(agent.lm, s, **kw), s.completion_mask)
    return out | on_domains(others)


class _Evaluation:
    """Completions of one policy on one split, scored."""

    def __init__(
        self,
        agent: Agent,
        initial: LanguageModel,
        split: Split,
        constrained: bool,
        prompts: int | None,
        *,
        step: int = 0,
        scored: bool = True,
        heed: Callable[[], None] | None = None,
    ) -> None:
        """step: what rewards see as `trainer_state.global_step`. scored: call the rewards."""
        self._heed = heed
        self.agent, self.split, self.constrained = agent, split, constrained
        self.scored = scored
        self.task: Task = agent.tasks[split]
        settings = agent.evaluation
        wanted = prompts or (settings.prompts if split == "validation" else settings.test_prompts)
        n = min(wanted, len(self.task))
        index = torch.arange(n)[rank() :: world_size()]
        # log-probs of the distribution that sampled, and no sets: nothing is updated here
        sampling = replace(agent.evaluation_sampling, scored="sampled", allowed_bytes=0)
        key = ("evaluation", settings.seed, split)
        sets = [agent.rewards] if agent.judges is None else [agent.rewards, agent.judges]
        sets = sets if scored else []
        with reward_thread() as pool:
            chunks = write(agent, self.task, index, key, sampling, constrained=constrained)
            state = {"global_step": step, "evaluation": split}
            scoring = Scoring(agent, self.task, chunks, sets, state, pool, heed)
            self.rollout, self.texts = scoring.rollout, scoring.texts
            self._score(initial, index, key)
            if scored:
                self.rewards = scoring.result()
                self.judges = scoring.result(1) if agent.judges is not None else None

    def _score(self, initial: LanguageModel, index: Tensor, key: tuple[object, ...]) -> None:
        """Drift is along plain samples: where evaluation samples otherwise, others are drawn."""
        agent, sampling = self.agent, self.agent.evaluation_sampling
        self.plain = self.rollout
        if not self.constrained and not is_plain(sampling):
            chunks = write(agent, self.task, index, key, plainly(sampling), constrained=False)
            plain = []
            for c in chunks:
                plain.append(c.rollout)
                if self._heed is not None:
                    self._heed()
            self.plain = join(plain, agent.lm.pad)
        s, micro = self.plain.sequences, agent.microbatch
        self.policy: Scores = score_all(
            agent.lm, s, entropy=True, against={"initial": initial}, microbatch=micro,
            heed=self._heed,
        )  # fmt: skip
        theirs = self.policy.set_logprobs["initial"]
        self.initial = Scores(logprobs=theirs, free_logprobs=theirs)

    def _drift(self) -> Gauges:
        mask = self.plain.sequences.completion_mask & self.plain.sampled
        if not self.constrained:
            return own_samples(self.policy, self.initial, mask, total)
        # A masked policy's KL is of its own, renormalised log-probs: only k1 is at hand.
        out, logprobs = Gauges(), self.plain.logprobs
        assert logprobs is not None
        for name, value in kl_gauges(
            logprobs - self.initial.free_logprobs, mask, "drift/kl_initial.k1", total
        ).items():
            out.put(name, value, "no sampled token")
        return out

    def gauges(self, human: Gauges) -> Gauges:
        """Drift along own samples, on human text, and of the weights (equal on all ranks)."""
        gauges = self._drift() | human
        sets = self.agent.sets.sets
        gauges.put("drift/weight_distance", float(distance(sets["policy"], sets["initial"])))
        return gauges

    def measure(self, human: Gauges) -> dict[str, Any]:
        """The numbers of an `EvalPoint`."""
        reward, se, n = _mean_se(self.rewards.score)
        gauges = self.gauges(human)
        ids = ids_of(self.rollout.sequences)
        pairs = everywhere(list(zip(ids, self.rollout.finished.tolist(), strict=True)))
        text = text_gauges([i for i, _ in pairs], [f for _, f in pairs])
        logged = {f"reward/{k}": v for k, v in self.rewards.metrics.items()} if self.scored else {}
        values = gauges.values | text | logged
        return {
            "prompts": n,
            "reward": reward,
            "reward_se": se,
            "scores": _means(self.rewards.per_function),
            "judges": _means(self.judges.per_function) if self.judges else {},
            "drift": {k: v for k, v in values.items() if k.startswith("drift/")},
            "metrics": {k: v for k, v in values.items() if not k.startswith("drift/")},
        }

    def samples(self, point: EvalPoint) -> list[dict[str, Any]]:
        """The first rows, for people to read."""
        own = self.plain.sequences.completion_mask & self.plain.sampled
        nats = per_sequence(self.policy.exact_kl["initial"], own).tolist()
        out: list[dict[str, Any]] = []
        settings = self.agent.evaluation
        most = settings.samples
        if self.split == "test" and settings.test_samples is not None:
            most = settings.test_samples
        for i, row in enumerate(self.rollout.row.tolist()[:most]):
            out.append(
                {
                    "agent": point.agent,
                    "update": point.update,
                    "side": point.side,
                    "split": point.split,
                    "weights": point.weights,
                    "policy": point.policy,
                    "row": row,
                    "prompt": self.task.raw_prompts[row],
                    "completion": self.texts[i],
                    "score": self.rewards.score[i],
                    "scores": {k: v[i] for k, v in self.rewards.per_function.items()},
                    "judges": {k: v[i] for k, v in self.judges.per_function.items()}
                    if self.judges
                    else {},
                    "extra": {k: v[i] for k, v in self.rewards.extra.items()},
                    "drift_nats": nats[i] if self.plain is self.rollout else None,
                }
            )
        return out


def is_plain(s: SamplingSettings) -> bool:
    """The whole vocabulary at temperature 1: the samples that KL is defined along."""
    return (
        s.temperature == 1.0
        and s.top_k == 0
        and s.top_p == 1.0
        and s.min_new_tokens == 0
        and not s.greedy
    )


def plainly(s: SamplingSettings) -> SamplingSettings:
    return replace(s, temperature=1.0, top_k=0, top_p=1.0, min_new_tokens=0, greedy=False)


def everywhere(values: list[Any]) -> list[Any]:
    """One list over all ranks."""
    if world_size() == 1:
        return values
    parts: list[Any] = [None] * world_size()
    dist.all_gather_object(parts, values)
    return [v for part in parts for v in part]


def _mean_se(scores: list[float | None]) -> tuple[float, float, int]:
    """Mean, standard error of the mean, and count of the samples that have a score."""
    there = [s for s in everywhere(list(scores)) if s is not None]
    n = len(there)
    if not n:
        return math.nan, math.nan, 0
    mean = math.fsum(there) / n
    if n < 2:
        return mean, math.nan, n
    var = math.fsum((s - mean) ** 2 for s in there) / (n - 1)
    return mean, math.sqrt(var / n), n


def _means(per_function: dict[str, list[float | None]]) -> dict[str, float]:
    return {k: _mean_se(v)[0] for k, v in per_function.items()}
