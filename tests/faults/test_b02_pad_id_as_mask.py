"""B02: the pad id used to find real tokens. pad == EOS == 1 here."""

from __future__ import annotations

import torch

from tests.models_for_tests import tiny_module
from tether.config.run import SamplingSettings
from tether.models.language_model import LanguageModel
from tether.models.tokenizing import pad
from tether.rollout.hf import HFEngine, real_tokens
from tether.types import Sequences


def test_a_response_runs_through_its_first_eos() -> None:
    ids = torch.tensor([[7, 9, 1, 1, 1], [7, 9, 8, 7, 1]])  # one short, one long, both finished
    mask, finished = real_tokens(ids, torch.tensor([1]))
    assert mask.sum(1).tolist() == [3, 5]  # an id comparison gives 2 and 4
    assert finished.tolist() == [True, True]  # looking at the last column alone is no proof


def test_a_genuine_pad_id_in_a_prompt_stays_real() -> None:
    ids, mask = pad([[1, 5, 1], [6]], "left", 1)
    assert mask.sum(1).tolist() == [3, 1] and ids[1].tolist() == [1, 1, 6]


def test_the_engine_carries_masks_where_pad_is_eos() -> None:
    lm = LanguageModel(tiny_module("gpt2", vocab=6, sharp=0.1), None, (1,), 1)
    prompt, mask = pad([[2, 3]] * 32, "left", 1)
    empty = torch.zeros(32, 0, dtype=torch.long)
    s = Sequences(prompt, mask, empty, empty.bool())
    row = torch.arange(32)
    r = next(HFEngine().generate(lm, s, row, row, SamplingSettings(max_new_tokens=12), (0,)))
    assert r.finished.sum() > 10 and (~r.finished).any()
    for ids, real, done in zip(
        r.sequences.completion, r.sequences.completion_mask, r.finished, strict=True
    ):
        kept = ids[real].tolist()
        assert (1 in kept) == bool(done) and 1 not in kept[:-1]
        assert (ids[~real] == 1).all()
