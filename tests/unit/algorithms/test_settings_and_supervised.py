"""Refused settings, PPO's early stop, and the supervised loss by hand (PPO's: tests/parity)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.contracts.examples import MASK, experience, minibatch, scores
from tether.algorithms.base import Algorithm
from tether.algorithms.ppo import PPO
from tether.algorithms.supervised import Supervised
from tether.config.errors import UserError
from tether.core.masking import local


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -1.0}, "lr must be >= 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"minibatches": 0}, "minibatches must be at least 1"),
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"average": "mean"}, "tokens or sequences, not 'mean'"),
        ({"gamma": 1.1}, r"gamma must be in \[0, 1\]"),
        ({"gae_lambda": -0.1}, r"gae_lambda must be in \[0, 1\]"),
        ({"clip_range": 0.0}, "clip_range must be > 0"),
        ({"clip_range_value": 0.0}, "clip_range_value must be > 0 or null"),
        ({"target_kl": 0.0}, "target_kl must be > 0 or null"),
        ({"truncated": "yes"}, "end or bootstrap, not 'yes'"),
    ],
)
def test_refusals(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        PPO(**settings)  # type: ignore[arg-type]


def test_target_kl_stops_beyond_one_and_a_half() -> None:
    ppo = PPO(target_kl=0.1)
    assert not ppo.stop({"kl_old.k3_nats_per_token": 0.15})
    assert ppo.stop({"kl_old.k3_nats_per_token": 0.1501})
    assert not PPO().stop({"kl_old.k3_nats_per_token": 1e9})


def test_normalisation_can_be_off_and_is_over_what_trains() -> None:
    e = experience()
    ppo = PPO()
    targets = ppo.advantages(e, local)
    narrow = replace(targets, mask=targets.mask & torch.tensor([[True], [True], [False]]))
    out = ppo.prepare(minibatch(e, narrow), local).targets.advantages
    kept = out[narrow.mask]
    assert float(kept.mean()) == pytest.approx(0, abs=1e-6)
    assert float(kept.std(correction=0)) == pytest.approx(1, abs=1e-5)
    mb = minibatch(e, targets)
    assert PPO(normalize_advantages=False).prepare(mb, local) is mb


def test_added_context_does_not_train() -> None:
    """Tokens in the completion that nobody sampled: real, but no time steps."""
    e = experience()
    sampled = MASK.clone()
    sampled[1, 1] = False
    e = replace(e, rollout=replace(e.rollout, sampled=sampled))
    targets = PPO().advantages(e, local)
    assert torch.equal(targets.mask, sampled)
    assert float(targets.advantages[1, 1]) == 0


def test_supervised_by_hand() -> None:
    """Mean negative free log-prob over the eight real tokens."""
    algorithm, e, fresh = Supervised(), experience(), scores(5, grad=True)
    mb = minibatch(e, algorithm.advantages(e, local))
    out = algorithm.loss(mb, fresh)
    nll = -float(fresh.free_logprobs.detach()[MASK].mean())
    assert float(out.loss.detach()) == pytest.approx(nll, abs=1e-6)
    assert float(out.metrics["nll"]) == pytest.approx(nll, abs=1e-6)
    out.loss.backward()
    assert fresh.free_logprobs.grad is not None and fresh.logprobs.grad is None
    assert torch.allclose(fresh.free_logprobs.grad, torch.where(MASK, -1 / 8, 0.0))


def test_who_writes_and_what_is_used() -> None:
    assert (Supervised.uses_rewards, Supervised.samples, Supervised().writer) == (
        False, False, "data",
    )  # fmt: skip
    assert (PPO.uses_rewards, PPO.samples, PPO().writer) == (True, True, "policy")
    assert not Supervised.needs_values and PPO.needs_values and PPO.needs_entropy


def test_a_field_nobody_asked_for_raises_when_read_but_can_be_printed() -> None:
    bare = replace(scores(0), values=None, entropy=None)
    with pytest.raises(AttributeError, match="values was not computed: set needs_values = True"):
        _ = bare.values
    with pytest.raises(AttributeError, match="needs_entropy"):
        _ = bare.rows(torch.tensor([0])).entropy
    assert "Scores" in repr(bare)


def test_phases_default_to_one_algorithm() -> None:
    algorithm = Algorithm()
    assert algorithm.at(0) is algorithm and algorithm.at(99) is algorithm
    with pytest.raises(NotImplementedError):
        algorithm.advantages(experience(), local)
