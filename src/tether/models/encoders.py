"""Encoders (BERT, RoBERTa, DistilBERT, DeBERTa-v2) as backbones of classifiers and reward models.

They read a text in both directions and write none, so they are no policies. transformers' own class
for sequence classification pools and scores; everything that a language model's checkpoint does not
hold is drawn anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging

from tether.config.errors import UserError
from tether.config.run import ModelSettings
from tether.distributed.seeds import seed_of
from tether.models.dropout import silence_config
from tether.models.loading import UNREADABLE, cannot_load, resolve_device, resolve_dtype


def is_encoder(config: Any) -> bool:
    """Whether a configuration is of a model that reads both ways and writes nothing: one of
    transformers' masked language models that was not saved as a causal one."""
    saved = " ".join(getattr(config, "architectures", None) or [])
    writes = getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False)
    masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return masked and not writes and "CausalLM" not in saved and "LMHead" not in saved


def heads(module: Any) -> list[tuple[Any, str]]:
    """What a classifier has besides a language model's trunk, as (owner, name): `classifier`, of
    some models with a layer before it, and the trunk's pooler, which masked language models lack.
    """
    found = [(module, n) for n, _ in module.named_children() if n != module.base_model_prefix]
    found += [
        (module.base_model, n) for n, _ in module.base_model.named_children() if n == "pooler"
    ]
    return [(m, n) for m, n in found if any(True for _ in getattr(m, n).parameters())]


def load_encoder(settings: ModelSettings, config: Any, seed: int) -> nn.Module:
    """An encoder with a new head.

    Args:
        config: with `num_labels`.
        seed: of the run; it decides the head, the pooler where the checkpoint has none, and with
            `random_weights` the trunk.
    Raises:
        UserError: no such model, no class for classification, or weights that are missing or of
            another shape.
    """
    for name in ("gguf_file", "adapter"):
        if getattr(settings, name) is not None:
            raise UserError(f"model.{name} is for language models; {settings.path!r} is an encoder")
    device = resolve_device(settings.device)
    silence_config(config)
    dtype = resolve_dtype(settings.dtype, device)
    module, missing, reshaped = _module(settings, config, dtype, seed_of(seed, "weights"))
    own = module.base_model_prefix + "."
    lacking = [n for n in missing if n.startswith(own)]
    foreign = [n for n in lacking if not n.startswith(own + "pooler.")]
    if foreign:
        raise UserError(f"model.path: {settings.path!r} lacks {foreign[0]!r}: other weights")
    for name, there, wanted in reshaped:
        if name.startswith(own):
            raise UserError(
                f"model.path: {settings.path!r} has {name!r} of shape {list(there)}, where its "
                f"config.json says {list(wanted)}: other weights"
            )
    new = [n for n, _ in module.named_parameters() if n in lacking or not n.startswith(own)]
    _draw(module, new, seed_of(seed, "classifier_head"))
    out: nn.Module = module.to(device)
    return out


Shape = tuple[int, ...]


def _module(
    settings: ModelSettings, config: Any, dtype: torch.dtype, seed: int
) -> tuple[Any, list[str], list[tuple[str, Shape, Shape]]]:
    """(model, names that the checkpoint lacks, (name, its shape, the model's) of other shapes)."""
    auto, trust = AutoModelForSequenceClassification, settings.trust_remote_code
    with torch.random.fork_rng(), _quiet():
        torch.manual_seed(seed)  # of a checkpoint, what it lacks is drawn again after
        try:
            if settings.random_weights:
                return auto.from_config(config, dtype=dtype, trust_remote_code=trust), [], []
            module, report = auto.from_pretrained(
                settings.path,
                config=config,
                dtype=dtype,
                revision=settings.revision or "main",
                trust_remote_code=trust,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # of the head, which is a new one
            )
        except UNREADABLE as e:
            raise cannot_load("model.path", settings.path, e) from e
    return module, sorted(report["missing_keys"]), sorted(report["mismatched_keys"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' table of what is new, which is meant to be."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _draw(module: nn.Module, names: list[str], seed: int) -> None:
    """Matrices from a normal distribution of deviation .02, scales 1, biases 0."""
    generator = torch.Generator().manual_seed(seed)
    live = dict(module.named_parameters())
    with torch.no_grad():
        for name in names:
            p = live[name]
            if p.dim() > 1:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.02)
            else:
                p.fill_(0.0 if name.endswith("bias") else 1.0)
