"""Adapters are weight sets; exports load without us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import Linear
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from tests.models_for_tests import byte_tokenizer, some_sequences, take_gradients, tiny_module
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.models.critic import Critic
from tether.models.export import export
from tether.models.language_model import LanguageModel
from tether.models.loading import load_beside, load_language_model
from tether.models.lora import merged_copy
from tether.models.scoring import score_all
from tether.models.weight_sets import WeightSets
from tether.types import Move


def adapted(folder: Path, kind: str = "gpt2", **options) -> LanguageModel:  # type: ignore[no-untyped-def]
    if not folder.exists():
        tiny_module(kind, sharp=1.0 if kind == "t5" else 3.0).save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
    options = {"lora": LoraSettings(rank=4)} | options
    return load_language_model(ModelSettings(path=str(folder), device="cpu", **options), seed=1)


def train(lm: LanguageModel, sets: WeightSets, steps: int = 3) -> None:
    optimizer = torch.optim.Adam(sets.sets["policy"].values(), lr=1e-2)
    for _ in range(steps):
        lm.forward(some_sequences(lm))[0].float().square().mean().backward()
        take_gradients(sets)
        optimizer.step()
        optimizer.zero_grad()
        sets.publish("policy")


@pytest.mark.parametrize("kind", ("gpt2", "llama", "t5", "bart"))
def test_the_policy_set_is_a_and_b_alone(tmp_path: Path, kind: str) -> None:
    lm = adapted(tmp_path / "m", kind)
    sets = WeightSets(lm)
    names = list(sets.sets["policy"])
    assert names and all("lora_A" in n or "lora_B" in n for n in names)
    assert set(sets.sets["initial"]) == set(names)
    assert all((t == 0).all() == ("lora_B" in n) for n, t in sets.sets["policy"].items())
    assert not any("lm_head" in n for n in names)
    plain = load_language_model(ModelSettings(path=str(tmp_path / "m"), device="cpu"))
    s = some_sequences(lm)
    assert torch.equal(score_all(lm, s).logprobs, score_all(plain, s).logprobs)


def test_the_base_stays_and_is_watched(tmp_path: Path) -> None:
    lm = adapted(tmp_path / "m")
    sets = WeightSets(lm, Critic(lm))
    sets.check_base()
    train(lm, sets)
    sets.apply([Move("policy", "initial", 0.5)])
    sets.check_base()
    with torch.no_grad():
        lm.core.get_input_embeddings().weight.add_(1e-3)
    with pytest.raises(RuntimeError, match="frozen base of the adapter has changed"):
        sets.check_base()


def test_a_checkpoint_of_another_base_is_refused(tmp_path: Path) -> None:
    sets = WeightSets(adapted(tmp_path / "m"))
    lm = adapted(tmp_path / "m")
    with torch.no_grad():
        lm.core.get_input_embeddings().weight.add_(1e-3)
    with pytest.raises(UserError, match="adapter on another base"):
        WeightSets(lm).load_state_dict(sets.state_dict())


def test_adapter_copies_share_the_base(tmp_path: Path) -> None:
    lm = adapted(tmp_path / "m")
    sets = WeightSets(lm, Critic(lm))
    sets.declare("ema", resident=True)
    base = lm.core.get_input_embeddings().weight
    assert sets.residents["ema"].core.get_input_embeddings().weight is base
    assert all("lora" in n or "head" in n for n in sets.sets["critic"])


@pytest.mark.parametrize("dtype", ("model", "float32"))
@pytest.mark.parametrize("kind", ("gpt2", "llama"))
def test_a_bf16_base_trains_fp32_masters(tmp_path: Path, kind: str, dtype: str) -> None:
    lora = LoraSettings(rank=4, dtype=dtype)  # type: ignore[arg-type]
    lm = adapted(tmp_path / "m", kind, dtype="bfloat16", lora=lora)
    sets = WeightSets(lm)
    assert lm.dtype == torch.bfloat16
    policy, working = sets.sets["policy"], sets.working["policy"]
    assert all(t.dtype == torch.float32 for t in policy.values())
    computes = torch.bfloat16 if dtype == "model" else torch.float32
    assert all(t.dtype == computes for t in working.values())
    before = {n: t.detach().clone() for n, t in policy.items()}
    train(lm, sets)
    assert all(not torch.equal(t, before[n]) for n, t in policy.items())
    after = {n: t.detach().clone() for n, t in working.items()}
    assert all(torch.equal(after[n], t.to(computes)) for n, t in policy.items())
    with sets.swapped_in("initial"):
        assert all(torch.equal(t, before[n].to(computes)) for n, t in working.items())
    assert all(torch.equal(t, after[n]) for n, t in working.items())


def test_adapters_of_float16_are_fp32(tmp_path: Path) -> None:
    lm = adapted(tmp_path / "m", "llama", dtype="float16")
    assert lm.dtype == torch.float16
    assert {p.dtype for p in lm.module.parameters() if p.requires_grad} == {torch.float32}


def test_steps_too_small_for_bf16_add_up(tmp_path: Path) -> None:
    """A weight of 1 moves by 1e-4 a step: bf16 alone, with steps of 2 ** -8 there, never would."""
    lm = adapted(tmp_path / "m", "llama", dtype="bfloat16")
    sets = WeightSets(lm)
    name, master = next(iter(sets.sets["policy"].items()))
    with torch.no_grad():
        master.fill_(1.0)
    for _ in range(100):
        with torch.no_grad():
            master.add_(1e-4)
        sets.publish("policy")
    assert float(sets.working["policy"][name].detach().float().mean()) == pytest.approx(
        1.01, abs=2**-8
    )


def test_a_merge_multiplies_in_fp32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """base + scale B A in bf16: B A is of fp32 numbers, whatever the adapter's dtype."""
    given = []
    delta = Linear.get_delta_weight

    def seen(self: Any, name: str) -> Any:
        given.append(self.lora_A[name].weight.dtype)
        return delta(self, name)

    monkeypatch.setattr(Linear, "get_delta_weight", seen)
    lm = adapted(tmp_path / "m", "llama", dtype="bfloat16")
    train(lm, WeightSets(lm), steps=10)
    module: Any = lm.module
    layer = module.base_model.model.model.layers[0].self_attn.q_proj
    a, b = (m["default"].weight.detach().float() for m in (layer.lora_A, layer.lora_B))
    change = layer.scaling["default"] * (b @ a)
    merged: Any = merged_copy(lm.module)
    got = merged.model.layers[0].self_attn.q_proj.weight
    assert torch.equal(got, layer.base_layer.weight + change.bfloat16())
    assert given and set(given) == {torch.float32}  # a GPU would multiply in bf16
    assert layer.lora_A["default"].weight.dtype == torch.bfloat16  # the live one is as it was


@pytest.mark.parametrize("kind", ("gpt2", "llama", "t5", "bart"))
@pytest.mark.parametrize("lora", (None, LoraSettings(rank=4)))
def test_an_export_loads_in_transformers(tmp_path: Path, kind: str, lora: LoraSettings) -> None:
    lm = adapted(tmp_path / "m", kind, lora=lora)
    sets, s = WeightSets(lm), some_sequences(lm)
    train(lm, sets)
    live = score_all(lm, s).logprobs
    export(lm, sets, tmp_path / "out")
    assert torch.equal(score_all(lm, s).logprobs, live)  # the live model is as before
    auto = AutoModelForSeq2SeqLM if lm.seq2seq else AutoModelForCausalLM
    plain = auto.from_pretrained(tmp_path / "out")
    assert type(plain) is type(tiny_module(kind))
    got = score_all(LanguageModel(plain, None, lm.stops, lm.pad), s).logprobs
    torch.testing.assert_close(got, live, atol=1e-5, rtol=0)
    assert plain.generation_config.eos_token_id == lm.stops[0]
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert not (tmp_path / "out" / "adapter_config.json").exists()


def test_a_reference_is_the_model_with_its_adapter(tmp_path: Path) -> None:
    lm = adapted(tmp_path / "m")
    sets = WeightSets(lm)
    train(lm, sets)
    export(lm, sets, tmp_path / "adapter", merged=False)
    plain = adapted(tmp_path / "m", lora=None)
    path, adapter = str(tmp_path / "m"), str(tmp_path / "adapter")
    s = some_sequences(plain)
    wanted = score_all(adapted(tmp_path / "m", lora=None, adapter=adapter), s).logprobs
    found = load_beside({"path": path, "adapter": adapter}, plain)
    assert torch.equal(score_all(found, s).logprobs, wanted)
    bare = load_beside(path, plain)
    assert not torch.allclose(score_all(bare, s).logprobs, wanted)
    home = WeightSets(plain)
    home.declare("reference", source={"path": path, "adapter": adapter})
    for name, value in home.sets["reference"].items():
        assert torch.equal(value, dict(found.module.named_parameters())[name])


def test_an_adapter_goes_out_small_and_merges_back(tmp_path: Path) -> None:
    lm = adapted(tmp_path / "m")
    sets, s = WeightSets(lm), some_sequences(lm)
    train(lm, sets)
    export(lm, sets, tmp_path / "adapter", merged=False)
    base = json.loads((tmp_path / "adapter" / "base.json").read_text())
    assert base["path"] == str(tmp_path / "m") and base["fingerprint"] == sets.base_fingerprint()
    again = adapted(tmp_path / "m", lora=None, adapter=str(tmp_path / "adapter"))
    torch.testing.assert_close(
        score_all(again, s).logprobs, score_all(lm, s).logprobs, atol=1e-5, rtol=0
    )
    assert again.facts["trainable"] == again.facts["parameters"]


def test_exports_never_overwrite_silently(tmp_path: Path) -> None:
    lm = adapted(tmp_path / "m")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(UserError, match="exists and is not empty"):
        export(lm, None, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").exists()
    export(lm, None, tmp_path / "out", overwrite=True)
    assert not (tmp_path / "out" / "mine.txt").exists()
