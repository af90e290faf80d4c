"""The MDP around a completion. Single turn is the default; a custom environment adds context.

    start(row) -> prompt;  after(episode) -> reward, done, or more context

Added context stands in `completion` as real tokens with `sampled` False: it is scored, so that KL
and log-probs see the whole text, and never trains (`Experience.mask`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.models.tokenizing import pad
from tether.rewards.batch import Prompt
from tether.types import Rollout, Sequences


@dataclass(frozen=True)
class Step:
    """What an environment answers to a completion."""

    reward: float | None = None
    """Added to the episode's reward; None = nothing from the environment."""
    done: bool = True
    context: str = ""
    """Text that the model reads before its next turn; needed where not `done`."""


@dataclass
class Episode:
    """One row on its way: what the environment and the driver know of it."""

    row: dict[str, Any]
    """The dataset's columns of this row."""
    prompt: Prompt
    turns: list[str] = field(default_factory=list)
    """What the model wrote, turn by turn."""
    contexts: list[str] = field(default_factory=list)
    """What the environment added after each turn."""


@dataclass
class Environment:
    """Base of every environment: a dataclass whose fields are its settings. It keeps no state of
    an episode; everything is in the `Episode`, so that resume and threads need nothing."""

    def start(self, row: dict[str, Any], prompt: Prompt) -> Prompt:
        """The prompt of a row; the dataset's own by default."""
        return prompt

    def after(self, episode: Episode) -> Step:
        """Called after each turn (`episode.turns[-1]`)."""
        raise NotImplementedError(f"{type(self).__name__} has no `after`")


@dataclass
class SingleTurn(Environment):
    """One completion a row; the reward comes from the run's reward functions."""

    def after(self, episode: Episode) -> Step:
        return Step()


@dataclass(frozen=True)
class Played:
    """Episodes as one rollout, and what the environment paid."""

    rollout: Rollout
    episodes: list[Episode]
    rewards: list[float | None]
    """Sum of the environment's rewards, None where it gave none."""


Generate = Callable[[list[list[int]], list[int], int, int], Rollout]
"""(contexts as ids, their rows in the batch, turn number, new tokens at most) -> one Rollout."""


def run_episodes(
    environment: Environment,
    generate: Generate,
    episodes: Sequence[Episode],
    prompts: Sequence[Sequence[int]],
    *,
    encode: Callable[[str], list[int]],
    decode: Callable[[list[int]], str],
    horizon: int,
    row: Tensor,
    group: Tensor,
    side: str,
    pad_id: int,
    max_turns: int = 16,
    positions: int | None = None,
) -> Played:
    """Play all episodes together, turn by turn, until each is done or `horizon` tokens long.

    episodes, prompts, row, group: one entry a sequence (B). Length of `completion`, context
    included, is at most `horizon`; an episode that the horizon cuts is not finished (B14).
    positions: of the model. Episodes go on together with the room of the one that has most of it,
    but for those whose context leaves less; these go in calls of their own.
    Raises UserError for an answer that is neither done nor context, or a non-finite reward.
    """
    books = [_Book() for _ in episodes]
    open_, version, writer, bits = list(range(len(episodes))), 0, "policy", False
    for turn in range(max_turns):
        rooms = {i: horizon - len(books[i].ids) for i in open_ if horizon > len(books[i].ids)}
        if not rooms:
            break
        contexts = {i: [*prompts[i], *books[i].ids] for i in rooms}
        for room, at in _together(rooms, contexts, positions).items():
            r = generate([contexts[i] for i in at], at, turn, room)
            version, writer, bits = r.policy_version, r.writer, bits or r.allowed is not None
            for k, i in enumerate(at):
                books[i].write(r, k, horizon)
        still = []
        for i in rooms:
            if not books[i].finished:
                continue  # cut by the horizon: the environment never sees half a turn
            episodes[i].turns.append(decode(books[i].last))
            step = environment.after(episodes[i])
            books[i].answer(step, environment)
            if not step.done:
                episodes[i].contexts.append(step.context)
                books[i].read(encode(step.context), horizon)
                books[i].finished = False
                still.append(i)
        open_ = still
    rollout = _rollout(books, prompts, row, group, side, pad_id, version, writer, bits)
    return Played(rollout, list(episodes), [b.reward for b in books])


def _together(
    rooms: dict[int, int], contexts: dict[int, list[int]], positions: int | None
) -> dict[int, list[int]]:
    """room -> episodes that are generated in one call with that many new tokens at most."""
    most, out = max(rooms.values()), {}
    for i, own in rooms.items():
        fits = positions is None or len(contexts[i]) + most <= positions
        out.setdefault(most if fits else own, []).append(i)
    return out


@dataclass
class _Book:
    """What one episode has written so far, token by token."""

    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    allowed: list[Tensor | None] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    finished: bool = False
    reward: float | None = None

    def write(self, r: Rollout, k: int, horizon: int) -> None:
        real = r.sequences.completion_mask[k].nonzero().flatten().tolist()
        cut = real[: horizon - len(self.ids)]
        self.last = [int(r.sequences.completion[k, t]) for t in cut]
        self.ids += self.last
        self.sampled += [True] * len(cut)
        self.logprobs += [0.0 if r.logprobs is None else float(r.logprobs[k, t]) for t in cut]
        self.allowed += [None if r.allowed is None else r.allowed[k, t].cpu() for t in cut]
        self.finished = bool(r.finished[k]) and len(cut) == len(real)

    def read(self, context: list[int], horizon: int) -> None:
        added = context[: max(0, horizon - len(self.ids))]
        self.ids += added
        self.sampled += [False] * len(added)
        self.logprobs += [0.0] * len(added)
        self.allowed += [None] * len(added)

    def answer(self, step: Step, environment: Environment) -> None:
        name = type(environment).__name__
        if step.reward is not None:
            if not math.isfinite(step.reward):
                raise UserError(f"environment {name} returned the reward {step.reward}")
            self.reward = (self.reward or 0.0) + step.reward
        if not step.done and not step.context:
            raise UserError(f"environment {name}: a step that is not done needs context")


def _rollout(
    books: list[_Book], prompts: Sequence[Sequence[int]], row: Tensor, group: Tensor, side: str,
    pad_id: int, version: int, writer: str, bits: bool,
) -> Rollout:  # fmt: skip
    prompt, prompt_mask = pad(prompts, side, pad_id)
    ids, mask = pad([b.ids for b in books], "right", pad_id)
    sampled = torch.zeros_like(mask)
    logprobs = torch.zeros(mask.shape)
    allowed = None
    if bits:
        width = next(len(a) for b in books for a in b.allowed if a is not None)
        # whole vocabulary where nobody sampled
        allowed = torch.full((*mask.shape, width), 255, dtype=torch.uint8)
    for i, b in enumerate(books):
        n = len(b.ids)
        sampled[i, :n] = torch.tensor(b.sampled, dtype=torch.bool)
        logprobs[i, :n] = torch.tensor(b.logprobs)
        for t, a in enumerate(b.allowed):
            if allowed is not None and a is not None:
                allowed[i, t] = a
    finished = torch.tensor([b.finished for b in books])
    s = Sequences(prompt, prompt_mask, ids, mask)
    return Rollout(s, sampled, row, group, finished, logprobs, allowed, version, writer)
