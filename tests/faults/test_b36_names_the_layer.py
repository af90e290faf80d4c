"""B36: the first non-finite activation names its layer, in rollout, for both families."""

from __future__ import annotations

import pytest
import torch

from tests.models_for_tests import some_prompts, some_sequences, tiny
from tether.config.errors import UserError
from tether.config.run import SamplingSettings
from tether.models.language_model import LanguageModel
from tether.models.non_finite import first_non_finite
from tether.rollout.hf import HFEngine


def write(lm: LanguageModel) -> None:
    row = torch.arange(4)
    next(HFEngine().generate(lm, some_prompts(lm), row, row, SamplingSettings(), (0,)))


@pytest.mark.parametrize(
    ("kind", "layer"),
    (
        ("t5", "encoder.block.1.layer.1.DenseReluDense.wo"),
        ("bart", "model.decoder.layers.0.fc2"),
        ("llama", "model.layers.1.mlp.down_proj"),
    ),
)
def test_an_overflow_names_the_layer(kind: str, layer: str) -> None:
    """Weights are finite, their product is not: as fp16 does to T5, at fp32's own limit."""
    lm = tiny(kind, sharp=4.0)
    with torch.no_grad():
        lm.core.get_submodule(layer).weight.fill_(3e38)
    with pytest.raises(UserError, match=f"activation .float32. leaves the layer '{layer}'") as e:
        write(lm)
    assert "\n" not in str(e.value) and "at completion position" in str(e.value)


def test_broken_weights_are_told_from_overflow() -> None:
    lm = tiny("t5", sharp=3.0)
    layer = lm.core.get_submodule("decoder.block.0.layer.0.SelfAttention.q")
    with torch.no_grad():
        layer.weight[0, 0] = torch.nan
    name = "decoder.block.0.layer.0.SelfAttention.q.weight"
    with pytest.raises(UserError, match=f"the weights '{name}' are not finite"):
        write(lm)


@pytest.mark.parametrize("kind", ("gpt2", "t5"))
def test_a_finite_pass_says_nothing_and_leaves_no_hook(kind: str) -> None:
    lm = tiny(kind)
    s = some_sequences(lm)
    assert first_non_finite(lm, s.prompt[0][s.prompt_mask[0]], s.completion[0]) == ""
    assert not any(m._forward_hooks for m in lm.module.modules())
