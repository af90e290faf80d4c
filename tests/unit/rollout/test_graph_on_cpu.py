"""The captured engine's steps without a graph, where there is no GPU: same numbers as the first
engine, and one line where it cannot write."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.models_for_tests import some_prompts, tiny
from tether.config.run import SamplingSettings
from tether.models.fused import Together, lay_together
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all, scored_as
from tether.rollout import static_attention
from tether.rollout.engine import join
from tether.rollout.graph import GraphEngine, programs_of, rounded
from tether.rollout.hf import HFEngine
from tether.rollout.static_attention import Span, attend_in_torch

KINDS = ("gpt2", "llama", "opt", "gpt_neox", "qwen2", "gemma", "t5", "bart", "mbart", "marian")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kw", [{}, {"top_p": 0.8}, {"temperature": 0.7, "min_new_tokens": 3}])
def test_log_probs_are_those_of_scoring(
    kind: str, kw: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    lm = tiny(kind, sharp=2.0)
    group = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    s, sampling = some_prompts(lm).rows(group), SamplingSettings(max_new_tokens=9, **kw)
    engine = GraphEngine(capture=False)
    r = join(list(engine.generate(lm, s, group, group, sampling, ("t", 1))), lm.pad)
    fresh = score_all(lm, r.sequences, **scored_as(sampling, r))
    assert float((fresh.logprobs - r.logprobs).abs().max()) < 1e-5
    assert r.policy_version == 0 and r.writer == "policy"
    assert capsys.readouterr().err == ""  # no other engine has written this


def test_a_step_that_waits_for_the_device_is_not_recorded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, i = tiny("gpt2"), torch.arange(4)
    plain = type(lm.core).forward

    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = plain(self, *args, **kwargs)
        float(out.logits.sum())
        return out

    monkeypatch.setattr(type(lm.core), "forward", waiting)
    sampling = SamplingSettings(max_new_tokens=3)
    chunks = GraphEngine(capture=False).generate(lm, some_prompts(lm), i, i, sampling, ("t", 1))
    assert len(join(list(chunks), lm.pad).row) == 4
    said = capsys.readouterr().err
    assert "falling back to hf, since a step of GPT2LMHeadModel waits for the device" in said


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_equals_the_first_engine(kind: str) -> None:
    lm = tiny(kind, sharp=3.0)
    lay_together(lm.module)
    s, i = some_prompts(lm), torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=9, greedy=True)
    a, b = (
        join(list(e.generate(lm, s, i, i, sampling, ("t", 1))), lm.pad)
        for e in (GraphEngine(capture=False), HFEngine())
    )
    assert torch.equal(a.sequences.completion, b.sequences.completion)
    assert torch.equal(a.sequences.completion_mask, b.sequences.completion_mask)


def test_it_says_once_why_it_falls_back(capsys: pytest.CaptureFixture[str]) -> None:
    lm, i = tiny("gpt2"), torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=3)
    for _ in range(2):
        list(GraphEngine().generate(lm, some_prompts(lm), i, i, sampling, ("t", 1)))
    said = capsys.readouterr().err.splitlines()
    assert said == ["engine graph: falling back to hf, since it needs CUDA, the model is on cpu"]


def test_a_refusal_is_of_that_engine(capsys: pytest.CaptureFixture[str]) -> None:
    lm, i = tiny("gpt2"), torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=3)
    for engine in (GraphEngine(), GraphEngine(capture=False)):
        list(engine.generate(lm, some_prompts(lm), i, i, sampling, ("t", 1)))
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert len(programs_of(lm)) == 1


def test_a_refusal_in_the_middle_writes_no_row_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, i = tiny("gpt2"), torch.arange(4)
    seen: list[int] = []
    real = GraphEngine._program

    def once(self: Any, *args: Any) -> Any:
        seen.append(1)
        if len(seen) > 1:
            raise static_attention.Unsupported("a reason")
        return real(self, *args)

    monkeypatch.setattr(GraphEngine, "_program", once)
    sampling = SamplingSettings(max_new_tokens=3, chunk=2)
    with pytest.raises(RuntimeError, match="rows 2 and on: a reason"):
        list(GraphEngine(capture=False).generate(lm, some_prompts(lm), i, i, sampling, ("t", 1)))


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_a_model_whose_attention_goes_another_way_falls_back(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, i = tiny(kind), torch.arange(4)
    monkeypatch.setattr(static_attention, "NAME", "sdpa")  # the replacement has no effect
    sampling = SamplingSettings(max_new_tokens=3)
    chunks = GraphEngine(capture=False).generate(lm, some_prompts(lm), i, i, sampling, ("t", 1))
    r = join(list(chunks), lm.pad)
    fresh = score_all(lm, r.sequences)
    assert float((fresh.logprobs - r.logprobs).abs().max()) < 1e-5
    name = type(lm.core).__name__
    assert f"falling back to hf, since the attention of {name} cannot" in capsys.readouterr().err


def test_projections_side_by_side_are_one_product_and_the_same_parameters() -> None:
    lm = tiny("llama")
    before = {n: p.detach().clone() for n, p in lm.module.named_parameters()}
    ids = {n: id(p) for n, p in lm.module.named_parameters()}
    assert lay_together(lm.module) == 4
    assert {n: id(p) for n, p in lm.module.named_parameters()} == ids
    for n, p in lm.module.named_parameters():
        assert torch.equal(p, before[n])
    x = some_prompts(lm).prompt
    with torch.no_grad():
        plain = lm.module(input_ids=x).logits
        with Together(lm.module) as laid:
            assert laid.groups == 4
            assert torch.allclose(lm.module(input_ids=x).logits, plain, atol=1e-6)
        layer = lm.module.model.layers[0].self_attn
        layer.k_proj.weight.mul_(2.0)  # written in place: the block sees it
        changed = lm.module(input_ids=x).logits
        with Together(lm.module):
            assert torch.allclose(lm.module(input_ids=x).logits, changed, atol=1e-6)
    assert not torch.allclose(changed, plain, atol=1e-6)
    assert "forward" not in vars(layer.q_proj)


def test_attention_over_fixed_keys_by_hand() -> None:
    """Two keys in sight of four: scores 0 and log 3 -> weights 1/4 and 3/4."""
    k = torch.tensor([[9.0], [0.0], [1.0], [9.0]])[None, None]
    v = torch.tensor([[100.0], [4.0], [8.0], [100.0]])[None, None]
    q = torch.tensor([[[3.0]]]).log()
    out = attend_in_torch(q, k, v, Span(torch.tensor([1]), torch.tensor([3])), 1.0)
    assert out.item() == pytest.approx(7.0)


def test_rounding_of_batches() -> None:
    assert [rounded(n) for n in (1, 2, 3, 5, 6, 7, 48, 65, 100, 256, 257)] == [
        1, 2, 3, 6, 6, 8, 48, 96, 128, 256, 384,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_bf16_rounds_where_scoring_rounds(kind: str) -> None:
    """Nearer to scoring than either is to fp32."""
    lm = tiny(kind, sharp=3.0)
    lm.module.to(torch.bfloat16)
    exact = LanguageModel(copy.deepcopy(lm.module).float(), None, lm.stops, lm.pad)
    group = torch.arange(8) % 4
    s, sampling = some_prompts(lm).rows(group), SamplingSettings(max_new_tokens=12)
    apart = wrong = 0.0
    for seed in range(4):
        engine = GraphEngine(capture=False)
        r = join(list(engine.generate(lm, s, group, group, sampling, ("t", seed))), lm.pad)
        scored = score_all(lm, r.sequences).logprobs
        apart += float((scored - r.logprobs).abs().sum())
        wrong += float((scored - score_all(exact, r.sequences).logprobs).abs().sum())
    assert apart < 0.7 * wrong
