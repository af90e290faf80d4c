"""Rates that a built model reads: dropout modules, functional dropout, an adapter's dropout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, GPT2Config

from tests.models_for_tests import EOS, PAD, byte_tokenizer, some_sequences, tiny_module
from tests.runs_for_tests import make_world, run, settings
from tether.config.errors import UserError
from tether.config.run import ClassifierSettings, LoraSettings, ModelSettings
from tether.models.classifier_loading import build_classifier, load_classifier, save_classifier
from tether.models.dropout import FACT, rates_of, silence_config, silence_module, with_rates
from tether.models.export import export
from tether.models.language_model import LanguageModel
from tether.models.loading import load_beside, load_language_model
from tether.models.scoring import score
from tether.train.classifier import train_classifier


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
    """At the start of a run; who reads what such a run has left loads it."""
    world = make_world(tmp_path)
    tiny_module(kind).save_pretrained(tmp_path / "m")
    byte_tokenizer().save_pretrained(tmp_path / "m")
    chosen = {"path": str(tmp_path / "m"), "device": "cpu", "dropout": True}
    with pytest.raises(UserError, match=r"model\.dropout cannot have an effect: no layer"):
        run(settings(world, {"model": chosen}, name="none"))
    assert load_language_model(ModelSettings(**chosen)).dropout  # type: ignore[arg-type]


def test_rates_of_a_part() -> None:
    """A text model keeps its own rates where they were read beside those of another part."""
    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, summary_first_dropout=0.0)
    rates = {"text_config.attn_pdrop": 0.3, "vision_config.embd_pdrop": 0.2, "resid_pdrop": 0.1}
    with with_rates(config, rates):
        assert rates_of(config) == {"attn_pdrop": 0.3, "resid_pdrop": 0.1}
    assert rates_of(config) == {}


def test_nested_rates() -> None:
    inner = GPT2Config(resid_pdrop=0.3, embd_pdrop=0.0, attn_pdrop=0.0, summary_first_dropout=0.0)
    outer = GPT2Config(resid_pdrop=0.1, embd_pdrop=0.0, attn_pdrop=0.0, summary_first_dropout=0.0)
    outer.text_config = inner
    assert silence_config(outer) == {"resid_pdrop": 0.1, "text_config.resid_pdrop": 0.3}
    assert inner.resid_pdrop == outer.resid_pdrop == 0
    with with_rates(outer, {"text_config.resid_pdrop": 0.3}):
        assert (outer.resid_pdrop, inner.resid_pdrop) == (0.3, 0.3)


def test_a_foreign_model_keeps_its_own(tmp_path: Path) -> None:
    for name, rate in (("m", 0.1), ("other", 0.2)):
        tiny_module("gpt2", dropout=rate).save_pretrained(tmp_path / name)
        byte_tokenizer().save_pretrained(tmp_path / name)
    lm = load_language_model(ModelSettings(path=str(tmp_path / "m"), device="cpu"))
    other = load_beside(str(tmp_path / "other"), lm)
    assert not differs(other.module)
    export(other, None, tmp_path / "out")
    kept = rates_of(AutoConfig.from_pretrained(tmp_path / "out"))
    assert kept == rates_of(AutoConfig.from_pretrained(tmp_path / "other"))


def test_a_learned_reward_has_no_dropout_to_ask_for(tmp_path: Path) -> None:
    chosen = ClassifierSettings(model=ModelSettings(path="none", dropout=True))
    with pytest.raises(UserError, match=r"model\.dropout cannot have an effect: a learned reward"):
        train_classifier(chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()


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
