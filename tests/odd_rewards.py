"""Reward functions that misbehave in their own ways."""

from __future__ import annotations

from typing import Any


def eats_its_lists(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    scores = [float(len(c)) for c in completions]
    prompts.clear()
    completions.clear()
    for values in columns.values():
        if isinstance(values, list):
            values.clear()
    return scores


def too_large(completions: list[str], **_: Any) -> list[Any]:
    return [1e308 if i % 2 else -(10**400) for i, _ in enumerate(completions)]


def steep(completions: list[str], **_: Any) -> list[float]:
    return [1e18 if i % 2 else -1e18 for i, _ in enumerate(completions)]


def talkative(completions: list[str], log_extra: Any, log_metric: Any, **_: Any) -> list[float]:
    log_extra("words", [len(c.split()) for c in completions])
    log_metric("calls", 1.0)
    return [float(len(c)) for c in completions]


def never(completions: list[str], **_: Any) -> list[None]:
    return [None for _ in completions]
