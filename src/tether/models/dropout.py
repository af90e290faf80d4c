"""Dropout off by configuration and by module (B07): sampling, scoring and update see one model."""

from __future__ import annotations

from typing import Any

from torch import nn


def silence_config(config: Any) -> None:
    """Every numeric dropout field of a transformers configuration, nested ones included, to 0."""
    for name, value in list(vars(config).items()):
        if ("drop" in name or name.endswith("_pdrop")) and _number(value):
            setattr(config, name, 0.0)
        elif hasattr(value, "to_dict") and hasattr(value, "model_type"):
            silence_config(value)


def silence_module(module: nn.Module) -> None:
    """Every dropout of a built model to 0: modules, and the rates that functional dropout reads
    (an attention's `attention_dropout`, BART's `dropout`, an adapter's `lora_dropout`)."""
    for m in module.modules():
        if isinstance(m, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout):
            m.p = 0.0
        for name, value in list(vars(m).items()):
            if "drop" in name and _number(value):
                setattr(m, name, 0.0)
        if hasattr(m, "config"):
            silence_config(m.config)


def _number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
