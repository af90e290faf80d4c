"""B04: at the length limit the last token is overwritten by EOS."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tests.models_for_tests import EOS, some_prompts, tiny
from tether.config.run import SamplingSettings
from tether.models.scoring import score_all
from tether.rollout.hf import HFEngine


class NoEnd:
    """Forbids EOS by a rule that may."""

    decides_stops = True

    def allow(self, logits: Mapping[str, Tensor], position: Tensor) -> Tensor:
        return (torch.arange(logits["policy"].shape[-1]) != EOS).expand(len(position), -1)


def test_truncated_responses_keep_every_sampled_id() -> None:
    lm = tiny("gpt2", sharp=3.0)
    row = torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=4)
    r = next(HFEngine().generate(lm, some_prompts(lm), row, row, sampling, (0,), [NoEnd()]))
    assert not r.finished.any() and r.sequences.completion_mask.all()
    assert (r.sequences.completion != EOS).all()
    # the log-prob that was kept while sampling is that of the stored id
    old = score_all(lm, r.sequences, allowed=r.allowed).logprobs
    torch.testing.assert_close(old, r.logprobs, atol=1e-5, rtol=0)
