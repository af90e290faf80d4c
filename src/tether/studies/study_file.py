"""Values of a study file, each checked with one line that names key and file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.config.nearest import nearest


def known(found: Mapping[str, Any], keys: Sequence[str], file: Path, what: str) -> None:
    """Raises UserError for a key that a study does not have."""
    for key in found:
        if key not in keys:
            guess = nearest(str(key), keys)
            mend = f"did you mean '{guess}'?" if guess else f"{what} has {', '.join(keys)}"
            raise UserError(f"unknown key '{key}' in {file}; {mend}")


def text(found: Mapping[str, Any], key: str, default: str, file: Path) -> str:
    """Text that is not empty; a number counts as its digits."""
    value = found.get(key, default)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value):
        raise UserError(f"'{key}' in {file} is {value!r}, must be text")
    return str(value)


def whole(found: Mapping[str, Any], key: str, default: int | None, file: Path, least: int) -> int:
    """A whole number of at least `least`."""
    value = found.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(
            f"'{key}' in {file} is {value!r}, must be a whole number of at least {least}"
        )
    return value


def number(found: Mapping[str, Any], key: str, default: float, file: Path) -> float:
    """A finite number."""
    value = found.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"'{key}' in {file} is {value!r}, must be a number")
    return float(value)


def numbers(
    found: Mapping[str, Any], key: str, default: Sequence[float], file: Path
) -> list[float]:
    """A list of finite numbers."""
    value = found.get(key, default)
    if not isinstance(value, list | tuple):
        raise UserError(f"'{key}' in {file} is {value!r}, must be a list of numbers")
    return [number({key: v}, key, 0.0, file) for v in value]


def seeds(found: Mapping[str, Any], default: int, file: Path) -> Sequence[int]:
    """A number of seeds (0 to n - 1), or a list of them."""
    value = found.get("seeds", default)
    if isinstance(value, list):
        if not value:
            raise UserError(f"'seeds' in {file} names none")
        return [whole({"seeds": v}, "seeds", None, file, 0) for v in value]
    return range(whole({"seeds": value}, "seeds", None, file, 1))
