"""Files of a classifier that were cut or changed: one line that names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models_for_tests import byte_tokenizer, tiny_module
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.models.classifier_loading import build_classifier, load_classifier, save_classifier


def saved(folder: Path, lora: LoraSettings | None = None) -> Path:
    tiny_module("gpt2").save_pretrained(folder / "b")
    byte_tokenizer().save_pretrained(folder / "b")
    settings = ModelSettings(path=str(folder / "b"), device="cpu", lora=lora)
    save_classifier(build_classifier(settings, ["neg", "pos"]), folder / "c")
    load_classifier(str(folder / "c"), device="cpu")
    return folder / "c"


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=2)])
def test_weights_that_were_cut(tmp_path: Path, lora: LoraSettings | None) -> None:
    folder = saved(tmp_path, lora)
    (file,) = folder.glob("*.safetensors")
    whole = file.read_bytes()
    for size in (0, 5, len(whole) // 2):
        file.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"^classifier: cannot load") as e:
            load_classifier(str(folder), device="cpu")
        assert str(folder) in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize("text", ["{", "[]", "", '{"backbone": {"path": "b", "lora": {}}}'])
def test_a_note_that_was_changed(tmp_path: Path, text: str) -> None:
    folder = saved(tmp_path, LoraSettings(rank=2))
    (folder / "classifier.json").write_text(text)
    with pytest.raises(UserError, match=r"classifier\.json is damaged .*: train the"):
        load_classifier(str(folder), device="cpu")


def test_an_adapter_that_is_not_there(tmp_path: Path) -> None:
    folder = saved(tmp_path, LoraSettings(rank=2))
    assert "backbone" in json.loads((folder / "classifier.json").read_text())
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match=r"classifier: cannot load"):
        load_classifier(str(folder), device="cpu")
