"""B01: left-padded rows scored at the wrong positions. Absolute-position models show it."""

from __future__ import annotations

import pytest
import torch

from tests.models_for_tests import PAD, tiny
from tether.models.scoring import score_all
from tether.types import Sequences


def row(pads: int) -> Sequences:
    prompt = torch.tensor([[PAD] * pads + [3, 14, 15]])
    mask = torch.tensor([[False] * pads + [True] * 3])
    ids = torch.tensor([[92, 65, 35]])
    return Sequences(prompt, mask, ids, torch.ones_like(ids).bool())


@pytest.mark.parametrize("kind", ("gpt2", "opt", "llama"))
def test_a_log_prob_does_not_depend_on_padding(kind: str) -> None:
    lm = tiny(kind, sharp=6.0)
    alone, padded = (score_all(lm, row(n)).logprobs.sum().item() for n in (0, 4))
    assert padded == pytest.approx(alone, abs=1e-4)


def test_without_positions_it_would() -> None:
    """The fault itself is visible on this model, so the test above can fail."""
    lm = tiny("gpt2", sharp=6.0)
    s = row(4)
    ids, mask = torch.cat([s.prompt, s.completion], 1), torch.cat([s.prompt_mask] * 2, 1)[:, :10]
    mask[:, 7:] = True
    with torch.no_grad():
        logits = lm.module(
            input_ids=ids, attention_mask=mask.long(), position_ids=torch.arange(10)[None]
        )
    wrong = logits.logits[0, 6:9].log_softmax(-1)[range(3), [92, 65, 35]].sum().item()
    assert abs(wrong - score_all(lm, row(0)).logprobs.sum().item()) > 0.1
