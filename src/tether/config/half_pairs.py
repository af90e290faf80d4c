"""Half of a surrogate pair in text, as cut JSON has it: Python holds it, but it cannot be written,
hashed or tokenized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HALF_PAIR = "half of a surrogate pair (text cut in the middle of a character?)"


def half_pair(text: str) -> int | None:
    """Position (from 1) of the first half pair; None where there is none."""
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        return e.start + 1
    return None


def half_pair_within(value: Any) -> int | None:
    """As `half_pair`, of the first text with one in lists and mappings at every depth."""
    if isinstance(value, str):
        return half_pair(value)
    if isinstance(value, Mapping):
        value = [x for pair in value.items() for x in pair]
    if isinstance(value, list | tuple):
        return next((at for x in value if (at := half_pair_within(x)) is not None), None)
    return None
