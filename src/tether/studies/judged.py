"""What completions of different arms must have in common before judges may compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.config.settings import dump, parse
from tether.tasks.loading import splits

SHARED: Mapping[str, tuple[str, ...]] = {
    "data": (
        *("validation", "validation_rows", "test", "test_rows", "seed"),
        *("max_prompt_tokens", "too_long"),
    ),
    "sampling": (
        *("max_new_tokens", "min_new_tokens", "temperature", "top_k", "top_p", "greedy", "stop"),
    ),
    "evaluation": ("prompts", "test_prompts", "sampling", "seed"),
}
"""Group of settings -> those that decide on which prompts and with which decoding a run is
evaluated."""


def shared(part: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """These settings of a run, with the defaults of what it leaves open; of another job none.
    Raises UserError."""
    parsed = parse(part, where)
    if not isinstance(parsed, RunSettings):
        return {}
    settings = dump(parsed)
    return {group: {k: settings[group][k] for k in keys} for group, keys in SHARED.items()}


def check_judged_alike(one: RunSettings, other: RunSettings, names: tuple[str, str]) -> None:
    """Raises UserError, before any training, where two runs are evaluated on other prompts or
    decode otherwise; names: what the study's file calls the two."""
    mine, theirs = dump(one), dump(other)
    differ = [
        f"{group}.{key} ({mine[group][key]} and {theirs[group][key]})"
        for group, keys in SHARED.items()
        for key in keys
        if mine[group][key] != theirs[group][key]
    ]
    if differ:
        raise UserError(
            f"'{names[0]}' and '{names[1]}' would be judged on other prompts or with other "
            f"decoding: {', '.join(differ)}; give both the same"
        )
    for split, count in (
        ("validation", one.evaluation.prompts),
        ("test", one.evaluation.test_prompts),
    ):
        if count and _prompts(one, split, count) != _prompts(other, split, count):
            raise UserError(
                f"'{names[0]}' and '{names[1]}' would be judged on other {split} prompts "
                f"({one.data.path} and {other.data.path}): name one file for both, data.{split}"
            )


def _prompts(settings: RunSettings, split: str, count: int) -> list[Any]:
    found = splits(settings.data)
    if split not in found:
        return []
    column = "prompt" if settings.data.task else settings.data.text or settings.data.prompt
    return list(found[split][0][column])[:count]
