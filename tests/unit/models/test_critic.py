"""Four kinds of value model; the head starts at exactly zero."""

from __future__ import annotations

import pytest
import torch

from tests.models_for_tests import some_sequences, tiny
from tether.models.critic import Critic, Kind
from tether.models.scoring import score
from tether.models.weight_sets import WeightSets
from tether.types import Move

KINDS: tuple[Kind, ...] = ("separate", "shared", "detached", "frozen")


def built(kind: Kind, family: str = "gpt2"):  # type: ignore[no-untyped-def]
    lm = tiny(family, sharp=3.0)
    critic = Critic(lm, kind)
    return lm, critic, WeightSets(lm, critic)


@pytest.mark.parametrize("family", ("gpt2", "llama", "t5", "bart"))
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_critic_says_exactly_zero(kind: Kind, family: str) -> None:
    lm, critic, _ = built(kind, family)
    got = score(lm, some_sequences(lm), critic=critic)
    assert (got.values == 0).all() and (got.last_value == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_which_gradients_flow(kind: Kind) -> None:
    lm, critic, _ = built(kind)
    torch.nn.init.normal_(critic.head.weight)
    score(lm, some_sequences(lm), critic=critic).values.square().sum().backward()
    assert critic.head.weight.grad is not None and critic.head.weight.grad.abs().sum() > 0
    policy = [p for p in lm.module.parameters() if p.grad is not None]
    assert bool(policy) == (kind == "shared")
    if kind == "separate":
        assert all(p.grad is not None for p in critic.trunk.parameters())


def test_what_belongs_to_the_set(tiny_llama) -> None:  # type: ignore[no-untyped-def]
    names = set(WeightSets(tiny_llama, Critic(tiny_llama)).sets["critic"])
    assert {"head.weight", "head.bias"} < names
    assert not any("lm_head" in n for n in names)  # a critic computes no logits
    for kind in ("shared", "detached", "frozen"):
        _, _, sets = built(kind)  # type: ignore[arg-type]
        assert set(sets.sets["critic"]) == {"head.weight", "head.bias"}


@pytest.mark.parametrize("kind", ("separate", "frozen"))
def test_values_do_not_follow_the_policy(kind: Kind) -> None:
    lm, critic, sets = built(kind)
    torch.nn.init.normal_(critic.head.weight)
    s = some_sequences(lm)
    before = critic.values(s).detach()
    with torch.no_grad():
        for p in sets.sets["policy"].values():
            p.add_(0.1)
    assert torch.equal(before, critic.values(s))


def test_a_critic_can_go_back_to_its_start() -> None:
    lm, critic, sets = built("separate")
    s = some_sequences(lm)
    with torch.no_grad():
        for p in sets.sets["critic"].values():
            p.add_(0.1)
    assert (critic.values(s) != 0).any()
    sets.apply([Move("critic", "critic_initial")])
    assert (critic.values(s) == 0).all()


def test_missing_states_and_trunks_are_errors(tiny_gpt2) -> None:  # type: ignore[no-untyped-def]
    s = some_sequences(tiny_gpt2)
    with pytest.raises(ValueError, match="needs the policy's hidden states"):
        Critic(tiny_gpt2, "shared").values(s)
    with pytest.raises(ValueError, match="no trunk yet"):
        Critic(tiny_gpt2, "frozen").values(s)


def test_a_trunk_of_its_own_has_an_update_mode(tiny_gpt2) -> None:  # type: ignore[no-untyped-def]
    tiny_gpt2.core.gradient_checkpointing_enable({"use_reentrant": False})
    critic = Critic(tiny_gpt2)
    with critic.updating():
        assert critic.trunk.training
    assert not critic.trunk.training
    with Critic(tiny_gpt2, "shared").updating():
        assert not tiny_gpt2.module.training
