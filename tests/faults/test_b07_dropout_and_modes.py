"""B07: sampling, scoring or reference with dropout on; modes not restored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models_for_tests import byte_tokenizer, some_prompts, some_sequences, tiny_module
from tether.config.run import LoraSettings, ModelSettings, SamplingSettings
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model
from tether.models.scoring import score
from tether.rollout.hf import HFEngine

KINDS = ("gpt2", "llama", "opt", "t5", "bart")


def loaded(folder: Path, kind: str, **options) -> LanguageModel:  # type: ignore[no-untyped-def]
    tiny_module(kind, dropout=0.1, sharp=3.0).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return load_language_model(ModelSettings(path=str(folder), device="cpu", **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora", (None, LoraSettings(rank=4)))
def test_two_scorings_in_train_mode_are_identical(tmp_path: Path, kind: str, lora) -> None:  # type: ignore[no-untyped-def]
    lm = loaded(tmp_path, kind, lora=lora)
    s = some_sequences(lm)
    lm.module.train()
    with torch.no_grad():
        assert torch.equal(score(lm, s).logprobs, score(lm, s).logprobs)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_that_is_asked_for_acts_in_the_update_alone(tmp_path: Path, kind: str) -> None:
    lm = loaded(tmp_path, kind, dropout=True)
    s = some_sequences(lm)
    with torch.no_grad():
        assert torch.equal(score(lm, s).logprobs, score(lm, s).logprobs)
        with lm.updating():
            ratio = (score(lm, s).logprobs - score(lm, s).logprobs).exp()
    assert (ratio - 1).abs().max() > 0.01  # the fault is visible on this model
    twin = lm.twin()
    assert not twin.module.training


def test_the_mode_comes_back_from_a_failing_generation(tmp_path: Path) -> None:
    lm = loaded(tmp_path, "gpt2")
    lm.module.train()

    class Broken:
        def allow(self, logits, position):  # type: ignore[no-untyped-def]
            raise KeyError("mine")

    row = torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=2)
    with pytest.raises(KeyError, match="mine"):
        next(HFEngine().generate(lm, some_prompts(lm), row, row, sampling, (0,), [Broken()]))
    assert lm.module.training
