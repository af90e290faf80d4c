"""The one scoring function: temperature, allowed sets, entropy, values, exact KL."""

from __future__ import annotations

import math

import pytest
import torch

from tests.models_for_tests import some_sequences, tiny
from tether.config.run import SamplingSettings
from tether.core.sampling import pack_bits
from tether.models.critic import Critic
from tether.models.language_model import LanguageModel
from tether.models.scoring import log_distribution, score, score_all, scored_as, values_of
from tether.types import Rollout, Sequences


class Fixed(LanguageModel):
    """Logits 2 1 0 -1 at every position."""

    def __init__(self) -> None:
        super().__init__(tiny("gpt2", vocab=4).module, None, (1,), 0)

    def forward(self, s, *, hidden=False, encoder=None):  # type: ignore[no-untyped-def, override]
        logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).expand(*s.completion.shape, 4)
        return logits, None


def tokens(*ids: int) -> Sequences:
    one = torch.ones(1, 1, dtype=torch.long)
    completion = torch.tensor([ids])
    return Sequences(one, one.bool(), completion, torch.ones_like(completion).bool())


def test_temperature_enters_the_sampling_log_probs_and_not_the_free_ones() -> None:
    got = score(Fixed(), tokens(0), temperature=0.5)
    assert got.logprobs.item() == pytest.approx(-0.14508, abs=1e-5)
    assert got.free_logprobs.item() == pytest.approx(-0.44019, abs=1e-5)
    assert math.exp(-0.44019 + 0.14508) == pytest.approx(0.7444, abs=1e-4)  # what mixing gives


def test_an_allowed_set_renormalises() -> None:
    legal = torch.tensor([[[True, True, False, False]]])
    got = score(Fixed(), tokens(1), allowed=pack_bits(legal), entropy=True)
    p = 1 / (1 + math.e)
    assert got.logprobs.item() == pytest.approx(math.log(p), abs=1e-6)
    assert got.free_logprobs.item() == pytest.approx(-1.44019, abs=1e-5)
    want = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert got.entropy.item() == pytest.approx(want, abs=1e-6)


def test_exact_kl_is_of_the_free_distributions(tiny_gpt2: LanguageModel) -> None:
    other = tiny("gpt2", seed=1)
    s = some_sequences(tiny_gpt2)
    got = score_all(tiny_gpt2, s, temperature=0.3, against={"initial": other, "self": tiny_gpt2})
    p, q = log_distribution(tiny_gpt2, s).double(), log_distribution(other, s).double()
    want = torch.where(s.completion_mask, (p.exp() * (p - q)).sum(-1), 0.0)
    torch.testing.assert_close(got.exact_kl["initial"].double(), want, atol=1e-6, rtol=1e-4)
    assert (got.exact_kl["self"] == 0).all() and (want > 0).any()


def test_values_stand_before_each_token_and_after_the_last_real_one(
    tiny_gpt2: LanguageModel,
) -> None:
    critic, s = Critic(tiny_gpt2), some_sequences(tiny_gpt2)
    torch.nn.init.normal_(critic.head.weight)
    got = score_all(tiny_gpt2, s, critic=critic)
    every = critic.values(s).detach()
    assert got.values.shape == (4, 6) and (got.values[1, 3:] == 0).all()
    assert got.last_value[0] == every[0, 6] and got.last_value[1] == every[1, 3]


def test_fields_that_nobody_asked_for_raise(tiny_gpt2: LanguageModel) -> None:
    got = score_all(tiny_gpt2, some_sequences(tiny_gpt2))
    for name in ("entropy", "values", "last_value"):
        with pytest.raises(AttributeError, match="was not computed"):
            getattr(got, name)


@pytest.mark.parametrize("kind", ("gpt2", "t5"))
def test_pieces_are_the_whole(kind: str) -> None:
    lm = tiny(kind, sharp=3.0)
    s = some_sequences(lm)
    bits = pack_bits(torch.rand(4, 6, lm.vocab_size) < 0.5)
    options = {"allowed": bits, "critic": Critic(lm), "entropy": True, "against": {"x": lm.twin()}}
    whole = score_all(lm, s, microbatch=4, **options)
    parts = score_all(lm, s, microbatch=3, **options)
    for name in ("logprobs", "free_logprobs", "entropy", "values", "last_value"):
        torch.testing.assert_close(getattr(whole, name), getattr(parts, name), atol=1e-5, rtol=0)
    assert list(parts.exact_kl) == ["x"] and parts.exact_kl["x"].shape == (4, 6)


def test_score_has_gradients_and_score_all_has_none(tiny_gpt2: LanguageModel) -> None:
    s = some_sequences(tiny_gpt2)
    score(tiny_gpt2, s).logprobs.sum().backward()
    assert all(p.grad is not None for p in tiny_gpt2.module.parameters())
    assert not score_all(tiny_gpt2, s).logprobs.requires_grad


def test_bf16_logits_are_normalised_in_fp32() -> None:
    lm = tiny("gpt2", sharp=4.0)
    lm.module.to(torch.bfloat16)
    s = some_sequences(lm)
    with torch.no_grad():
        got = log_distribution(lm, s)
        want = lm.forward(s)[0].double().log_softmax(-1)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=0)


def test_scored_full_leaves_temperature_and_sets_aside(tiny_gpt2: LanguageModel) -> None:
    s = some_sequences(tiny_gpt2)
    bits, one = torch.zeros(4, 6, 33, dtype=torch.uint8), torch.zeros(4).long()
    rollout = Rollout(s, s.completion_mask, one, one, one.bool(), allowed=bits)
    sampled = scored_as(SamplingSettings(temperature=0.7), rollout)
    assert sampled == {"temperature": 0.7, "allowed": bits}
    full = scored_as(SamplingSettings(temperature=0.7, scored="full"), rollout)
    assert full == {"temperature": 1.0, "allowed": None}


@pytest.mark.parametrize("pieces", [False, True])
def test_values_stand_before_their_tokens_and_the_last_after_the_text(pieces: bool) -> None:
    """By hand from the critic's own [B,T+1]; and `values_of` is the same without the policy."""
    lm = tiny("gpt2")
    critic = Critic(lm)
    torch.nn.init.normal_(critic.head.weight)
    s = some_sequences(lm)
    lm.scratch["in pieces"] = pieces
    got = score_all(lm, s, critic=critic, microbatch=3)
    with torch.no_grad():
        every = critic.values(s)
    lengths = s.completion_mask.sum(1).tolist()
    assert len(set(lengths)) > 1, "rows of different lengths"
    for b, n in enumerate(lengths):
        torch.testing.assert_close(got.values[b, :n], every[b, :n])
        assert (got.values[b, n:] == 0).all()
        torch.testing.assert_close(got.last_value[b], every[b, n])
    values, last = values_of(critic, lm, s, 3)
    torch.testing.assert_close(values, got.values)
    torch.testing.assert_close(last, got.last_value)
