"""Rates that a built model reads: dropout modules, functional dropout, an adapter's dropout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, GPT2Config

from tests.models_for_tests import EOS, PAD, byte_tokenizer, some_sequences, tiny_module
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.models.classifier_loading import build_classifier, load_classifier, save_classifier
from tether.models.dropout import FACT, rates_of, silence_config, silence_module
from tether.models.export import export
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model
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


@pytest.mark.parametrize("lora", (None, LoraSettings(rank=4)))
@pytest.mark.parametrize("kind", ("gpt2", "t5", "bart"))
def test_a_model_keeps_the_rates_it_came_with(
    tmp_path: Path, kind: str, lora: LoraSettings | None
) -> None:
    """Trained without dropout and written, then trained with it: the second run draws."""
    tiny_module(kind, dropout=0.2, sharp=1.0 if kind == "t5" else 3.0).save_pretrained(
        tmp_path / "m"
    )
    byte_tokenizer().save_pretrained(tmp_path / "m")
    settings = ModelSettings(path=str(tmp_path / "m"), device="cpu", lora=lora)
    lm = load_language_model(settings)
    assert not differs(lm.module)
    assert 0.2 in lm.facts[FACT].values()
    export(lm, None, tmp_path / "out")
    assert rates_of(lm.config) == {}
    assert rates_of(AutoConfig.from_pretrained(tmp_path / "out")) == lm.facts[FACT]
    again = ModelSettings(path=str(tmp_path / "out"), device="cpu")
    assert not differs(load_language_model(again).module)
    assert differs(load_language_model(replace(again, dropout=True)).module)


@pytest.mark.parametrize("kind", ("gpt2", "llama", "t5", "bart"))
def test_dropout_of_a_model_that_has_none_is_refused(tmp_path: Path, kind: str) -> None:
    tiny_module(kind).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model\.dropout cannot have an effect: no layer"):
        load_language_model(ModelSettings(path=str(tmp_path), device="cpu", dropout=True))


@pytest.mark.parametrize("kind", ("gpt2", "bart"))
def test_a_classifier_too(tmp_path: Path, kind: str) -> None:
    """Also one that was loaded and is written again."""
    tiny_module(kind, dropout=0.2).save_pretrained(tmp_path / "m")
    byte_tokenizer().save_pretrained(tmp_path / "m")
    settings = ModelSettings(path=str(tmp_path / "m"), device="cpu")
    one = build_classifier(settings, ["no", "yes"], seed=0)
    assert rates_of(one.core.config) == {}
    save_classifier(one, tmp_path / "a")
    save_classifier(load_classifier(str(tmp_path / "a"), device="cpu"), tmp_path / "b")
    for name in ("a", "b"):
        assert rates_of(AutoConfig.from_pretrained(tmp_path / name)) == one.facts[FACT]
    assert 0.2 in one.facts[FACT].values()
