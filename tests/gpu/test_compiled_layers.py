"""Compiled layers score and differentiate as plain ones do; averages in CPU memory are the ones on
the device."""

from __future__ import annotations

import pytest
import torch

from tests.models_for_tests import some_sequences, tiny
from tether.config.run import LoraSettings, OptimizerSettings
from tether.models.lora import wrap
from tether.models.scoring import score, score_all
from tether.models.weight_sets import WeightSets
from tether.train.optimizer import MasterOptimizer
from tether.types import Move

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5", "bart"])
def test_compiled_layers(kind: str) -> None:
    lm = tiny(kind)
    lm.module.to("cuda")
    for length in (6, 9):
        s = some_sequences(lm, length).to("cuda")
        found = []
        for compiled in (False, True):
            lm.compile = compiled
            score(lm, s).logprobs.sum().backward()
            grads = {n: p.grad for n, p in lm.module.named_parameters() if p.grad is not None}
            lm.module.zero_grad()
            found.append((score_all(lm, s).logprobs, grads))
        (plain, g), (quick, h) = found
        assert torch.allclose(plain, quick, atol=1e-5)
        assert g.keys() == h.keys()
        for n in g:
            assert torch.allclose(g[n], h[n], rtol=1e-3, atol=1e-5), n
    assert lm.scratch["compiled layers"]


def test_average_in_cpu_memory_overlaps_and_equals() -> None:
    lm = tiny("llama")
    lm.module.to("cuda")
    here, there = WeightSets(lm), WeightSets(lm, copies="cpu")
    for sets in (here, there):
        sets.declare("ema")
    assert not there.sets["ema"][next(iter(there.sets["ema"]))].is_cuda
    for _ in range(3):
        for p in lm.module.parameters():
            p.data.add_(torch.randn_like(p))
        for sets in (here, there):
            sets.apply([Move("ema", "policy", 0.25)])
        there.settle()  # as a learner does before it writes
    assert there._overlap._stage
    for n, t in here.sets["ema"].items():
        assert torch.allclose(t.cpu(), there.sets["ema"][n], rtol=1e-6, atol=1e-7), n


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_recorded_passes(kind: str, compiled: bool) -> None:
    """Two shapes, each twice, weights written in between: gradients of the plain passes."""
    lm = tiny(kind)
    lm.module.to("cuda", torch.bfloat16)
    lm.compile = compiled
    for length, seed in ((6, 0), (30, 1), (6, 2), (30, 3)):
        with torch.no_grad():
            for p in lm.module.parameters():
                p.mul_(1.01)
        s = some_sequences(lm, length, seed).to("cuda")
        found = []
        for capture in (False, True):
            lm.capture = capture
            with lm.recording():
                scores = score(lm, s)
            scores.logprobs.sum().backward()
            grads = {}
            for n, p in lm.module.named_parameters():
                if p.grad is not None:
                    grads[n] = p.grad.clone()
                    p.grad = None
            found.append((scores.logprobs.detach(), grads))
            del scores  # a graph that is alive would tie a recording to its stream
        (plain, g), (quick, h) = found
        assert torch.allclose(plain, quick, atol=0.05)
        for n in g:
            size = g[n].abs().max()
            assert (g[n] - h[n]).abs().max() <= 0.05 * size + 1e-3, n
    assert len(lm.scratch["recorded"]._shapes) == 2
    quiet = [score_all(lm, s).logprobs]
    lm.capture = False
    quiet.append(score_all(lm, s).logprobs)
    assert torch.allclose(*quiet, atol=0.05) and len(lm.scratch["recorded"]._shapes) == 3


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_recorded_passes_of_an_adapter(kind: str) -> None:
    """fp32 adapters on bf16 weights: gradients of three microbatches of two shapes, summed apart,
    and steps along them, are those of plain passes."""
    found = []
    for capture in (False, True):
        lm = tiny(kind)
        lm.module.to("cuda", torch.bfloat16)
        lm.module = wrap(lm.module, LoraSettings(rank=4), seed=0)
        with torch.no_grad():
            for n, p in lm.module.named_parameters():
                if "lora_B" in n:
                    p.normal_(generator=torch.Generator("cuda").manual_seed(1), std=0.1)
        lm.capture = capture
        assert lm.cannot_record() is None
        weights = [p for p in lm.module.parameters() if p.requires_grad]
        assert {p.dtype for p in weights} == {torch.float32}
        groups: dict[str, list[torch.Tensor]] = {"policy": list(weights)}
        optimizer = MasterOptimizer(groups, groups, OptimizerSettings(), 9, apart=capture)
        norms = []
        for step in range(3):
            for length, seed in ((6, 0), (30, 1), (6, 2)):
                with lm.recording():
                    scores = score(lm, some_sequences(lm, length, seed).to("cuda"))
                scores.logprobs.sum().backward()
                optimizer.add_gradients()
                del scores
            norms.append(float(optimizer.step({"policy": 1e-3}, step)["policy"]))
        found.append((norms, torch.cat([p.detach().flatten() for p in weights])))
    (plain, a), (quick, b) = found
    assert quick == pytest.approx(plain, rel=0.05)
    moved = (a - b).norm() / a.norm()
    assert float(moved) < 0.01
    assert len(lm.scratch["recorded"]._shapes) == 2


def test_a_second_pass_within_one_recording_is_plain() -> None:
    lm = tiny("llama")
    lm.module.to("cuda", torch.bfloat16)
    lm.capture = True
    one, two = (some_sequences(lm, 6, seed).to("cuda") for seed in (0, 1))
    with lm.recording():
        a, b = score(lm, one), score(lm, two)
    alone = score(lm, two)
    assert torch.equal(b.logprobs, alone.logprobs)
    assert len(lm.scratch["recorded"]._shapes) == 1
    (a.logprobs.sum() + b.logprobs.sum()).backward()
