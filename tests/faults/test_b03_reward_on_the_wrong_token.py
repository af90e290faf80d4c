"""B03: the sequence reward on a pad, and `finished` judged by a token that is not in force."""

from __future__ import annotations

import torch

from tests.models_for_tests import some_prompts, tiny
from tether.config.run import SamplingSettings
from tether.core.masking import at_last
from tether.rollout.hf import HFEngine, real_tokens

STOP, EOS, PAD = 13, 1, 0


def test_the_score_stands_on_the_last_real_token() -> None:
    ids = torch.tensor([[5, 6, EOS, PAD, PAD], [5, 6, 7, 8, 9]])
    mask, _ = real_tokens(ids, torch.tensor([EOS]))
    assert at_last(torch.ones(2), mask).tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]


def test_a_response_that_ends_in_the_stop_token_is_finished() -> None:
    ids = torch.tensor([[5, STOP, PAD], [5, 6, EOS], [5, 6, 7]])
    mask, finished = real_tokens(ids, torch.tensor([EOS, STOP]))
    assert finished.tolist() == [True, True, False] and mask.sum(1).tolist() == [2, 3, 3]


def test_the_engine_stops_at_every_stop_token_in_force() -> None:
    lm = tiny("gpt2", sharp=0.1)
    lm.stops = (lm.stops[0], *range(60))
    row = torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=40)
    r = next(HFEngine().generate(lm, some_prompts(lm), row, row, sampling, (0,)))
    assert r.finished.all()
    length = r.sequences.completion_mask.sum(1)
    last = r.sequences.completion.gather(1, length[:, None] - 1).flatten()
    assert torch.isin(last, torch.tensor(lm.stops)).all() and (last != lm.stops[0]).any()
