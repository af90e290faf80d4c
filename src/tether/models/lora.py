"""Adapters by peft: wrap, merge a folder, merge for export. Nothing else in the code knows LoRA: a
weight set of an adapted model is simply its adapter tensors (they are what trains).

Low-rank adaptation: W' = W + alpha / rank * B A (Hu et al. 2021, arXiv 2106.09685).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from tether.config.errors import UserError
from tether.config.run import LoraSettings
from tether.models.language_model import core_of


def wrap(module: Any, settings: LoraSettings, seed: int, task: str | None = "auto") -> nn.Module:
    """A peft model whose only trainable tensors are A and B, in the base's dtype or in fp32 as
    `settings.dtype` says; in fp32 beside float16, where their gradients would be rounded to zero. B
    is zero, A is seeded.

    The base's own parameters stop training. Raises UserError where no module matches.
    """
    from peft import LoraConfig, get_peft_model

    from tether.models.adapted_linear import adopt

    seq2seq = bool(getattr(module.config, "is_encoder_decoder", False))
    if task == "auto":
        task = "SEQ_2_SEQ_LM" if seq2seq else "CAUSAL_LM"
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # peft divides it, floats are fine
        target_modules=settings.targets,
        lora_dropout=0.0,
        bias="none",
        task_type=task,
        fan_in_fan_out=_conv1d(module),
    )
    with torch.random.fork_rng(devices=_cuda(module)), _old_name():
        torch.manual_seed(seed)
        try:
            adapted = get_peft_model(
                module, config, autocast_adapter_dtype=in_fp32(settings, module.dtype)
            )
        except ValueError as e:
            raise UserError(f"model.lora.targets: {e}") from e
    adopt(adapted)
    return adapted


def in_fp32(settings: LoraSettings, base: torch.dtype) -> bool:
    """Whether an adapter beside such weights computes in fp32."""
    return settings.dtype == "float32" or base == torch.float16


@contextmanager
def _old_name() -> Iterator[None]:
    """Every peft model that is made asks transformers by a name which transformers has deprecated
    (peft 0.21, transformers 5.24): nobody here can mend it. No other warning is hidden."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        yield


def attach(module: Any, folder: Any) -> Any:
    """A peft model of `module` with the adapter in a folder."""
    from peft import PeftModel

    with _old_name():
        return PeftModel.from_pretrained(module, folder)


def _conv1d(module: nn.Module) -> bool:
    return any(type(m).__name__ == "Conv1D" for m in module.modules())


def _cuda(module: nn.Module) -> list[torch.device]:
    device = next(module.parameters()).device
    return [device] if device.type == "cuda" else []


def is_adapted(module: nn.Module) -> bool:
    """True for a peft model."""
    return hasattr(module, "get_base_model") and hasattr(module, "peft_config")


def merge_folder(module: Any, folder: str) -> nn.Module:
    """The plain model with a peft adapter folder merged into its weights.

    Raises UserError where the folder is no adapter, or no tensor of it finds a place (B21).
    """
    from peft.utils import get_peft_model_state_dict, load_peft_weights

    frozen = {n for n, p in module.named_parameters() if not p.requires_grad}
    try:
        stored = load_peft_weights(folder, device="cpu")
        adapted = attach(module, folder)
    except (OSError, ValueError, RuntimeError) as e:
        first = next(iter(str(e).splitlines()), type(e).__name__)
        raise UserError(f"model.adapter: cannot load {folder!r}: {first}") from e
    placed = get_peft_model_state_dict(adapted)
    matched = [k for k in stored if k in placed]
    if not matched or len(matched) < len(stored):
        raise UserError(
            f"model.adapter: {len(matched)} of {len(stored)} tensors in {folder!r} match this "
            "model; it belongs to another one"
        )
    for k in matched:
        if not torch.equal(placed[k].cpu().float(), stored[k].to(placed[k].dtype).float()):
            raise UserError(f"model.adapter: tensor {k!r} of {folder!r} was not loaded")
    merged = plain(adapted)
    for n, p in merged.named_parameters():
        p.requires_grad_(n not in frozen)  # Marian's sinusoids are no weights, and are never saved
    return merged


def plain(adapted: Any) -> nn.Module:
    """Merge in place and unload; no adapter configuration stays behind to be applied twice. BA is
    multiplied in fp32 whatever the adapter's dtype (peft does so on a CPU alone), then rounded to
    the weight's dtype and added."""
    for name, p in adapted.named_parameters():
        if "lora_" in name and not hasattr(p, "to_local"):
            p.data = p.data.float()
    merged = adapted.merge_and_unload(safe_merge=True)
    for leftover in ("peft_config", "_hf_peft_config_loaded"):
        if hasattr(merged, leftover):
            try:
                delattr(merged, leftover)
            except AttributeError:
                setattr(merged, leftover, False)
    merged.requires_grad_(True)
    return merged  # type: ignore[no-any-return]


def merged_copy(module: nn.Module) -> nn.Module:
    """A plain, merged copy; the live model keeps its adapter and its base. For a model without
    an adapter: the model itself."""
    if not is_adapted(module):
        return core_of(module)  # type: ignore[no-any-return]
    return plain(copy.deepcopy(module))
