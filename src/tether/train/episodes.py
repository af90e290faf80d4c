"""Multi-turn rollouts: a custom environment between the engine and the rewards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.config.run import SamplingSettings
from tether.models.tokenizing import decode, encode_prompt, pad
from tether.rollout.engine import join
from tether.tasks.environment import Environment, Episode, Played, run_episodes
from tether.tasks.task import Task
from tether.train.agent import Agent, device_of
from tether.types import Rollout, Sequences


def play(
    agent: Agent,
    environment: Environment,
    task: Task,
    row: Tensor,
    group: Tensor,
    key: tuple[object, ...],
    sampling: SamplingSettings,
    writer: str,
    constrained: bool = True,
) -> Iterator[Played]:
    """Chunks of finished episodes, `sampling.chunk` at once."""
    tokenizer, device = agent.lm.tokenizer, device_of(agent.lm)

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    started, ids_of_all = _start(environment, task, row.tolist(), tokenizer)
    width = max(map(len, ids_of_all), default=0)
    for number, index in enumerate(torch.arange(len(row)).split(sampling.chunk)):
        rows, groups = row[index], group[index]
        episodes, prompts = ([xs[i] for i in index.tolist()] for xs in (started, ids_of_all))

        def generate(
            contexts: list[list[int]],
            at: list[int],
            turn: int,
            room: int,
            rows: Tensor = rows,
            groups: Tensor = groups,
            number: int = number,
        ) -> Rollout:
            if turn and agent.lm.seq2seq:
                raise UserError(
                    f"environment {type(environment).__name__} has more than one turn, which needs "
                    "a decoder-only model: the prompt of an encoder-decoder model is read once"
                )
            ids, mask = pad(contexts, agent.lm.padding_side, agent.lm.pad)
            empty = torch.zeros(len(contexts), 0, dtype=torch.long)
            s = Sequences(ids, mask, empty, empty.bool()).to(device)
            limited = _limited(sampling, room)
            with agent.sets.swapped_in(writer) as lm:
                chunks = list(
                    agent.engine.generate(
                        lm, s, rows[at], groups[at], limited, (*key, "turn", number, turn, room),
                        constraints=agent.constraints if constrained else [],
                        companions={k: agent.sets.residents[k] for k in agent.companions}
                        if constrained
                        else {},
                        version=agent.version,
                        writer=writer,
                    )
                )  # fmt: skip
            return join(chunks, agent.lm.pad)

        played = run_episodes(
            environment,
            generate,
            episodes,  # type: ignore[arg-type]
            prompts,  # type: ignore[arg-type]
            encode=encode,
            decode=lambda ids: decode(tokenizer, ids),
            horizon=sampling.max_new_tokens,
            row=rows,
            group=groups,
            side=agent.lm.padding_side,
            pad_id=agent.lm.pad,
            positions=None if agent.lm.seq2seq else agent.lm.max_positions,
        )
        rollout = _as_wide(played.rollout, width, agent.lm.padding_side, agent.lm.pad)
        yield Played(rollout.to(device), played.episodes, played.rewards)


def _start(
    environment: Environment, task: Task, rows: list[int], tokenizer: Any
) -> tuple[list[Episode], list[list[int]]]:
    """Episodes of all rows and the ids of their prompts."""
    episodes, prompts = [], []
    for i in rows:
        columns = {k: v[i] for k, v in task.columns.items()}
        prompt = environment.start(columns, task.raw_prompts[i])
        same = prompt == task.raw_prompts[i]
        prompts.append(task.prompts[i] if same else encode_prompt(tokenizer, prompt))
        episodes.append(Episode(columns, prompt))
    return episodes, prompts


def _as_wide(rollout: Rollout, width: int, side: str, pad_id: int) -> Rollout:
    """Prompts padded to the width that all chunks of one batch share."""
    s = rollout.sequences
    room = width - s.prompt.shape[1]
    if not room:
        return rollout
    at = (room, 0) if side == "left" else (0, room)
    wide = replace(
        s,
        prompt=torch.nn.functional.pad(s.prompt, at, value=pad_id),
        prompt_mask=torch.nn.functional.pad(s.prompt_mask, at, value=False),
    )
    return replace(rollout, sequences=wide)


def _limited(sampling: SamplingSettings, room: int) -> SamplingSettings:
    return replace(sampling, max_new_tokens=room, min_new_tokens=min(sampling.min_new_tokens, room))
