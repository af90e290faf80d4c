"""What a run will hold in memory, in bytes, from settings and the model's configuration alone.

Counts what grows with the model and the batch; the allocator's slack and kernels' workspaces come
on top (about a tenth).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tether.config.parts import Place
from tether.config.run import ModelSettings, RunSettings

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that memory depends on."""

    parameters: int
    linear: int
    """Sum of (in + out) over linear layers: LoRA parameters per rank."""
    vocabulary: int
    hidden: int
    layers: int
    kv_width: int
    """Keys and values a token and layer: key-value heads x head size."""


@dataclass(frozen=True)
class Need:
    """One line of the plan."""

    what: str
    bytes: int
    where: str
    """device | host"""
    why: str


def shape_of(model: ModelSettings) -> Shape:
    """Of a model's configuration: built on the meta device, so no weight is loaded."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    from tether.models.loading import load_config

    config = load_config(model)
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with torch.device("meta"):
        module = auto.from_config(config)  # type: ignore[no-untyped-call]
    text = config.get_text_config(decoder=True)
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    head = getattr(text, "head_dim", None) or text.hidden_size // heads
    linear = sum(
        sum(m.weight.shape)  # GPT-2's Conv1D is a linear layer whose weight lies the other way
        for m in module.modules()
        if (isinstance(m, torch.nn.Linear) or type(m).__name__ == "Conv1D")
        and m is not module.get_output_embeddings()
    )
    return Shape(
        parameters=sum(p.numel() for p in module.parameters()),
        linear=linear,
        vocabulary=text.vocab_size,
        hidden=text.hidden_size,
        layers=text.num_hidden_layers,
        kv_width=kv_heads * head,
    )


def plan(settings: RunSettings, shape: Shape, dtype: str) -> list[Need]:
    """Lines in the order in which a run makes them. Tethers are constructed to ask what they
    keep."""
    lora = settings.model.lora
    trained = shape.parameters if lora is None else lora.rank * shape.linear
    return [
        *_weights(settings, shape, trained, BYTES[dtype], _width(settings, dtype)),
        *_sets(settings, trained, _width(settings, dtype)),
        *_batches(settings, shape, BYTES[dtype]),
    ]


def _weights(s: RunSettings, shape: Shape, trained: int, width: int, own: int) -> Iterator[Need]:
    lora = s.model.lora
    if width == 4 and lora is None:
        yield Need("weights", 4 * trained, "device", "fp32, trained and run alike")
    else:
        yield Need("working weights", width * shape.parameters, "device", "what the model runs")
        if lora is not None and own < 4:
            yield Need("working adapter", own * trained, "device", "what the model runs")
        yield Need("masters", 4 * trained, "device", "fp32, what the optimizer moves")
    yield Need("gradients", 4 * trained, "device", "fp32, summed over microbatches")
    if s.model.capture:
        yield Need("recorded gradients", own * trained, "device", "a recorded shape, each as much")
    yield Need("Adam moments", 8 * trained, "device", "two, fp32")
    if s.algorithm.get("kind") == "supervised":
        return
    if s.critic.kind == "separate":
        critic = trained + shape.hidden  # with adapters: one of its own on the same base
        each = 16 if own == 4 else 16 + own
        each += own if s.model.capture else 0
        what = "a trunk of its own" if lora is None else "an adapter of its own"
        yield Need("critic", each * critic, "device", f"{what}, trained")
        if lora is not None and s.critic.start != "policy":
            base = width * shape.parameters
            yield Need("critic's base", base, "device", "the reward model that it starts from")
    elif s.critic.kind == "frozen":
        stays = width * shape.parameters if lora is None else own * trained
        yield Need("critic", stays, "device", "the initial trunk, frozen")


def _width(s: RunSettings, dtype: str) -> int:
    """Bytes of a number that trains, as the model computes with it."""
    lora = s.model.lora
    fp32 = lora is not None and (lora.dtype == "float32" or dtype == "float16")
    return 4 if fp32 else BYTES[dtype]


def _sets(s: RunSettings, trained: int, own: int) -> Iterator[Need]:
    yield Need("initial copy", 4 * trained, "device", "fp32, never moved")
    yield Need("initial, runnable", own * trained, "device", "exact KL at every evaluation")
    for name, part in s.tethers.items():
        for kept in kept_sets(part, f"tethers.{name}"):
            yield Need(f"{kept} copy", 4 * trained, "device", f"fp32, moved by {name}")


def kept_sets(part: dict[str, object], where: str) -> tuple[str, ...]:
    """Weight sets that one tether keeps."""
    from tether.config.parts import build

    return tuple(build("tether", part, str(Place(where, ""))).keeps())


def _batches(s: RunSettings, shape: Shape, width: int) -> Iterator[Need]:
    prompt = s.data.max_prompt_tokens or s.data.prompt_tokens
    length = prompt + s.sampling.max_new_tokens
    rows = min(s.batch.microbatch, s.batch.prompts * int(s.algorithm.get("group_size", 1)))
    logits = rows * s.sampling.max_new_tokens * shape.vocabulary * (width + 3 * 4)
    why = (
        f"{rows} x {s.sampling.max_new_tokens} x {shape.vocabulary}, with log-softmax and gradient"
    )
    yield Need("logits of a microbatch", logits, "device", why)
    if not s.model.gradient_checkpointing:
        kept = rows * length * shape.layers * shape.hidden * 34 * width // 2
        yield Need("activations", kept, "device", f"{rows} x {length} tokens, about 17 a layer")
    chunk = min(s.sampling.chunk, s.batch.prompts * int(s.algorithm.get("group_size", 1)))
    if s.engine.get("kind") == "graph":
        from tether.rollout.graph import WIDTH, rounded

        rows = rounded(chunk)
        length = -(-prompt // WIDTH) * WIDTH + s.sampling.max_new_tokens
        kept = rows * length * shape.layers * 2 * shape.kv_width * width
        why = f"{rows} x {length} tokens, kept between rollouts, once for each shape of batch"
        yield Need("KV cache", kept, "device", why)
        logits = 2 * rows * shape.vocabulary * 4
        yield Need("logits of a step", logits, "device", f"fp32, {rows} x {shape.vocabulary}, two")
        return
    cache = chunk * length * shape.layers * 2 * shape.kv_width * width
    yield Need("KV cache", cache, "device", f"{chunk} sequences of {length} tokens")


def size(count: int) -> str:
    """Bytes for people: 1.2 GB."""
    value, unit = float(count), "B"
    for bigger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, bigger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
