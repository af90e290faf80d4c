"""The engine on an accelerator: same distribution as scoring, both caches, RNG untouched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models_for_tests import some_prompts, tiny
from tether.config.run import SamplingSettings
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all, scored_as
from tether.models.weight_sets import WeightSets
from tether.rollout.hf import HFEngine
from tether.types import Rollout

pytestmark = pytest.mark.gpu


def on_gpu(kind: str, dtype: torch.dtype = torch.float32) -> LanguageModel:
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    lm = tiny(kind, sharp=4.0)
    lm.module.to("cuda", dtype)
    return lm


def write(lm: LanguageModel, cache: Any = "dynamic", **sampling: Any) -> tuple[Rollout, Any]:
    settings = SamplingSettings(**({"max_new_tokens": 8} | sampling))
    row = torch.arange(4)
    engine = HFEngine(cache=cache)
    return next(engine.generate(lm, some_prompts(lm), row, row, settings, (1,))), settings


@pytest.mark.parametrize("cache", ("dynamic", "static"))
@pytest.mark.parametrize("kind", ("gpt2", "llama", "t5"))
def test_the_engine_and_scoring_agree(kind: str, cache: str) -> None:
    lm = on_gpu(kind)
    before = torch.cuda.get_rng_state()
    for sampling in ({}, {"top_p": 0.8, "temperature": 0.7, "min_new_tokens": 2}):
        r, settings = write(lm, cache, **sampling)
        scores = score_all(lm, r.sequences, **scored_as(settings, r))
        torch.testing.assert_close(r.logprobs, scores.logprobs, atol=2e-4, rtol=0)
    assert torch.equal(before, torch.cuda.get_rng_state())


def test_a_static_cache_sees_new_weights() -> None:
    lm = on_gpu("llama")
    sets = WeightSets(lm, copies="cpu")
    for _ in range(2):
        r, settings = write(lm, "static")
        scores = score_all(lm, r.sequences, **scored_as(settings, r))
        torch.testing.assert_close(r.logprobs, scores.logprobs, atol=2e-4, rtol=0)
        with torch.no_grad():
            for t in sets.sets["policy"].values():
                t.mul_(1.1)
    with sets.swapped_in("initial") as live:
        r, settings = write(live, "static")
        scores = score_all(live, r.sequences)
        torch.testing.assert_close(r.logprobs, scores.logprobs, atol=2e-4, rtol=0)


def test_bf16_masters_and_pinned_initial() -> None:
    lm = on_gpu("llama", torch.bfloat16)
    sets = WeightSets(lm, copies="cpu")
    assert all(t.is_pinned() for t in sets.sets["initial"].values())
    r, settings = write(lm)
    scores = score_all(lm, r.sequences, **scored_as(settings, r))
    assert (r.logprobs - scores.logprobs).abs().max() < 0.3
    with sets.beside("initial") as twin:
        exact = score_all(lm, r.sequences, against={"initial": twin}).exact_kl["initial"]
    assert (exact == 0).all()
