"""B05: a reward model that reads a pad under left padding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models_for_tests import byte_tokenizer, tiny_module
from tether.config.run import ModelSettings
from tether.models.classifier_loading import build_classifier
from tether.models.tokenizing import pad

ROWS = [[72, 101, 108], [257, 256, 5, 9, 257], [30]]
"""The second one holds genuine pad and EOS ids, its last one included."""


@pytest.mark.parametrize("kind", ("gpt2", "llama", "opt"))
def test_left_right_and_no_padding_are_equal(kind: str, tmp_path: Path) -> None:
    tiny_module(kind, sharp=3.0).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    c = build_classifier(ModelSettings(path=str(tmp_path), device="cpu"), ["a", "b"])
    with torch.no_grad():
        left, right = (c.forward(*pad(ROWS, side, 256)) for side in ("left", "right"))
        alone = torch.cat([c.forward(*pad([r], "right", 256)) for r in ROWS])
        cut = torch.cat([c.forward(*pad([r[:-1] or r], "right", 256)) for r in ROWS])
    torch.testing.assert_close(left, right, atol=1e-5, rtol=0)
    torch.testing.assert_close(left, alone, atol=1e-5, rtol=0)
    assert (alone[:2] - cut[:2]).abs().max() > 1e-3  # reading one token earlier would show
