"""Names of classes: their order, and which one a setting `label` means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

from tether.config.nearest import nearest

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_SHOWN = 12


def in_order(names: Iterable[str]) -> list[str]:
    """Different names: as numbers where all are numbers, else by alphabet."""
    once = sorted(set(names))
    numbers = [_number(n) for n in once]
    if any(x is None for x in numbers):
        return once
    return [n for _, n in sorted(zip(numbers, once, strict=True))]


def one_name(names: Iterable[str], further: Iterable[str] = ()) -> dict[str, str]:
    """Name -> the name of its class: equal numbers are one, which is called by the shortest of
    `names` (of `further`, where none is among those)."""
    called: dict[Decimal, str] = {}
    out = {}
    for group in (names, further):
        for name in sorted(set(group), key=lambda n: (len(n), n)):
            number = _number(name)
            out[name] = name if number is None else called.setdefault(number, name)
    return out


def is_number(name: str) -> bool:
    """Whether a class is called by a number."""
    return _number(name) is not None


def position(label: str | int, names: Sequence[str]) -> int | None:
    """Place of the class that is called so, or is the same number; only where there is none, of the
    class at that index. None where there is neither."""
    text = str(label).strip()
    if text in names:
        return names.index(text)
    number = _number(text)
    if number is None:
        return None
    same = [i for i, n in enumerate(names) if _number(n) == number]
    if same:
        return same[0] if len(same) == 1 else None
    if not 0 <= number < len(names):
        return None
    index = int(number)
    return index if index == number else None


def hint(label: str | int, names: Sequence[str]) -> str:
    """What an error for an unknown label ends with. A number is not guessed from another one."""
    close = nearest(str(label), names) if _number(str(label).strip()) is None else None
    return f"did you mean {close!r}?" if close else f"there are: {shown(names)}"


def shown(names: Sequence[str]) -> str:
    """All of them, or the first and the last where they are many."""
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: _SHOWN - 1])}, ..., {names[-1]}"


def _number(name: str) -> Decimal | None:
    return Decimal(name) if _NUMBER.fullmatch(name) else None
