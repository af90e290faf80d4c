"""In which settings two runs differ, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tether.config.describe import plain
from tether.config.settings import PLACE_ONLY, Settings, dump

SHOWN = 3
LONGEST = 60
"""Characters of a value."""
ABSENT = object()


def differences(
    there: Mapping[str, Any],
    wanted: Mapping[str, Any] | Settings,
    words: tuple[str, str] = ("there", "now"),
) -> dict[str, str]:
    """Dotted path -> `a there, b now`, in order; a run's name and folder do not count. words: what
    stands behind the two values."""
    new = plain(wanted if isinstance(wanted, Mapping) else dump(wanted))
    return {
        path: f"{_shown(a)} {words[0]}, {_shown(b)} {words[1]}"
        for path, a, b in _unequal(plain(dict(there)), new)
        if path not in PLACE_ONLY
    }


def told(found: Mapping[str, str]) -> str:
    """The first of them: `updates: 6 there, 8 now; seed: 0 there, 1 now; and 2 more`."""
    said = [f"{path}: {values}" for path, values in list(found.items())[:SHOWN]]
    more = len(found) - len(said)
    return "; ".join([*said, *([f"and {more} more"] if more else [])])


def _unequal(a: Any, b: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    if not (isinstance(a, dict) and isinstance(b, dict)):
        if a != b or type(a) is not type(b):
            yield above, a, b
        return
    for key in dict.fromkeys([*b, *a]):
        path = f"{above}.{key}" if above else str(key)
        yield from _unequal(a.get(key, ABSENT), b.get(key, ABSENT), path)


def _shown(value: Any) -> str:
    if value is ABSENT:
        return "not set"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
