"""B37: fully masked rows and overflow, seen far from their cause."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from tests.models_for_tests import some_prompts, tiny
from tether.config.errors import UserError
from tether.config.run import SamplingSettings
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all
from tether.rollout.hf import HFEngine
from tether.types import Rollout


class Nothing:
    """Forbids everything from position 2 on, for the second prompt only."""

    def allow(self, logits: Mapping[str, Tensor], position: Tensor) -> Tensor:
        out = torch.ones_like(logits["policy"], dtype=torch.bool)
        out[1] = (position[1] < 2).expand(out.shape[1])
        return out


def write(lm: LanguageModel, constraints: list, lengths: tuple[int, ...] = (5, 3)) -> Rollout:  # type: ignore[type-arg]
    row = torch.arange(len(lengths)) + 40
    sampling = SamplingSettings(max_new_tokens=5, min_new_tokens=4)
    prompts = some_prompts(lm, lengths)
    return next(HFEngine().generate(lm, prompts, row, row, sampling, (0,), constraints))


def test_softmax_of_a_fully_masked_row_is_nan() -> None:
    assert torch.full((3,), -torch.inf).softmax(0).isnan().all()


def test_a_forbid_everything_rule_is_refused_by_name_prompt_and_position() -> None:
    with pytest.raises(UserError, match="Nothing allowed no token at all for prompt row 41") as e:
        write(tiny("gpt2"), [Nothing()])
    assert "completion position 2" in str(e.value)


@pytest.mark.parametrize("kind", ("gpt2", "llama", "opt", "t5", "bart"))
def test_very_different_lengths_in_one_batch_are_finite(kind: str) -> None:
    lm = tiny(kind, sharp=4.0)
    r = write(lm, [], (1, 12))
    scores = score_all(lm, r.sequences, allowed=r.allowed, entropy=True)
    for x in (r.logprobs, scores.logprobs, scores.free_logprobs, scores.entropy):
        assert x is not None and torch.isfinite(x).all()
    scores = scores  # gradients too
    lm.forward(r.sequences)[0].float().log_softmax(-1).mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in lm.module.parameters() if p.grad is not None)


@pytest.mark.parametrize("value", (torch.nan, torch.inf))
def test_diverged_weights_are_named(value: float) -> None:
    lm = tiny("gpt2")
    with torch.no_grad():
        lm.module.transformer.h[0].mlp.c_fc.bias.fill_(value)
    with pytest.raises(
        UserError, match="NaN or infinite for prompt row 40 at completion position 0"
    ):
        write(lm, [])
