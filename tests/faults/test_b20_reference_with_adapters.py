"""B20: "adapter off" is not the start model when the policy starts from a trained adapter."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model

from tests.models_for_tests import EOS, PAD, some_sequences, tiny_module
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all
from tether.models.weight_sets import WeightSets


def started() -> LanguageModel:
    """GPT-2 with an adapter whose B is not zero."""
    module = get_peft_model(
        tiny_module("gpt2", sharp=3.0),
        LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True),
    )
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for n, p in module.named_parameters():
            if "lora_B" in n:
                p.copy_(torch.randn(p.shape, generator=rng) * 0.05)
    return LanguageModel(module, None, (EOS,), PAD)


def test_the_reference_is_the_model_at_step_0() -> None:
    lm = started()
    sets, s = WeightSets(lm), some_sequences(lm)
    policy = score_all(lm, s)
    with sets.swapped_in("initial") as live:
        assert torch.equal(score_all(live, s).logprobs, policy.logprobs)  # step-0 KL is exactly 0
    with sets.beside("initial") as twin:
        exact = score_all(lm, s, against={"initial": twin}).exact_kl["initial"]
    assert (exact == 0).all()
    with lm.module.disable_adapter():  # type: ignore[operator]
        off = score_all(lm, s).logprobs
    assert (policy.logprobs - off).abs().sum() > 0.1  # what the fault would log


def test_the_reference_stays_when_the_policy_moves() -> None:
    lm = started()
    sets, s = WeightSets(lm), some_sequences(lm)
    start = score_all(lm, s).logprobs
    with torch.no_grad():
        for t in sets.sets["policy"].values():
            t.add_(0.05)
    with sets.swapped_in("initial") as live:
        assert torch.equal(score_all(live, s).logprobs, start)
    assert (score_all(lm, s).logprobs - start).abs().max() > 1e-3
    sets.check_base()
