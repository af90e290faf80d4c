"""Dropout off by configuration and by module (B07): sampling, scoring and update see one model. The
rates that a model came with are kept, and written with it: whoever trains it next may want them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

FACT = "dropout_rates"
"""Key of a model's facts: what it came with, where that is not 0."""


def _rates(config: Any, of: str = "") -> Iterator[tuple[str, Any, str, float]]:
    """(dotted name, configuration, name in it, rate) of every field, nested ones included."""
    for name, value in list(vars(config).items()):
        if "drop" in name and _number(value):
            yield of + name, config, name, float(value)
        elif hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield from _rates(value, f"{of}{name}.")


def rates_of(config: Any) -> dict[str, float]:
    """Name -> rate of every dropout of a transformers configuration that is not 0."""
    return {full: rate for full, _, _, rate in _rates(config) if rate}


def fact(rates: dict[str, float]) -> dict[str, Any]:
    """What a model's facts say of them: nothing where there are none."""
    return {FACT: rates} if rates else {}


def silence_config(config: Any) -> dict[str, float]:
    """Every numeric dropout field of a transformers configuration, nested ones included, to 0.
    Returns what `rates_of` gave before."""
    found = rates_of(config)
    for _, part, name, _ in list(_rates(config)):
        setattr(part, name, 0.0)
    return found


@contextmanager
def with_rates(config: Any, rates: Mapping[str, float]) -> Iterator[None]:
    """Within, a configuration that was silenced states its own rates again, to be written. It may
    be the text model's part of the one that they were read from."""
    there = []
    for full, part, name, rate in _rates(config):
        before = rates.get(full, rates.get(f"text_config.{full}"))
        if before is not None:
            there.append((full, part, name, rate))
            setattr(part, name, before)
    try:
        yield
    finally:
        for _, part, name, rate in there:
            setattr(part, name, rate)


def _places(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """(module, name of its rate) of a built model: modules, and the rates that functional dropout
    reads (an attention's `attention_dropout`, BART's `dropout`, an adapter's `lora_dropout`)."""
    for m in module.modules():
        if isinstance(m, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout):
            yield m, "p"
        for name, value in vars(m).items():
            if "drop" in name and _number(value):
                yield m, name


def drops(module: nn.Module) -> bool:
    """Whether a layer of a built model drops anything in train mode."""
    return any(getattr(m, name) for m, name in _places(module))


def silence_module(module: nn.Module) -> None:
    """Every dropout of a built model to 0."""
    for m, name in list(_places(module)):
        setattr(m, name, 0.0)
    for m in module.modules():
        if hasattr(m, "config"):
            silence_config(m.config)


def _number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
