"""B21: an adapter applied twice, not at all, or to an unsaved base."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2LMHeadModel

from tests.models_for_tests import byte_tokenizer, some_sequences, tiny_module
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.models.export import export
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model
from tether.models.weight_sets import WeightSets


def trained(folder: Path) -> tuple[LanguageModel, WeightSets]:
    tiny_module("gpt2", sharp=3.0).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    settings = ModelSettings(path=str(folder), device="cpu", lora=LoraSettings(rank=4))
    lm = load_language_model(settings)
    sets = WeightSets(lm)
    optimizer = torch.optim.Adam(sets.sets["policy"].values(), lr=1e-2)
    for _ in range(3):
        lm.forward(some_sequences(lm))[0].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return lm, sets


def test_a_merged_export_in_the_plain_class_is_the_live_model(tmp_path: Path) -> None:
    lm, sets = trained(tmp_path / "base")
    export(lm, sets, tmp_path / "out")
    s = some_sequences(lm)
    plain = GPT2LMHeadModel.from_pretrained(tmp_path / "out")
    base = GPT2LMHeadModel.from_pretrained(tmp_path / "base")
    with torch.no_grad():
        live, got, start = (
            LanguageModel(m, None, lm.stops, lm.pad).forward(s)[0] for m in (lm.module, plain, base)
        )
    assert (live - got).abs().max() < 1e-5
    assert (live - start).abs().max() > 1e-3
    sets.check_base()


def test_the_export_is_compared_and_withdrawn(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    lm, sets = trained(tmp_path / "base")
    from tether.models import lora

    monkeypatch.setattr(
        lora, "merged_copy", lambda m: copy.deepcopy(m).unload()
    )  # loses the adapter
    with pytest.raises(RuntimeError, match="differs from the live one by"):
        export(lm, sets, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_adapter_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    lm, sets = trained(tmp_path / "base")
    export(lm, sets, tmp_path / "adapter", merged=False)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    renamed = {f"wrapper.{k}": t.clone() for k, t in load_file(file).items()}
    save_file(renamed, file)
    settings = ModelSettings(
        path=str(tmp_path / "base"), device="cpu", adapter=str(tmp_path / "adapter")
    )
    with pytest.raises(UserError, match=r"0 of .* tensors .* match this model"):
        load_language_model(settings)
