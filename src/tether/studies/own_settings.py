"""Settings that a study makes itself: whoever gives one is told, since it would have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tether.config.errors import UserError
from tether.config.layers import split
from tether.config.text_values import parse_yaml


def refuse_own(
    given: Mapping[str, Any] | Sequence[str], own: Mapping[str, str], where: str
) -> None:
    """Look for settings that have no effect.

    Args:
        given: a nested mapping of settings, or command-line words.
        own: dotted path -> what decides it.
        where: of what is given.
    Raises:
        UserError: for the first of them.
    """
    for path in _of_words(given) if not isinstance(given, Mapping) else _of_mapping(given):
        if path in own:
            raise UserError(f"{where}: '{path}' would have no effect: {own[path]}; leave it out")


def _of_mapping(given: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in given.items():
        yield f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _of_mapping(value, f"{above}{key}.")


def _of_words(words: Sequence[str]) -> Iterator[str]:
    for path, text in split(words):
        yield path
        if text.lstrip().startswith("{"):
            inner = parse_yaml(text, f"--{path}")
            if isinstance(inner, Mapping):
                yield from _of_mapping(inner, f"{path}.")
