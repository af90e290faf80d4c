"""A two-turn environment: added context is real, never sampled."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from tether.config.errors import UserError
from tether.tasks.environment import Environment, Episode, Played, SingleTurn, Step, run_episodes
from tether.types import Rollout, Sequences


@dataclass
class AskTwice(Environment):
    """Answers the first turn with "8 9" and pays the number of words of the second."""

    def after(self, episode: Episode) -> Step:
        if len(episode.turns) == 1:
            return Step(done=False, context="8 9")
        return Step(reward=float(len(episode.turns[-1].split())))


class FakeEngine:
    """Writes token 20 + turn `lengths[row]` times, then the stop token 1."""

    def __init__(self, lengths: list[int], bits: bool = False) -> None:
        self.lengths, self.bits, self.calls = lengths, bits, []

    def __call__(self, contexts: list[list[int]], rows: list[int], turn: int, room: int) -> Rollout:
        self.calls.append((contexts, rows, turn, room))
        n, width = len(contexts), room
        ids = torch.zeros(n, width, dtype=torch.long)
        mask = torch.zeros(n, width, dtype=torch.bool)
        finished = torch.zeros(n, dtype=torch.bool)
        for k, i in enumerate(rows):
            text = ([20 + turn] * self.lengths[i] + [1])[:width]
            ids[k, : len(text)] = torch.tensor(text)
            mask[k, : len(text)] = True
            finished[k] = text[-1] == 1
        prompt = torch.zeros(n, 1, dtype=torch.long)
        s = Sequences(prompt, prompt.bool(), ids, mask)
        logprobs = torch.where(mask, -0.5 - turn, 0.0)
        bits = torch.full((n, width, 4), turn, dtype=torch.uint8) if self.bits else None
        zero = torch.zeros(n, dtype=torch.long)
        return Rollout(s, mask.clone(), zero, zero, finished, logprobs, bits, 3, "policy")


def play(
    environment: Environment, engine: FakeEngine, horizon: int = 12, positions: int | None = None
) -> Played:
    n = len(engine.lengths)
    return run_episodes(
        environment,
        engine,
        [Episode({}, "") for _ in range(n)],
        [[5] * (i + 1) for i in range(n)],
        encode=lambda text: [int(x) for x in text.split()],
        decode=lambda ids: " ".join(str(i) for i in ids if i != 1),
        horizon=horizon,
        row=torch.arange(n),
        group=torch.arange(n),
        side="left",
        pad_id=0,
        positions=positions,
    )


def test_two_turns_stand_in_one_completion() -> None:
    engine = FakeEngine([2, 1], bits=True)
    out = play(AskTwice(), engine)
    r = out.rollout
    assert r.sequences.completion.tolist() == [
        [20, 20, 1, 8, 9, 21, 21, 1],
        [20, 1, 8, 9, 21, 1, 0, 0],
    ]
    assert r.sequences.completion_mask.sum(1).tolist() == [8, 6]
    assert r.sampled.long().tolist() == [[1, 1, 1, 0, 0, 1, 1, 1], [1, 1, 0, 0, 1, 1, 0, 0]]
    assert r.logprobs is not None and r.logprobs[0].tolist() == [
        -0.5, -0.5, -0.5, 0.0, 0.0, -1.5, -1.5, -1.5,
    ]  # fmt: skip
    assert r.allowed is not None and r.allowed[0, :, 0].tolist() == [0, 0, 0, 255, 255, 1, 1, 1]
    assert out.rewards == [2.0, 1.0]
    assert r.finished.tolist() == [True, True]
    assert r.policy_version == 3
    assert engine.calls[1][0] == [[5, 20, 20, 1, 8, 9], [5, 5, 20, 1, 8, 9]]
    assert out.episodes[0].turns == ["20 20", "21 21"]


def test_the_horizon_cuts_an_episode_and_says_so() -> None:
    out = play(AskTwice(), FakeEngine([2, 1]), horizon=6)
    assert out.rollout.sequences.completion_mask.sum(1).tolist() == [6, 6]
    assert out.rollout.finished.tolist() == [False, True]
    assert out.rewards == [None, 1.0]


def test_single_turn_is_one_completion_with_no_reward_of_its_own() -> None:
    engine = FakeEngine([2])
    out = play(SingleTurn(), engine)
    assert out.rollout.sequences.completion.tolist() == [[20, 20, 1]]
    assert bool(out.rollout.sampled.all())
    assert out.rewards == [None]
    assert len(engine.calls) == 1


def test_bad_answers_are_errors() -> None:
    class Silent(Environment):
        def after(self, episode: Episode) -> Step:
            return Step(done=False)

    class Broken(Environment):
        def after(self, episode: Episode) -> Step:
            return Step(reward=float("nan"))

    with pytest.raises(UserError, match="Silent: a step that is not done needs context"):
        play(Silent(), FakeEngine([1]))
    with pytest.raises(UserError, match="Broken returned the reward nan"):
        play(Broken(), FakeEngine([1]))


def test_a_context_that_leaves_less_room_goes_in_a_call_of_its_own() -> None:
    # 11 positions, horizon 9. After one turn and its answer the first episode is 1 + 7 long with
    # room for 2, the second 2 + 4 long with room for 5, which would not fit behind the first's 8.
    engine = FakeEngine([4, 1])
    play(AskTwice(), engine, horizon=9, positions=11)
    assert [(rows, room) for _, rows, _, room in engine.calls] == [
        ([0, 1], 9),
        ([0], 2),
        ([1], 5),
    ]
    assert all(len(c) + room <= 11 for contexts, _, _, room in engine.calls for c in contexts)
