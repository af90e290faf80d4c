"""B18: a step with nothing to train is a zero step with a graph, and lengths do not feel it."""

from dataclasses import replace

import pytest
import torch

from tests.contracts.examples import numbers
from tether.algorithms.ppo import PPO
from tether.core.masking import at_last, local, masked_mean, token_weights, weighted_sum
from tether.types import Experience, Minibatch, Rollout, Scores, Sequences, Targets

LIMIT = 4


def truncated_pair() -> Experience:
    real = torch.ones(2, LIMIT, dtype=torch.bool)
    ids = torch.ones(2, LIMIT, dtype=torch.long)
    s = Sequences(ids[:, :1], real[:, :1], ids, real)
    rollout = Rollout(s, real, torch.arange(2), torch.arange(2), torch.zeros(2, dtype=torch.bool))
    x = numbers(0, 2, LIMIT)
    old = Scores(x, x, x.abs(), x, x[:, 0])
    return Experience(rollout, x[:, 0], at_last(x[:, 0], real), old)


@pytest.mark.parametrize("average", ["tokens", "sequences"])
def test_two_truncated_responses_with_truncated_ones_masked(average: str) -> None:
    algorithm, e = PPO(average=average, ent_coef=0.1), truncated_pair()  # type: ignore[arg-type]
    targets = algorithm.advantages(e, local)
    finished = e.rollout.finished[:, None]
    targets = Targets(targets.advantages, targets.returns, targets.mask & finished)
    weights = token_weights(targets.mask, average)  # type: ignore[arg-type]
    assert not weights.any() and torch.isfinite(weights).all()
    mb = algorithm.prepare(Minibatch(e, targets, weights), local)
    assert torch.isfinite(mb.targets.advantages).all()

    parameter = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.0)
    x = parameter * numbers(1, 2, LIMIT)
    out = algorithm.loss(mb, replace(e.old, logprobs=x, entropy=x, values=x))
    assert float(out.loss.detach()) == 0
    out.loss.backward()
    assert parameter.grad is not None and float(parameter.grad) == 0
    optimizer.step()
    assert float(parameter.detach()) == 1

    lengths = e.rollout.sequences.completion_mask.sum(1).float()
    assert lengths.tolist() == [LIMIT, LIMIT], "lengths are those before any loss mask"


def test_same_mask_above_and_below() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    weights = token_weights(mask, "sequences")
    assert float(weighted_sum(weights, torch.full((2, 4), 3.0))) == pytest.approx(3.0)
    assert float(masked_mean(torch.full((2, 4), 3.0), mask)) == pytest.approx(3.0)


def test_no_score_lands_on_an_empty_row() -> None:
    mask = torch.tensor([[0, 0], [1, 0]], dtype=torch.bool)
    assert at_last(torch.tensor([5.0, 7.0]), mask).tolist() == [[0, 0], [7, 0]]
