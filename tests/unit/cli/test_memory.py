"""The memory plan by hand: 1,000 parameters, 10 of them a row of the head."""

from dataclasses import replace

import pytest
from transformers import GPT2Config

from tether.cli.memory import Shape, plan, shape_of, size
from tether.config.compose import compose
from tether.config.run import ModelSettings

SHAPE = Shape(parameters=1000, linear=50, vocabulary=100, hidden=10, layers=2, kv_width=4)
WORDS = [
    "--batch.prompts",
    "8",
    "--batch.microbatch",
    "4",
    "--sampling.max_new_tokens",
    "3",
    "--data.prompt_tokens",
    "5",
    "--sampling.chunk",
    "6",
]


def needs(recipe: str, *words: str, dtype: str = "float32") -> dict[str, int]:
    return {
        n.what: n.bytes for n in plan(compose(recipe, overrides=[*WORDS, *words]), SHAPE, dtype)
    }


def test_full_training_in_fp32() -> None:
    assert needs("ppo") == {
        "weights": 4000,
        "gradients": 4000,
        "Adam moments": 8000,
        "critic": 16 * 1010,
        "initial copy": 4000,
        "initial, runnable": 4000,
        "logits of a microbatch": 4 * 3 * 100 * 16,
        "activations": 4 * 8 * 2 * 10 * 34 * 2,
        "KV cache": 6 * 8 * 2 * 2 * 4 * 4,
    }


def test_the_captured_engine_keeps_its_buffers_in_rounded_shapes() -> None:
    """6 rows stay 6 (3 * 2), a prompt of 5 tokens takes 16."""
    found = needs("ppo", "--engine.kind", "graph")
    assert found["KV cache"] == 6 * (16 + 3) * 2 * 2 * 4 * 4
    assert found["logits of a step"] == 2 * 6 * 100 * 4


def test_bf16_adds_working_weights() -> None:
    found = needs("ppo", dtype="bfloat16")
    assert found["working weights"] == 2000 and found["masters"] == 4000
    assert found["critic"] == 18 * 1010 and found["KV cache"] == 6 * 8 * 2 * 2 * 4 * 2


def test_lora_trains_rank_times_linear() -> None:
    found = needs("ppo", "--model.lora.rank", "2")
    assert found["working weights"] == 4000 and found["masters"] == 400
    assert found["Adam moments"] == 800 and found["initial copy"] == 400


def test_a_critic_beside_an_adapter_is_one() -> None:
    """100 numbers of an adapter and a head of 10; not a second trunk of 1,000."""
    words = ["--model.lora.rank", "2"]
    assert needs("ppo", *words)["critic"] == 16 * 110
    bf16 = needs("ppo", *words, dtype="bfloat16")
    assert bf16["critic"] == 18 * 110 and bf16["working adapter"] == 2 * 100
    fp32 = needs("ppo", *words, "--model.lora.dtype", "float32", dtype="bfloat16")
    assert fp32["critic"] == 16 * 110 and "working adapter" not in fp32
    fp16 = needs("ppo", *words, dtype="float16")  # adapters are fp32 there
    assert fp16["critic"] == 16 * 110 and "working adapter" not in fp16


def test_what_a_critic_beside_an_adapter_stands_on() -> None:
    words = ["--model.lora.rank", "2"]
    assert "critic's base" not in needs("ppo", *words)
    assert needs("ppo", *words, "--critic.start", "/x")["critic's base"] == 4000
    assert "critic's base" not in needs("ppo", "--critic.start", "/x")  # its own trunk
    assert needs("ppo", *words, "--critic.kind", "frozen")["critic"] == 400  # the base is shared


def test_recorded_passes_of_adapters() -> None:
    words = ["--model.lora.rank", "2", "--model.capture", "true"]
    fp32 = needs("ppo", *words, "--model.lora.dtype", "float32", dtype="bfloat16")
    assert fp32["recorded gradients"] == 400 and fp32["critic"] == 20 * 110
    bf16 = needs("ppo", *words, dtype="bfloat16")
    assert bf16["recorded gradients"] == 200 and bf16["critic"] == 20 * 110
    assert bf16["initial, runnable"] == 200 and fp32["initial, runnable"] == 400


def test_linear_layers_of_gpt2_count() -> None:
    """Of each of two layers 16 + 48, 16 + 16, 16 + 64 and 64 + 16; the head is none."""
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=300, n_positions=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tether.models.loading.load_config", lambda model: config)
        assert shape_of(ModelSettings(path="x")).linear == 2 * (64 + 32 + 80 + 80)


def test_tethers_say_what_they_keep() -> None:
    assert needs("elastic-reset")["ema copy"] == 4000
    assert "ema copy" not in needs("ppo-kl")


@pytest.mark.parametrize(("kind", "critic"), [("shared", None), ("frozen", 4000)])
def test_critics(kind: str, critic: int | None) -> None:
    assert needs("ppo", "--critic.kind", kind).get("critic") == critic


def test_supervised_has_no_critic() -> None:
    assert "critic" not in needs("supervised")


def test_checkpointing_keeps_no_activations() -> None:
    assert "activations" not in needs("ppo", "--model.gradient_checkpointing")


def test_shape_of_a_model(tmp_path) -> None:
    from transformers import GPT2Config

    from tether.cli.memory import shape_of

    GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=3, n_head=2).save_pretrained(
        tmp_path
    )
    s = compose("ppo", overrides=["--model", str(tmp_path)])
    shape = shape_of(s.model)
    # embeddings 20*8 + 16*8; a layer 12*8*8 + 13*8; final norm 16
    assert shape.parameters == 288 + 3 * (768 + 104) + 16
    assert replace(shape, linear=0) == Shape(shape.parameters, 0, 20, 8, 3, 8)


def test_sizes_for_people() -> None:
    assert [size(n) for n in (999, 1000, 1_234_567, 2 * 10**9)] == [
        "999 B",
        "1.0 kB",
        "1.2 MB",
        "2.0 GB",
    ]
