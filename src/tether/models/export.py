"""A policy as files that load in transformers (or peft) without tether, checked by loading them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from tether.config.errors import UserError
from tether.core import weights as w
from tether.models import lora
from tether.models.dropout import FACT, with_rates
from tether.models.language_model import LanguageModel
from tether.models.weight_sets import WeightSets
from tether.types import Sequences

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 1e-1, torch.float16: 1e-2}
"""Largest difference of logits between the live and the reloaded model, relative to the largest
logit (at least 1). A merge rounds: 5e-5 was seen in fp32 on a tiny T5; what is stored is compared
bit for bit besides."""


def export(
    lm: LanguageModel,
    sets: WeightSets | None,
    folder: str | Path,
    *,
    merged: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write the policy to an empty folder: `save_pretrained` of the plain model (an adapter is
    merged), or with `merged=False` the adapter alone beside its base's path and hash.

    The folder is read again and its logits are compared with the live model's (B21). It appears
    whole or not at all. Raises UserError where the folder exists, RuntimeError where the reloaded
    model differs.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not overwrite:
        raise UserError(f"cannot export to {str(folder)!r}: it exists and is not empty")
    part = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        if merged or not lora.is_adapted(lm.module):
            _write_plain(lm, part)
        else:
            _write_adapter(lm, sets, part)
        if lm.tokenizer is not None:
            lm.tokenizer.save_pretrained(part)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _write_plain(lm: LanguageModel, folder: Path) -> None:
    module: Any = lora.merged_copy(lm.module)
    before = module.generation_config
    module.generation_config = _generation(lm, before)
    try:
        with with_rates(module.config, lm.facts.get(FACT, {})):
            module.save_pretrained(folder)
    finally:
        module.generation_config = before
    reloaded = type(module).from_pretrained(folder, dtype=lm.dtype).to(lm.device)
    if w.fingerprint(reloaded) != w.fingerprint(module):
        raise RuntimeError("the exported files do not hold the policy's weights bit for bit")
    _same(lm, LanguageModel(reloaded, lm.tokenizer, lm.stops, lm.pad))


def _generation(lm: LanguageModel, before: Any) -> GenerationConfig:
    """What ends a text and fills rows, as trained; no sampling habits of the original model."""
    return GenerationConfig(
        bos_token_id=before.bos_token_id,
        eos_token_id=list(lm.stops) if len(lm.stops) > 1 else lm.stops[0],
        pad_token_id=lm.pad,
        decoder_start_token_id=lm.decoder_start if lm.seq2seq else None,
    )


def _write_adapter(lm: LanguageModel, sets: WeightSets | None, folder: Path) -> None:
    module: Any = lm.module
    module.save_pretrained(folder)
    base = {"path": lm.facts.get("path", ""), "gguf_file": lm.facts.get("gguf_file")}
    frozen = {n: p for n, p in module.named_parameters() if not p.requires_grad}
    base["fingerprint"] = sets.base_fingerprint() if sets else w.fingerprint(frozen)
    (folder / "base.json").write_text(json.dumps(base, indent=2) + "\n", encoding="utf-8")
    twin = lm.twin()
    bare = twin.module.unload()  # type: ignore[operator]
    _same(lm, LanguageModel(lora.attach(bare, folder), None, lm.stops, lm.pad))


def _same(lm: LanguageModel, other: LanguageModel) -> None:
    s = _probe(lm)
    with lm.quiet(), other.quiet():
        a, b = lm.forward(s)[0].float(), other.forward(s)[0].float()
    off = float((a - b).abs().max()) / max(1.0, float(a.abs().max()))
    limit = TOLERANCE[lm.dtype]
    if not off <= limit:
        raise RuntimeError(
            f"the exported model differs from the live one by {off:.3g} of the largest logit "
            f"(limit {limit:g}); nothing was exported"
        )


def _probe(lm: LanguageModel) -> Sequences:
    """A few fixed ids, spread over the vocabulary."""
    room = min(16, (lm.max_positions or 32) // 2, lm.encoder_positions or 16)
    ids = torch.arange(4 * room, device=lm.device).reshape(2, -1) * 7919 % lm.vocab_size
    mask: Tensor = torch.ones_like(ids[:, :room], dtype=torch.bool)
    return Sequences(ids[:, :room], mask, ids[:, room:], mask)
