"""B31: an immediate EOS is a response of length 1 with an empty text."""

from __future__ import annotations

import pytest
import torch

from tests.models_for_tests import EOS, some_prompts, tiny
from tether.config.run import SamplingSettings
from tether.core.returns import gae
from tether.models.critic import Critic
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all
from tether.models.tokenizing import decode
from tether.rollout.hf import HFEngine


def ends_at_once(kind: str) -> LanguageModel:
    """A model whose EOS has probability 1."""
    lm = tiny(kind)
    head = torch.nn.Linear(32, lm.vocab_size)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
        head.bias[EOS] = 1e4
    lm.core.set_output_embeddings(head)
    return lm


@pytest.mark.parametrize("kind", ("gpt2", "llama", "t5", "bart"))
@pytest.mark.parametrize("lengths", ((5, 3, 7, 1), (4,)))
def test_eos_at_once_is_one_action(kind: str, lengths: tuple[int, ...]) -> None:
    lm = ends_at_once(kind)
    row = torch.arange(len(lengths))
    sampling = SamplingSettings(max_new_tokens=6)
    chunks = list(HFEngine().generate(lm, some_prompts(lm, lengths), row, row, sampling, (0,)))
    r = chunks[0]
    assert len(chunks) == 1 and r.finished.all()
    assert r.sequences.completion_mask.sum(1).tolist() == [1] * len(lengths)
    assert decode(lm.tokenizer, r.sequences.completion[0][r.sequences.completion_mask[0]]) == ""
    scores = score_all(lm, r.sequences, critic=Critic(lm), entropy=True)
    assert (scores.logprobs == 0).all() and torch.isfinite(scores.entropy).all()
    mask = r.sequences.completion_mask
    advantages, _ = gae(
        torch.ones_like(scores.logprobs), scores.values, scores.last_value * 0, mask, 1.0, 0.95
    )
    assert torch.isfinite(advantages).all() and (advantages[:, 0] == 1).all()
