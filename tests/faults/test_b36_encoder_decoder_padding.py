"""B36: encoder inputs padded on the decoder-only side; T5 in fp16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.models_for_tests import (
    PAD,
    byte_tokenizer,
    some_prompts,
    some_sequences,
    tiny,
    tiny_module,
)
from tether.config.errors import UserError
from tether.config.run import ModelSettings, SamplingSettings
from tether.models.loading import load_language_model
from tether.models.scoring import score_all
from tether.models.tokenizing import pad
from tether.rollout.hf import HFEngine


@pytest.mark.parametrize("kind", ("bart", "t5"))
def test_right_padding_changes_nothing(kind: str) -> None:
    lm = tiny(kind, sharp=4.0)
    assert lm.padding_side == "right"
    s = some_sequences(lm)
    extra = torch.full((4, 5), PAD)
    wide = replace(
        s,
        prompt=torch.cat([s.prompt, extra], 1),
        prompt_mask=torch.cat([s.prompt_mask, torch.zeros_like(extra).bool()], 1),
    )
    torch.testing.assert_close(
        score_all(lm, s).logprobs, score_all(lm, wide).logprobs, atol=2e-5, rtol=0
    )


def test_left_padding_would_be_seen_by_bart() -> None:
    lm = tiny("bart", sharp=6.0)
    s = some_sequences(lm)
    rows = [s.prompt[i][s.prompt_mask[i]].tolist() for i in range(4)]
    ids, mask = pad([[*r] for r in rows], "left", PAD)
    with torch.no_grad():
        right, left = lm.forward(s)[0], lm.forward(replace(s, prompt=ids, prompt_mask=mask))[0]
    assert (right - left).abs().max() > 0.1


@pytest.mark.parametrize("kind", ("bart", "t5"))
def test_rollout_and_scoring_use_the_same_side(kind: str) -> None:
    lm = tiny(kind, sharp=4.0)
    row = torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=6)
    r = next(HFEngine().generate(lm, some_prompts(lm), row, row, sampling, (0,)))
    torch.testing.assert_close(r.logprobs, score_all(lm, r.sequences).logprobs, atol=1e-5, rtol=0)


def test_t5_refuses_fp16(tmp_path: Path) -> None:
    tiny_module("t5").save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    assert torch.tensor(66246.39).half().isinf()
    with pytest.raises(UserError, match="t5 activations overflow fp16; use bfloat16 or float32"):
        load_language_model(ModelSettings(path=str(tmp_path), dtype="float16", device="cpu"))
