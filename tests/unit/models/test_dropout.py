"""Rates that a built model reads: dropout modules, functional dropout, an adapter's dropout."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config

from tests.models_for_tests import EOS, PAD, some_sequences, tiny_module
from tether.models.dropout import silence_config, silence_module
from tether.models.language_model import LanguageModel
from tether.models.scoring import score


def differs(module: torch.nn.Module) -> bool:
    lm = LanguageModel(module, None, (EOS,), PAD)
    s = some_sequences(lm)
    lm.module.train()
    with torch.no_grad():
        return not torch.equal(score(lm, s).logprobs, score(lm, s).logprobs)


@pytest.mark.parametrize("kind", ("gpt2", "llama", "opt", "t5", "bart"))
def test_a_built_model_is_silenced(kind: str) -> None:
    module = tiny_module(kind, dropout=0.2, sharp=3.0)
    assert differs(module)
    silence_module(module)
    assert not differs(module)


def test_an_adapters_dropout_is_silenced() -> None:
    config = LoraConfig(r=4, lora_dropout=0.5, target_modules=["c_attn"], fan_in_fan_out=True)
    module = get_peft_model(tiny_module("gpt2", sharp=3.0), config)
    for n, p in module.named_parameters():
        if "lora_B" in n:
            torch.nn.init.normal_(p)
    assert differs(module)
    silence_module(module)
    assert not differs(module)


def test_a_configuration_is_silenced_and_nothing_else_changes() -> None:
    config = GPT2Config(resid_pdrop=0.1, embd_pdrop=0.2, attn_pdrop=0.3, n_layer=3)
    silence_config(config)
    assert (config.resid_pdrop, config.embd_pdrop, config.attn_pdrop) == (0, 0, 0)
    assert config.n_layer == 3 and config.initializer_range == 0.02
