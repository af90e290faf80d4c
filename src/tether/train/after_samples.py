"""Several completions a prompt of the initial model with their rewards: what best-of-n and the
oracle frontier are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tether.analysis.reweighting import PromptSamples
from tether.distributed.total import rank, world_size
from tether.train.agent import Agent
from tether.train.collect import Scoring, reward_thread, write
from tether.train.evaluate import Split, everywhere


@torch.no_grad()
def initial_samples(
    agent: Agent,
    split: Split,
    count: int,
    prompts: int | None = None,
    heed: Callable[[], None] | None = None,
) -> list[PromptSamples]:
    """`count` completions of each of the first prompts, sampled and judged as evaluation does.

    The numbers are functions of the evaluation's seed, not the run's, so every run of a study gets
    the same. Nothing but rewards is kept: completions are written in blocks of `sampling.chunk`.
    Completions without a score are left out, prompts without any as well.

    Args:
        prompts: default: as many as the evaluation has.
        heed: called between batches; may raise to leave.
    """
    task, settings = agent.tasks[split], agent.evaluation
    wanted = prompts or (settings.prompts if split == "validation" else settings.test_prompts)
    index = torch.arange(min(wanted, len(task)))[rank() :: world_size()]
    # log-probs of the distribution that sampled, and no sets: nothing is updated here
    sampling = replace(agent.evaluation_sampling, scored="sampled", allowed_bytes=0)
    rewards = [agent.rewards] if agent.judges is None else [agent.rewards, agent.judges]
    state = {"global_step": 0, "evaluation": split}
    found: dict[int, PromptSamples] = {}
    with reward_thread() as pool:
        waiting: Scoring | None = None
        for rows in index.split(max(1, sampling.chunk // count)):
            key = ("after", settings.seed, split, int(rows[0]))
            chunks = write(
                agent, task, rows, key, sampling,
                group_size=count, writer="initial", constrained=False,
            )  # fmt: skip
            written = Scoring(agent, task, chunks, rewards, state, pool, heed)
            if waiting is not None:  # one block behind: rewards overlap with the writing
                found |= _by_prompt(agent, waiting)
            waiting = written
        if waiting is not None:
            found |= _by_prompt(agent, waiting)
    pairs: list[tuple[int, PromptSamples]] = everywhere(list(found.items()))
    return [samples for _, samples in sorted(pairs, key=lambda x: x[0])]


def _by_prompt(agent: Agent, scoring: Scoring) -> dict[int, PromptSamples]:
    score = _numbers(scoring.result().score)
    judges: dict[str, Any] = {}
    if agent.judges is not None:
        judges = {k: _numbers(v) for k, v in scoring.result(1).per_function.items()}
    rows = np.asarray(scoring.rollout.row.tolist())
    out = {}
    for row in np.unique(rows):
        mine = (rows == row) & ~np.isnan(score)
        if mine.any():
            out[int(row)] = PromptSamples(score[mine], {k: v[mine] for k, v in judges.items()})
    return out


def _numbers(values: list[float | None]) -> Any:
    return np.asarray([math.nan if v is None else v for v in values], dtype=np.float64)
