"""Model settings -> LanguageModel: hub id, folder, GGUF file or random weights; every mismatch of
model, tokenizer, dtype and device is one clear line before anything expensive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedConfig,
)

from tether.config.errors import UserError
from tether.config.nearest import nearest
from tether.config.run import ModelSettings, Source
from tether.distributed.seeds import seed_of
from tether.models import gguf_cache, lora
from tether.models.dropout import fact, rates_of, silence_config, silence_module
from tether.models.language_model import LanguageModel, core_of
from tether.models.tokenizing import stop_ids

NO_FP16 = frozenset({"t5", "mt5", "umt5", "longt5", "switch_transformers"})
"""Activations of these pass 65,504, the largest fp16 number (B36)."""
DRAW_NOTHING = frozenset({
    "gpt2", "opt", "gpt_neox", "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi",
    "t5", "mt5", "bart", "mbart", "marian", "pegasus",
})  # fmt: skip
"""Layers of these draw no random number but for dropout; a router of experts may (jitter, a second
expert by lot)."""


def load_language_model(
    settings: ModelSettings, *, seed: int = 0, stop: list[str] | tuple[str, ...] = ()
) -> LanguageModel:
    """The policy as settings say. `seed`: of random weights and of a new adapter. `stop`: further
    stop tokens as text (`sampling.stop`).

    `lm.facts` holds what was resolved (dtype, device, parameters, trainable) for the record.
    Raises UserError for anything the user can mend.
    """
    device = resolve_device(settings.device)
    dtype = resolve_dtype(settings.dtype, device)
    config = load_config(settings)
    if dtype == torch.float16 and config.model_type in NO_FP16:
        raise UserError(
            f"model.dtype = float16: {config.model_type} activations overflow fp16; "
            "use bfloat16 or float32"
        )
    rates = rates_of(config)
    if not settings.dropout:
        silence_config(config)
    tokenizer = load_tokenizer(settings)
    module = _load_module(settings, config, dtype, seed).to(device)
    check_vocabulary(tokenizer, module)
    if settings.adapter is not None:
        module = lora.merge_folder(module, settings.adapter)
    if settings.lora is not None:
        module = lora.wrap(module, settings.lora, seed_of(seed, "lora"))
    if not settings.dropout:
        silence_module(module)
    if settings.gradient_checkpointing:
        recompute_activations(
            core_of(module), random=settings.dropout or config.model_type not in DRAW_NOTHING
        )
    seq2seq = bool(getattr(config, "is_encoder_decoder", False))
    tokenizer.padding_side = "right" if seq2seq else "left"
    stops = dict.fromkeys((int(tokenizer.eos_token_id), *stop_ids(tokenizer, stop)))
    lm = LanguageModel(module, tokenizer, tuple(stops), pad_id(tokenizer))
    lm.dropout = settings.dropout
    lm.compile, lm.capture = settings.compile, settings.capture
    lm.facts = _facts(lm, settings, dtype) | fact(rates)
    return lm


def recompute_activations(core: Any, random: bool = True) -> None:
    """Recompute activations in the backward pass (the verb was renamed within transformers 5).

    random: layers draw numbers (dropout), so a second pass must draw the same. Where they draw none
    the state of the generators is not read, for which every layer would wait for the device.
    """
    enable = getattr(core, "activation_checkpointing_enable", core.gradient_checkpointing_enable)
    enable({"use_reentrant": False, "preserve_rng_state": random})


def _facts(lm: LanguageModel, settings: ModelSettings, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "path": settings.path,
        "gguf_file": settings.gguf_file,
        "dtype": str(dtype).removeprefix("torch."),
        "device": str(lm.device),
        "model_type": lm.config.model_type,
        "parameters": sum(p.numel() for p in lm.module.parameters()),
        "trainable": sum(p.numel() for p in lm.module.parameters() if p.requires_grad),
        "stops": list(lm.stops),
        "pad": lm.pad,
        "max_positions": lm.max_positions,
    } | ({"encoder_positions": lm.encoder_positions} if lm.seq2seq else {})


def resolve_device(name: str) -> torch.device:
    """auto = the first accelerator, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as e:
        raise UserError(f"model.device = {name!r} is not a device; write auto, cpu or cuda") from e
    if device.type == "meta":
        raise UserError("model.device = 'meta' holds no numbers; use auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"model.device = {name!r}: torch sees no CUDA device here; use auto or cpu")
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """auto = bfloat16 where the device computes in it, else float32 (CPUs: float32)."""
    if name == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if fast else torch.float32
    return {
        "bfloat16": torch.bfloat16,
        "float32": torch.float32,
        "float16": torch.float16,
    }[name]


def _where(settings: ModelSettings) -> dict[str, Any]:
    out: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
    if settings.revision is not None:
        out["revision"] = settings.revision
    if settings.gguf_file is not None:
        out["gguf_file"] = settings.gguf_file
    return out


def tokenizer_place(settings: ModelSettings) -> dict[str, Any]:
    """What transformers is told beside a tokenizer's path; revision and GGUF file are the model's,
    and a tokenizer of its own has neither."""
    where = _where(settings)
    if settings.tokenizer is not None:
        where.pop("gguf_file", None)
        where.pop("revision", None)
    return where


UNREADABLE = (OSError, ValueError, ImportError, KeyError, SafetensorError)
"""What the readers of a model's files raise."""


def cannot_load(what: str, path: str, error: Exception) -> UserError:
    """One line for the many ways in which a model cannot be read."""
    folder = Path(path).expanduser()
    if path.startswith((".", "/", "~")) and not folder.exists():
        near = None
        if folder.parent.is_dir():
            near = nearest(folder.name, [p.name for p in folder.parent.iterdir()])
        hint = f"; did you mean {str(folder.parent / near)!r}?" if near else ""
        return UserError(f"{what}: there is no folder {path!r}{hint}")
    first = next((x for x in str(error).splitlines() if x.strip()), type(error).__name__)
    return UserError(f"{what}: cannot load {path!r}: {first.strip()}")


def load_config(settings: ModelSettings) -> PreTrainedConfig:
    """The model's configuration. Raises UserError where there is none."""
    if not settings.path:
        raise UserError("model.path is empty: give a hub id or a folder (--model X)")
    config: PreTrainedConfig = gguf_cache.config(
        settings, lambda: _read_config(settings.path, **_where(settings)), _read_config
    )
    return config


def _read_config(path: str, **where: Any) -> Any:
    try:
        return AutoConfig.from_pretrained(path, **where)
    except (OSError, ValueError, ImportError, KeyError) as e:
        raise cannot_load("model.path", path, e) from e


def load_tokenizer(settings: ModelSettings) -> Any:
    """The tokenizer of `settings.tokenizer`, else of the model. It must know EOS; a missing pad
    is answered by EOS with masks, and the embedding is never resized (B02)."""
    path = settings.tokenizer or settings.path
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **tokenizer_place(settings))
    except (OSError, ValueError, ImportError, KeyError, TypeError) as e:
        raise cannot_load("model.tokenizer", path, e) from e
    check_eos(tokenizer, path)
    check_reads(tokenizer, path)
    return tokenizer


def check_eos(tokenizer: Any, path: str) -> None:
    """Raises UserError for a tokenizer that cannot end a text."""
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"model.tokenizer: the tokenizer of {path!r} has no EOS token, so no completion could "
            "end; set eos_token in its tokenizer_config.json or give another tokenizer"
        )


def check_reads(tokenizer: Any, path: str) -> None:
    """Raises UserError for a tokenizer that turns text into nothing: what transformers makes of a
    folder without tokenizer files."""
    ids = set(tokenizer("a line of text", add_special_tokens=False)["input_ids"])
    if ids <= {tokenizer.unk_token_id}:
        raise UserError(
            f"model.tokenizer: the tokenizer of {path!r} reads no word of a plain text (its files"
            " are missing or empty); give one with model.tokenizer"
        )


def pad_id(tokenizer: Any) -> int:
    """The pad id, or EOS where the tokenizer has none."""
    pad = tokenizer.pad_token_id
    return int(tokenizer.eos_token_id if pad is None else pad)


def check_vocabulary(tokenizer: Any, module: nn.Module) -> None:
    """Raises UserError where the tokenizer can produce an id that has no embedding."""
    rows = int(core_of(module).get_input_embeddings().weight.shape[0])
    if len(tokenizer) > rows:
        raise UserError(
            f"the tokenizer knows {len(tokenizer)} tokens, the model only {rows}: they do not "
            "belong together; give the model's own tokenizer (model.tokenizer)"
        )


def _load_module(
    settings: ModelSettings, config: PreTrainedConfig, dtype: torch.dtype, seed: int
) -> nn.Module:
    seq2seq = bool(getattr(config, "is_encoder_decoder", False))
    auto = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
    if settings.random_weights:
        with torch.random.fork_rng():
            torch.manual_seed(seed_of(seed, "weights"))
            return auto.from_config(
                config, dtype=dtype, trust_remote_code=settings.trust_remote_code
            )

    def convert() -> nn.Module:
        more = _where(settings) | _unpacked(settings)
        module = _read_module(auto, settings.path, config, dtype, **more)
        if settings.gguf_file is not None:
            _forget_gguf(module)
        return module

    module: nn.Module = gguf_cache.module(
        settings, dtype, convert, lambda folder: _read_module(auto, folder, config, dtype)
    )
    never_written(module)
    freeze_tables(module)
    return module


def _read_module(
    auto: Any, path: str, config: PreTrainedConfig, dtype: torch.dtype, **where: Any
) -> nn.Module:
    """`from_pretrained` of an auto class; UserError where files or tensors are missing."""
    try:
        module, report = auto.from_pretrained(
            path, config=config, dtype=dtype, output_loading_info=True, **where
        )
    except UNREADABLE as e:
        raise cannot_load("model.path", path, e) from e
    if report["missing_keys"]:
        raise UserError(
            f"model.path: {path!r} lacks {len(report['missing_keys'])} tensors of its own "
            f"architecture ({sorted(report['missing_keys'])[0]!r}...), which would be random; mend "
            "the files, or set model.random_weights for a model without training"
        )
    out: nn.Module = module
    return out


def freeze_tables(module: nn.Module) -> None:
    """Sinusoidal positions (Marian, Pegasus) are computed, not learned, and Marian's are in no file
    that is saved; yet they come out of `from_pretrained` as weights that train."""
    for m in module.modules():
        if isinstance(m, nn.Embedding) and "Sinusoidal" in type(m).__name__:
            m.weight.requires_grad_(False)


def never_written(module: Any) -> None:
    """Marian's pad is also the decoder's start; converted models give it a row of zeros, so its
    logit is 0 whatever was read, and rely on `bad_words_ids` in their generation settings to keep
    it out of every text. No such setting acts here (what samples is what is scored): the same is
    said in the model's own bias on the logits, which scoring, exact KL and the export all see.
    """
    habits = getattr(module, "generation_config", None)
    words = getattr(habits, "bad_words_ids", None) or []
    bias = dict(module.named_buffers()).get("final_logits_bias")
    single = [w[0] for w in words if len(w) == 1]
    if bias is not None and single:
        bias[:, single] = -1e4  # finite: 0 * -inf would be NaN in KL and entropy


def _unpacked(settings: ModelSettings) -> dict[str, Any]:
    """transformers 5.24 keeps a GGUF file's weights in quantised blocks unless it is told to
    unpack them; 5.17 always unpacks and knows no such configuration."""
    config = getattr(transformers, "GgufConfig", None)
    if settings.gguf_file is None or config is None:
        return {}
    return {"quantization_config": config(dequantize=True)}


def _forget_gguf(module: Any) -> None:
    """The weights of a GGUF file are plain tensors once they are read, but transformers goes on
    calling the model quantised and refuses to save it."""
    module.hf_quantizer = None
    for owner, name in ((module, "quantization_method"), (module.config, "quantization_config")):
        if name in vars(owner):
            delattr(owner, name)
    if "is_quantized" in vars(module):
        module.is_quantized = False


def same_words(path: str, lm: LanguageModel, **where: Any) -> None:
    """Raises UserError where the other model's tokenizer gives another meaning to the policy's ids
    (a KL between the two would be a number without one). Weights without a tokenizer pass.
    where: what else says where it is (`revision`)."""
    try:
        theirs = AutoTokenizer.from_pretrained(path, **where).get_vocab()
    except (OSError, ValueError, ImportError, KeyError, TypeError):
        return
    mine = lm.tokenizer.get_vocab()
    odd = [w for w, i in theirs.items() if mine.get(w, i) != i]
    if odd:
        raise UserError(
            f"{path!r} has another tokenizer than the policy: {odd[0]!r} is {theirs[odd[0]]} there "
            f"and {mine[odd[0]]} here ({len(odd)} tokens differ)"
        )


def load_beside(source: Source, lm: LanguageModel) -> LanguageModel:
    """Another model with the policy's dtype, device, tokenizer and stops: a foreign reference.
    Nothing of it trains unless its weights are taken over.

    source: folder or hub id; or a mapping of `OF_REFERENCE`, whose `adapter` is merged into the
    weights. Raises UserError.
    """
    settings = ModelSettings(**({"path": source} if isinstance(source, str) else source))
    config = load_config(settings)
    rates = silence_config(config)
    if bool(getattr(config, "is_encoder_decoder", False)) != lm.seq2seq:
        raise UserError(
            f"{settings.path!r} and the policy are not of one kind (decoder-only / encoder-decoder)"
        )
    same_words(settings.path, lm, **_where(replace(settings, gguf_file=None)))
    module = _load_module(settings, config, lm.dtype, 0).to(lm.device)
    if settings.adapter is not None:
        module = lora.merge_folder(module, settings.adapter)
    silence_module(module)
    out = LanguageModel(module, lm.tokenizer, lm.stops, lm.pad)
    out.facts = fact(rates)
    return out
