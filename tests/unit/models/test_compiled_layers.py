"""Layers traced by the compiler, without its code generator: one trace serves all of a model's
layers and every size, and nothing stays on the modules."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tests.models_for_tests import some_sequences, tiny
from tether.config.run import LoraSettings
from tether.models import compiled
from tether.models.compiled import layers_of
from tether.models.lora import wrap
from tether.models.scoring import score, score_all


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_one_trace_for_all_layers_and_sizes(
    kind: str, adapted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = CompileCounter()
    monkeypatch.setattr(compiled, "BACKEND", traced)
    lm = tiny(kind)
    if adapted:
        lm.module = wrap(lm.module, LoraSettings(rank=2), seed=0)
    assert len(layers_of(lm.core)) == 2
    for length in (6, 9):
        s = some_sequences(lm, length)
        found = []
        for lm.compile in (False, True):
            out = score(lm, s).logprobs
            out.sum().backward()
            grads = {n: p.grad for n, p in lm.module.named_parameters() if p.grad is not None}
            lm.module.zero_grad()
            found.append((out.detach(), score_all(lm, s).logprobs, grads))
        (a, quiet_a, g), (b, quiet_b, h) = found
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(quiet_a, quiet_b)
        assert g.keys() == h.keys()
        for n in g:
            torch.testing.assert_close(g[n], h[n], msg=n)
    # with gradients and without, whatever the layer or the length; what comes into the first layer
    # of a frozen base needs no gradient
    assert traced.frame_count == 2 + adapted
    assert all("forward" not in vars(layer) for layer in layers_of(lm.core))


def test_twins_for_one_evaluation_share_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the model's own, since their weights are fixed; not one an evaluation."""
    traced = CompileCounter()
    monkeypatch.setattr(compiled, "BACKEND", traced)
    lm = tiny("gpt2")
    lm.compile, s = True, some_sequences(lm)
    score_all(lm, s)
    for _ in range(3):
        twin = lm.twin().short_lived(lm)
        torch.testing.assert_close(score_all(twin, s).logprobs, score_all(lm, s).logprobs)
        assert not twin.capture
    assert traced.frame_count == 2


def test_without_compiled_layers_for_a_block() -> None:
    lm = tiny("gpt2")
    lm.compile = True
    with pytest.raises(KeyError), lm.plain():
        assert not lm.compile
        raise KeyError
    assert lm.compile
