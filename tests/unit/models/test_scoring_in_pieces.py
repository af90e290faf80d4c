"""Scoring without logits gives the numbers and gradients of scoring with them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from tests.models_for_tests import some_sequences, tiny
from tether.models import token_scores
from tether.models.critic import Critic
from tether.models.language_model import LanguageModel
from tether.models.scoring import plain_head, score
from tether.types import Scores

KINDS = ("gpt2", "llama", "opt", "gpt_neox", "qwen2", "t5", "bart")


def both(kind: str, critic_kind: str) -> list[tuple[Scores, Mapping[str, torch.Tensor]]]:
    """Scores and gradients of one loss over all of them, plain and in pieces."""
    out = []
    for pieces in (False, True):
        lm, other = tiny(kind, sharp=2.0), tiny(kind, sharp=2.0, seed=3)
        for one in (lm, other):
            one.scratch["in pieces"] = pieces
        critic = Critic(lm, critic_kind)  # type: ignore[arg-type]
        s = some_sequences(lm)
        got = score(lm, s, critic=critic, entropy=True, against={"initial": other})
        loss = (
            2.0 * got.logprobs.sum() + got.entropy.sum() + got.exact_kl["initial"].square().sum()
            + got.values.sum()
        )  # fmt: skip
        loss.backward()
        grads = {n: p.grad for n, p in lm.module.named_parameters() if p.grad is not None}
        out.append((got, grads))
    return out


@pytest.mark.parametrize("critic", ["shared", "separate"])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_gradients(kind: str, critic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not plain_head(tiny(kind)):
        assert kind in ("t5", "bart")  # one scales its states, one shifts its logits
        return
    monkeypatch.setattr(token_scores, "PIECE", 4096)
    (plain, d_plain), (mine, d_mine) = both(kind, critic)
    for name in ("logprobs", "free_logprobs", "entropy", "values", "last_value"):
        torch.testing.assert_close(getattr(mine, name), getattr(plain, name), atol=1e-5, rtol=1e-4)
    for name in ("exact_kl", "set_logprobs"):
        a, b = getattr(mine, name)["initial"], getattr(plain, name)["initial"]
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert d_mine.keys() == d_plain.keys()
    for name, g in d_plain.items():
        torch.testing.assert_close(d_mine[name], g, atol=1e-4, rtol=1e-3)


def test_a_model_that_shifts_its_logits_is_seen() -> None:
    lm = tiny("bart")
    assert not plain_head(lm)
    lm.module.final_logits_bias.zero_()
    assert plain_head(lm)


def test_a_copy_is_asked_again() -> None:
    lm = tiny("gpt2")
    lm.scratch["in pieces"] = True
    assert lm.twin().scratch == {}
    assert isinstance(lm, LanguageModel)


def test_a_cap_far_above_these_logits_is_known() -> None:
    lm = tiny("gemma2")
    lm.config.final_logit_softcapping = 30.0
    lm.core.config.final_logit_softcapping = 30.0
    assert not plain_head(lm)
    lm.core.config.final_logit_softcapping = None
    assert plain_head(lm)
