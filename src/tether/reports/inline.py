"""Data inside a page."""

from __future__ import annotations

import json
from typing import Any


def inline_json(value: Any) -> str:
    """JSON that may stand inside a script element: no `<`, `>` or `&`, so nothing can close it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for bad in "<>&\u2028\u2029":
        text = text.replace(bad, f"\\u{ord(bad):04x}")
    return text
