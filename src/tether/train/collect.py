"""Prompts -> experience (box numbers 1 to 5): write, reward in a thread while the next chunk is
written and the scoring runs, score old, references and values with one function, shape rewards."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tether.algorithms.base import Algorithm
from tether.config.run import SamplingSettings
from tether.core.gate import beside
from tether.core.masking import at_last
from tether.distributed.total import rank, total, world_size
from tether.models.critic import Critic
from tether.models.scoring import score_all, scored_as, values_of
from tether.models.tokenizing import decode
from tether.rewards.batch import Prompt, RewardBatch
from tether.rewards.combine import RewardResult, RewardSet
from tether.rollout.engine import join
from tether.tasks.task import Task
from tether.train import self_checks
from tether.train.agent import Agent, device_of
from tether.train.episodes import play
from tether.types import Experience, Rollout, Scores, Sequences


@dataclass(frozen=True)
class Chunk:
    """Some completions, and what an environment showed and paid."""

    rollout: Rollout
    prompts: list[Prompt] | None = None
    """Where the environment's prompts differ from the dataset's."""
    paid: list[float | None] | None = None


def ids_of(s: Sequences) -> list[list[int]]:
    """Real completion tokens, up to and including the stop token."""
    return [
        [t for t, real in zip(row, keep, strict=True) if real]
        for row, keep in zip(s.completion.tolist(), s.completion_mask.tolist(), strict=True)
    ]


def reward_batch(agent: Agent, task: Task, chunk: Chunk, state: dict[str, Any]) -> RewardBatch:
    ids = ids_of(chunk.rollout.sequences)
    rows = chunk.rollout.row.tolist()
    return RewardBatch(
        prompts=chunk.prompts or [task.raw_prompts[i] for i in rows],
        completions=[decode(agent.lm.tokenizer, x) for x in ids],
        completion_ids=ids,
        columns={k: task.column(k, rows) for k in task.columns},
        trainer_state=state,
        finished=chunk.rollout.finished.tolist(),
    )


def write(
    agent: Agent,
    task: Task,
    index: Tensor,
    key: tuple[object, ...],
    sampling: SamplingSettings,
    *,
    group_size: int = 1,
    writer: str = "policy",
    constrained: bool = True,
) -> Iterator[Chunk]:
    """Chunks of completions of `task` rows `index` by a weight set; `key` seeds the sampling."""
    device = device_of(agent.lm)
    row = index.repeat_interleave(group_size)
    group = torch.arange(len(index)).repeat_interleave(group_size)
    if agent.environment is not None:
        for played in play(
            agent, agent.environment, task, row, group, key, sampling, writer, constrained
        ):
            shown = [e.prompt for e in played.episodes]
            yield Chunk(played.rollout, shown, played.rewards)
        return
    prompts = task.batch(row, side=agent.lm.padding_side, pad=agent.lm.pad).to(device)
    with agent.sets.swapped_in(writer) as lm:
        for rollout in agent.engine.generate(
            lm,
            prompts,
            row.to(device),
            group.to(device),
            sampling,
            key,
            constraints=agent.constraints if constrained else [],
            companions={k: agent.sets.residents[k] for k in agent.companions}
            if constrained
            else {},
            version=agent.version,
            writer=writer,
        ):
            yield Chunk(rollout)


def from_data(agent: Agent, task: Task, index: Tensor, others: dict[str, Rollout]) -> Rollout:
    """Completions that nobody samples: the references of the task, or another agent's text."""
    device = device_of(agent.lm)
    if agent.data is not None:
        s = agent.data(others, index)
    else:
        s = task.batch(
            index,
            side=agent.lm.padding_side,
            pad=agent.lm.pad,
            references=True,
            limit=agent.sampling.max_new_tokens,
        )
    s = s.to(device)
    n = len(index)
    return Rollout(
        sequences=s,
        sampled=s.completion_mask.clone(),
        row=index.to(device),
        group=torch.arange(n, device=device),
        finished=torch.ones(n, dtype=torch.bool, device=device),
        policy_version=agent.version,
        writer="data",
    )


@contextmanager
def reward_thread() -> Iterator[ThreadPoolExecutor]:
    """One thread: chunks are scored in order. What it has not begun is dropped on an error or when
    the run is left."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _score(rewards: RewardSet, batch: RewardBatch) -> RewardResult:
    with beside():
        return rewards.score(batch)


class Scoring:
    """Completions whose rewards are on their way in a thread, chunk by chunk."""

    def __init__(
        self,
        agent: Agent,
        task: Task,
        chunks: Iterator[Chunk],
        rewards: list[RewardSet],
        state: dict[str, Any],
        pool: ThreadPoolExecutor,
        heed: Callable[[], None] | None = None,
    ) -> None:
        """Starts the reward of each chunk as soon as it is written; `heed` is called after."""
        self._heed = heed or (lambda: None)
        self.texts: list[str] = []
        self.paid: list[float | None] = []
        self._futures: list[list[Future[RewardResult]]] = [[] for _ in rewards]
        parts: list[Rollout] = []
        for chunk in chunks:
            batch = reward_batch(agent, task, chunk, state)
            parts.append(chunk.rollout)
            self.texts += batch.texts
            self.paid += chunk.paid or [None] * len(batch)
            for r, futures in zip(rewards, self._futures, strict=True):
                futures.append(pool.submit(_score, r, batch))
            self._heed()
        self.rollout = join(parts, agent.lm.pad)
        self._multi_turn = agent.environment is not None

    def result(self, number: int = 0) -> RewardResult:
        """Waits; an exception in the thread is raised here, with its sample."""
        results = []
        for f in self._futures[number]:
            results.append(f.result())
            self._heed()
        out = RewardResult.concatenate(results)
        if number == 0 and self._multi_turn:
            # An environment that paid nothing (an episode cut by the horizon) paid 0: its sum.
            score = [(s or 0.0) + (p or 0.0) for s, p in zip(out.score, self.paid, strict=True)]
            by_name = out.per_function | {"environment": self.paid}
            out = replace(out, score=score, per_function=by_name)
        return out


def token_rewards(result: RewardResult, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-> score [B], rewards [B,T], has_score [B] bool.

    A sample without a score (allowed by `missing: drop`) trains nothing and counts nowhere.
    """
    has = torch.tensor([s is not None for s in result.score], device=mask.device)
    raw = torch.tensor([s or 0.0 for s in result.score], dtype=torch.float32, device=mask.device)
    end = torch.tensor([s or 0.0 for s in result.terminal], dtype=torch.float32)
    rewards = at_last(end.to(mask.device), mask)
    for i, per_token in enumerate(result.token_rewards or ()):
        given = torch.tensor(per_token, dtype=torch.float32, device=mask.device)
        rewards[i, : len(given)] += given
    return raw, rewards, has


def collect(
    agent: Agent,
    algorithm: Algorithm,
    update: int,
    seed: int,
    others: dict[str, Rollout],
    pool: ThreadPoolExecutor,
    seconds: dict[str, float],
) -> Experience:
    task = agent.tasks["train"]
    index = task.draw(update, agent.prompts, seed, rank(), world_size())  # 1
    state = {"global_step": update, "policy_version": agent.version}
    started = time.perf_counter()
    scoring: Scoring | None = None
    if algorithm.writer == "data":  # 2
        rollout = from_data(agent, task, index, others)
    else:
        sampling = replace(agent.sampling, greedy=algorithm.greedy)
        if agent.found_again is None:
            sampling = replace(sampling, allowed_bytes=sys.maxsize)  # bits, whatever they weigh
        else:
            agent.found_again.begin()
        chunks = write(
            agent,
            task,
            index,
            (seed, agent.name, "rollout", update),
            sampling,
            group_size=algorithm.group_size,
            writer=algorithm.writer,
        )
        scoring = Scoring(agent, task, chunks, [agent.rewards], state, pool)  # 3
        rollout = scoring.rollout
        if rollout.allowed is None:
            rollout = replace(rollout, allowed=agent.found_again)
    rollout = replace(rollout, sequences=rollout.sequences.counted())
    seconds["rollout"] = time.perf_counter() - started
    started = time.perf_counter()
    old, references = _scores(agent, algorithm, rollout, update)  # 4
    seconds["scoring"] = time.perf_counter() - started
    started = time.perf_counter()
    mask = rollout.sequences.completion_mask & rollout.sampled
    n = len(rollout.row)
    has = torch.ones(n, dtype=torch.bool, device=mask.device)
    raw, rewards = torch.zeros(n, device=mask.device), torch.zeros(mask.shape, device=mask.device)
    if scoring is not None:
        result = scoring.result()
        raw, rewards, has = token_rewards(result, mask)
        _measure_rewards(agent, result)
    seconds["reward_wait"] = time.perf_counter() - started
    if not bool(has.all()):
        # A dropped sample is as if it had not been drawn: nothing of it trains (B29).
        rollout = replace(rollout, sampled=rollout.sampled & has[:, None])
        mask = mask & has[:, None]
    e = Experience(rollout, raw, torch.where(mask, rewards, 0.0), old, references)
    self_checks.starts_at_home(agent, e)
    self_checks.stays_positive(agent, e)
    shaped = e.rewards  # 5
    for name, t in agent.tethers.items():
        if (added := t.reward(e)) is not None:
            added = torch.where(mask, added, 0.0)
            shaped = shaped + added
            mean = _mean(added.sum(1), has)
            agent.measured[f"tether/{name}/reward.mean"] = (mean, agent.version)
    e = replace(e, rewards=shaped)
    _measure(agent, e, has)
    for t in agent.tethers.values():
        t.seen(e)
    return e


def _scores(
    agent: Agent, algorithm: Algorithm, rollout: Rollout, update: int
) -> tuple[Scores, dict[str, Scores]]:
    s: Sequences = rollout.sequences
    common: dict[str, Any] = {
        **scored_as(agent.sampling, rollout),
        "microbatch": agent.microbatch,
    }
    if not algorithm.samples and not any(t.reads() for t in agent.tethers.values()):
        # Nobody reads the old policy's view of text that it did not write.
        nothing = torch.zeros(s.completion.shape, device=s.completion.device)
        return Scores(nothing, nothing), {}
    names = agent.references(update)
    critic = agent.critic if algorithm.needs_values else None
    if not names and (old := _as_sampled(agent, rollout, critic, common)) is not None:
        return old, {}
    old = score_all(
        agent.lm,
        s,
        critic=critic,
        against={k: agent.sets.residents[k] for k in agent.exact},
        **common,
    )
    self_checks.engine_agrees(agent, rollout, old.logprobs)
    references = {}
    for name in names:
        with agent.sets.swapped_in(name) as lm:
            references[name] = score_all(lm, s, **common)
    return old, references


def _as_sampled(
    agent: Agent, rollout: Rollout, critic: Critic | None, common: dict[str, Any]
) -> Scores | None:
    """The old policy's scores without its scoring pass, where that is asked for and enough."""
    plain = agent.sampling.scored == "full" or self_checks.unconstrained(agent)
    if agent.old_logprobs != "sampled" or agent.exact or not plain:
        return None
    if rollout.logprobs is None or rollout.writer != "policy":
        return None
    if critic is not None and critic.reads_policy:
        return None
    s, mask = rollout.sequences, rollout.sequences.completion_mask
    few = torch.arange(min(agent.microbatch, len(s.prompt)))
    checked = score_all(agent.lm, s.rows(few), **common)
    self_checks.engine_agrees(agent, rollout.rows(few), checked.logprobs)
    logprobs = torch.where(mask & rollout.sampled, rollout.logprobs, 0.0)
    if critic is None:
        return Scores(logprobs, logprobs)
    values, last = values_of(critic, agent.lm, s, agent.microbatch)
    return Scores(logprobs, logprobs, values=values, last_value=last)


def _mean(x: Tensor, has: Tensor) -> float:
    n = total(has.sum().float())
    return float(total(torch.where(has, x, 0.0).sum()) / n.clamp(min=1.0))


def _measure_rewards(agent: Agent, result: RewardResult) -> None:
    device = device_of(agent.lm)
    for name, values in result.per_function.items():
        has = torch.tensor([v is not None for v in values], device=device)
        x = torch.tensor([v or 0.0 for v in values], device=device, dtype=torch.float32)
        if not int(total(has.sum())):
            continue  # it applied to no sample: there is no mean
        agent.measured[f"reward/{name}.mean"] = (_mean(x, has), agent.version)
    for name, value in result.metrics.items():
        agent.measured[f"reward/{name}"] = (value, agent.version)


def _measure(agent: Agent, e: Experience, has: Tensor) -> None:
    """Stamped with the version that wrote: only this and the clock feed a method's memory."""
    mask, put = e.rollout.sequences.completion_mask, agent.measured.__setitem__
    v = agent.version
    put("rollout/sequences", (float(total(has.sum().float())), v))
    put("rollout/length_tokens.mean", (_mean(mask.sum(1).float(), has), v))
    put("rollout/finished_share", (_mean(e.rollout.finished.float(), has), v))
    dropped = float(total((~has).sum().float()))
    if dropped:
        put("rollout/dropped_samples", (dropped, v))
    if e.rollout.writer == "data":
        return
    put("reward/score.mean", (_mean(e.score, has), v))
    put("reward/total.mean", (_mean(e.rewards.sum(1), has), v))
    if e.rollout.writer != "policy":
        return
    mask = e.mask  # an environment's text is nobody's sample
    tokens = total(mask.sum().float()).clamp(min=1.0)
    homes = {name: r.free_logprobs for name, r in e.references.items()}
    others = e.old.set_logprobs | homes
    for name, theirs in others.items():
        d = torch.where(mask, e.old.free_logprobs - theirs, 0.0).sum(1)
        put(f"kl/{name}.k1_nats_per_seq", (_mean(d, has), v))
        put(
            f"kl/{name}.k1_nats_per_token",
            (float(total(torch.where(has, d, 0.0).sum()) / tokens), v),
        )
    if "initial" in others and self_checks.unconstrained(agent):
        # Along the policy's own unconstrained samples only: else it is another quantity.
        put(
            "drift/kl_initial.k1_nats_per_seq", (agent.measured["kl/initial.k1_nats_per_seq"][0], v)
        )
        if "initial" in e.old.exact_kl:
            kl = torch.where(mask, e.old.exact_kl["initial"], 0.0).sum(1)
            put("drift/kl_initial.exact_nats_per_seq", (_mean(kl, has), v))
