"""Classifiers from settings, folders and hub ids, and back to a folder.

A full classifier is an ordinary `save_pretrained` folder. A LoRA classifier is a small folder:
adapter and head (`adapter_model.safetensors`), and `classifier.json`, which names its backbone.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from tether.config.errors import UserError
from tether.config.json_file import read_mapping
from tether.config.run import LoraSettings, ModelSettings
from tether.core import weights as w
from tether.distributed.seeds import seed_of
from tether.models import lora
from tether.models.classifier import TextClassifier
from tether.models.dropout import FACT, fact, rates_of, silence_config, silence_module, with_rates
from tether.models.encoders import heads, is_encoder, load_encoder
from tether.models.language_model import core_of
from tether.models.loading import (
    UNREADABLE,
    cannot_load,
    check_reads,
    check_vocabulary,
    load_config,
    load_language_model,
    resolve_device,
    resolve_dtype,
    tokenizer_place,
)

NOTE = "classifier.json"
AGAIN = "train the classifier again, or copy its folder again"
ADAPTED = ("labels", "dtype", "base")
"""What the note of an adapter has to say beside its backbone."""


def build_classifier(
    settings: ModelSettings, labels: list[str], *, seed: int = 0, max_tokens: int = 512
) -> TextClassifier:
    """A new head on a language model's backbone (GGUF files and merged adapters work as for a
    policy), with a fresh LoRA adapter where `settings.lora` asks for one. One label makes a reward
    model. Encoder-decoders (T5, BART and kin) read the text on both sides and get the head that
    transformers has for them; UserError where it has none. So do encoders (BERT and kin)."""
    config = load_config(settings)
    make = _on_encoder if is_encoder(config) else _on_language_model
    module, tokenizer, facts = make(settings, config, labels, seed)
    if settings.lora is not None:
        module = _wrap(module, settings.lora, seed_of(seed, "lora"))
    silence_module(module)
    facts = facts | {"backbone": asdict(settings), "seed": seed}
    facts["trainable"] = sum(p.numel() for p in module.parameters() if p.requires_grad)
    return TextClassifier(module, tokenizer, max_tokens=max_tokens, labels=labels, facts=facts)


def _on_language_model(
    settings: ModelSettings, _: Any, labels: list[str], seed: int
) -> tuple[Any, Any, dict[str, Any]]:
    """(module with a new head, tokenizer, facts of the backbone)."""
    lm = load_language_model(replace(settings, lora=None), seed=seed)
    backbone = core_of(lm.module)
    config = backbone.config
    _name_labels(config, labels)
    if config.pad_token_id is None:
        config.pad_token_id = lm.pad
    devices = [lm.device] if lm.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices), torch.device("meta"):
            module = AutoModelForSequenceClassification.from_config(config, dtype=lm.dtype)
    except ValueError as e:
        raise UserError(
            f"model.path: transformers has no classification head for {config.model_type} models "
            f"like {settings.path!r}; give another backbone"
        ) from e
    _take_trunk(module, backbone)
    _new_head(module, lm.device, lm.dtype, seed_of(seed, "classifier_head"))
    return module, lm.tokenizer, dict(lm.facts)


def _on_encoder(
    settings: ModelSettings, config: Any, labels: list[str], seed: int
) -> tuple[Any, Any, dict[str, Any]]:
    """The same on an encoder."""
    _name_labels(config, labels)
    rates = rates_of(config)
    module = load_encoder(settings, config, seed)
    tokenizer = load_tokenizer_of(settings.tokenizer or settings.path, **tokenizer_place(settings))
    check_reads(tokenizer, settings.tokenizer or settings.path)
    check_vocabulary(tokenizer, module)
    facts = {
        "path": settings.path,
        "dtype": str(core_of(module).dtype).removeprefix("torch."),
        "device": str(next(module.parameters()).device),
        "model_type": config.model_type,
        "parameters": sum(p.numel() for p in module.parameters()),
    }
    return module, tokenizer, facts | fact(rates)


def _name_labels(config: Any, labels: list[str]) -> None:
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {name: i for i, name in enumerate(labels)}


def _take_trunk(module: Any, backbone: Any) -> None:
    """The language model's trunk in place of the empty one."""
    if backbone.base_model is not backbone:
        setattr(module, module.base_model_prefix, backbone.base_model)
        return
    trunk = module.base_model  # T5: the language model itself has the parts of the trunk
    for name, _ in list(trunk.named_children()):
        setattr(trunk, name, getattr(backbone, name))


def head_name(core: Any) -> str:
    """Where a classifier keeps its head: `score` of causal models, else `classification_head`."""
    return "score" if hasattr(core, "score") else "classification_head"


def _new_head(module: Any, device: torch.device, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    name = head_name(module)
    if name == "score":
        shape = module.score.weight.shape
        head: nn.Module = nn.Linear(shape[1], shape[0], bias=False)
    else:
        if not hasattr(module, name):
            raise UserError(f"model.path: no known head in {type(module).__name__}")
        head = getattr(module, name).to_empty(device="cpu").to(dtype)
    for p in head.parameters():
        new = torch.randn(p.shape, generator=generator) * 0.02 if p.dim() > 1 else p.new_zeros(1)
        p.data.copy_(new.expand(p.shape))
    setattr(module, name, head.to(device))


def _wrap(module: Any, settings: LoraSettings, seed: int) -> nn.Module:
    """LoRA on the backbone; the head trains whole and is saved beside the adapter."""
    own = [(owner, name, getattr(owner, name)) for owner, name in heads(module)]
    for owner, name, _ in own:
        setattr(owner, name, nn.Identity())  # `all-linear` must not adapt the head
    wrapped = lora.wrap(module, settings, seed, task=None)
    for owner, name, head in own:
        setattr(owner, name, head)
        for p in head.parameters():
            p.requires_grad_(True)
    return wrapped


def save_classifier(classifier: TextClassifier, folder: str | Path) -> Path:
    """Write a classifier to an empty folder, whole or not at all."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"cannot save the classifier to {str(folder)!r}: it is not empty")
    part = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        note: dict[str, Any] = {
            **classifier.notes, "labels": classifier.labels, "max_tokens": classifier.max_tokens,
        }  # fmt: skip
        if lora.is_adapted(classifier.module):
            from safetensors.torch import save_file

            note["backbone"] = classifier.facts["backbone"]
            note["backbone_seed"] = classifier.facts["seed"]  # of weights that were drawn
            note["base"] = _base(classifier)
            note["dtype"] = classifier.facts["dtype"]
            tensors = {n: t.detach().cpu() for n, t in w.trainable(classifier.module).items()}
            save_file(tensors, part / "adapter_model.safetensors")
        else:
            with with_rates(classifier.core.config, classifier.facts.get(FACT, {})):
                classifier.core.save_pretrained(part)
        classifier.tokenizer.save_pretrained(part)
        (part / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _base(classifier: TextClassifier) -> str:
    frozen = {n: p for n, p in classifier.module.named_parameters() if not p.requires_grad}
    return w.fingerprint(frozen)


def folder_of(path: str) -> str:
    """Where a classifier lies: the folder itself, or `classifier/` in the folder of its run."""
    inner = Path(path).expanduser() / "classifier"
    return str(inner) if (inner / NOTE).is_file() else path


def load_classifier(
    path: str,
    *,
    backbone: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    max_tokens: int | None = None,
) -> TextClassifier:
    """A classifier from a folder or hub id: an ordinary sequence-classification model, or our
    adapter-and-head folder on top of its backbone; the folder of the run that trained it will do.

    backbone: where the backbone lies now, if not where it was trained.
    Raises UserError for a missing or foreign tensor, and for a backbone with other weights.
    """
    path = folder_of(path)
    note_file = Path(path).expanduser() / NOTE
    note: dict[str, Any] = {}
    if note_file.is_file():
        note = read_mapping(note_file, AGAIN)
    tokens = max_tokens or note.get("max_tokens", 512)
    if "backbone" in note:
        read_mapping(note_file, AGAIN, *ADAPTED)
        return _load_adapted(path, note, backbone, device, dtype, tokens)
    place = resolve_device(device)
    try:
        config = AutoConfig.from_pretrained(path)
        rates = silence_config(config)
        module, report = AutoModelForSequenceClassification.from_pretrained(
            path, config=config, dtype=resolve_dtype(dtype, place), output_loading_info=True
        )
    except UNREADABLE as e:
        raise cannot_load("classifier", path, e) from e
    if report["missing_keys"]:
        raise UserError(
            f"classifier {path!r} lacks {sorted(report['missing_keys'])[0]!r}: it is no trained "
            "classifier (a language model has no classification head); train one, or give a "
            "sequence-classification model"
        )
    module = module.to(place)
    tokenizer = load_tokenizer_of(path)
    silence_module(module)
    return TextClassifier(
        module,
        tokenizer,
        max_tokens=tokens,
        labels=note.get("labels"),
        facts={"path": path} | fact(rates),
        notes=_notes(note),
    )


def _notes(note: dict[str, Any]) -> dict[str, Any]:
    """What the folder says beside what the model itself knows."""
    own = ("labels", "max_tokens", "backbone", "backbone_seed", "base", "dtype")
    return {k: v for k, v in note.items() if k not in own}


def load_tokenizer_of(path: str, **where: Any) -> Any:
    """A classifier's tokenizer; it need not know EOS. `where`: as transformers' from_pretrained."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, **where)
    except (OSError, ValueError, KeyError, ImportError) as e:
        raise cannot_load("the classifier's tokenizer", path, e) from e


def _load_adapted(
    path: str, note: dict[str, Any], backbone: str | None, device: str, dtype: str, tokens: int
) -> TextClassifier:
    from safetensors.torch import load_file

    kept = dict(note["backbone"])
    kept["lora"] = LoraSettings(**kept["lora"])
    settings = ModelSettings(**(kept | {"device": device, "dtype": dtype}))
    if backbone is not None:
        settings = replace(settings, path=backbone)
    seed = int(note.get("backbone_seed", 0))
    out = build_classifier(settings, list(note["labels"]), seed=seed, max_tokens=tokens)
    try:
        stored = load_file(Path(path).expanduser() / "adapter_model.safetensors")
    except UNREADABLE as e:
        raise cannot_load("classifier", path, e) from e
    live = w.trainable(out.module)
    if stored.keys() != live.keys():
        odd = sorted(stored.keys() ^ live.keys())[0]
        raise UserError(f"classifier {path!r} and its backbone do not fit: {odd!r} has no partner")
    if out.facts["dtype"] == note["dtype"] and _base(out) != note["base"]:
        raise UserError(
            f"classifier {path!r}: the backbone {settings.path!r} lacks the weights that it was "
            "trained on (their hash differs)"
        )
    with torch.no_grad():
        for n, t in live.items():
            t.copy_(stored[n])
    out.notes = _notes(note)
    return out


__all__ = ["build_classifier", "folder_of", "head_name", "load_classifier", "save_classifier"]
